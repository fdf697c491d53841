"""Still pictures of graphs: bounded, nothing overlaps or sticks out, letters fit in their boxes."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from nbcompile import view
from nbcompile.record.compilation import Compilation, Graph, Node
from nbcompile.view.drawing.contents import Extent
from nbcompile.view.drawing.nesting import Drawing, drawing
from nbcompile.view.drawing.picture import graph_picture
from nbcompile.view.html.styles import mid
from tests.view import fixtures
from tests.view.test_nesting import chain
from tests.view.test_views import pictures, read

Box = tuple[float, float, float, float]  # left, top, right, bottom
RECORDS = {
    "transformer": fixtures.transformer(),
    "no cell": fixtures.transformer(cell=None),
    "break": fixtures.with_break(),
    "large": fixtures.large(1000),
    "medium": fixtures.large(150),
}


def graphs(record: Compilation) -> list[ET.Element]:
    found = [ET.fromstring(svg) for svg in pictures(read(view.to_html(record)))]
    return [svg for svg in found if re.search("program|FX graph", svg[0].text or "")]


def boxes(svg: ET.Element) -> list[Box]:
    found = []
    for rect in svg.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, width, height = (float(rect.get(key, "nan")) for key in ("x", "y", "width", "height"))
        found.append((x, y, x + width, y + height))
    return found


def within(a: Box, b: Box) -> bool:
    return b[0] <= a[0] and b[1] <= a[1] and a[2] <= b[2] and a[3] <= b[3]


def check(svg: ET.Element) -> None:
    """Boxes are apart, or one is in the other; letters are in a box; all is in the picture."""
    found = boxes(svg)
    width, height = float(svg.get("width", "0")), float(svg.get("height", "0"))
    for n, a in enumerate(found):
        assert within(a, (0.0, 0.0, width - 2, height - 2))
        for b in found[:n]:
            apart = a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]
            assert apart or within(a, b) or within(b, a), (a, b)
    for text in svg.iter("{http://www.w3.org/2000/svg}text"):
        x, y, size = (
            float(text.get("x", "nan")),
            float(text.get("y", "nan")),
            float(text.get("font-size", "11")),
        )
        long = len(text.text or "") * size * 0.5  # of the narrowest font
        left = {"middle": x - long / 2, "end": x - long}.get(text.get("text-anchor", ""), x)
        assert any(within((left, y - 8, left + long, y + 2), box) for box in found), text.text


@pytest.mark.parametrize("name", list(RECORDS))
def test_nothing_overlaps_and_all_letters_are_in_boxes(name: str) -> None:
    found = graphs(RECORDS[name])
    assert len(found) >= 2
    for svg in found:
        check(svg)
        assert len(boxes(svg)) <= 300 and float(svg.get("width", "0")) <= 1250


def picture(made: Drawing, **limits: float) -> ET.Element:
    size: dict[str, Any] = {"max_height": 400.0, "max_width": 1000.0, **limits}
    return ET.fromstring(graph_picture(made, mid, (), {}, **size).svg)


def still(graph: Graph, **fields: Any) -> Drawing:
    from nbcompile.record.provenance import Links

    record = Compilation("x", graphs=(graph,))
    return drawing(record, graph, None, {}, Links(record), Extent(still=True, **fields))


def test_tall_graphs_fold_into_columns_that_fit() -> None:
    made = still(chain(40))
    tall, folded, narrow = picture(made, max_height=1e9), picture(made), picture(made, max_width=150.0)
    assert float(folded.get("height", "0")) < float(tall.get("height", "0")) / 3
    assert float(narrow.get("width", "0")) <= 154
    for svg in (tall, folded, narrow):
        check(svg)
        assert len(boxes(svg)) == 41


def test_what_is_closed_has_no_contents_and_says_how_much_it_holds() -> None:
    made = still(chain(200), boxes=10)
    closed = [group for group in made.groups if not group.rows]
    assert len(closed) == len(made.groups) - 1 == 5
    assert {group.note for group in closed} == {"40 captured"}
    assert len(boxes(picture(made))) == 6


def test_a_view_is_what_it_is_a_view_of() -> None:
    kinds: list[Any] = ["input", "compute", "view", "view", "compute"]
    nodes = tuple(
        Node(f"g.n{n}", f"v{n}", f"aten.op{n}", kind, (f"g.n{n - 1}",) if n else ())
        for n, kind in enumerate(kinds)
    )
    made = still(Graph("g", "forward", "", nodes))
    assert [bool(label) for label in made.labels] == [True, True, False, False, True]
    assert [edge[0] for edge in made.groups[0].edges] == [0, 1], "from the input, and from what is viewed"


def test_an_op_alone_of_its_line_or_module_says_which() -> None:
    words = [text.text for svg in graphs(RECORDS["transformer"]) for text in svg.iter() if text.text]
    assert "line 5: gelu" in words and "line 3" in words
    nodes = tuple(
        dataclasses.replace(node, module=f"net.{place}")
        for node, place in zip(chain(4).nodes, ["", "a", "a", "fc", "b"], strict=True)
    )
    assert still(Graph("g", "fx", "", nodes)).labels[3] == "fc: relu"


def test_inputs_are_few_and_arguments_come_first() -> None:
    inputs = [Node(f"g.n{n}", f"saved_{n}", "placeholder", "input") for n in range(20)]
    inputs[15] = dataclasses.replace(inputs[15], name="tangents_1")
    last = Node("g.n20", "y", "aten.add", "compute", tuple(node.id for node in inputs))
    graph = Graph("g", "backward", "", (*inputs, last), parent="above")
    assert sum(map(bool, still(graph).labels)) == 21
    few = still(graph, inputs=8)
    assert [n for n, label in enumerate(few.labels) if label] == [15, 20]
    assert few.left_out == ("19 other inputs not drawn",)
