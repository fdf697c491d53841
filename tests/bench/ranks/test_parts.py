"""What needs no second process: intervals, names, differences between records, and the view of them."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from nbcompile.bench.ranks.communication import merged, overlap
from nbcompile.bench.ranks.differences import differences
from nbcompile.bench.ranks.engines import environment
from nbcompile.bench.ranks.rank_lines import NOT_CALLED, with_lines
from nbcompile.bench.ranks.ranks import Ranks, names_read
from nbcompile.errors import RanksError
from nbcompile.notebook.ranks import printed
from nbcompile.record.compilation import Compilation, Graph, Node, Span
from nbcompile.record.ranks import Bucket, Communication, RankRecord, RanksResult
from nbcompile.view.facts.facts import verdict


def test_intervals() -> None:
    left = merged([(5, 6), (0, 2), (1, 3), (3, 4)])
    assert left == [(0, 4), (5, 6)]
    assert overlap(left, [(1, 2), (3, 5.5)]) == [(1, 2), (3, 4), (5, 5.5)]
    assert overlap(left, []) == []


def test_names_that_a_cell_reads() -> None:
    source = "y = x + 1\nz += y\ndel w\nfor i in items:\n    f(i).a = 2\n[j for j in k]"
    assert set(names_read(source)) == {"x", "z", "y", "w", "items", "f", "i", "j", "k"}


def test_each_rank_sees_one_gpu_of_those_that_the_session_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    second = environment(1, 2, "cuda", 1234)
    assert (second["CUDA_VISIBLE_DEVICES"], second["LOCAL_RANK"], second["RANK"]) == ("5", "0", "1")
    assert environment(1, 2, "cpu", 1234)["LOCAL_RANK"] == "1"


def node(text: str, line: int | None = None, file: str = "") -> Node:
    spans = (Span(line, file=file),) if line else ()
    return Node(f"g0.fx.{text}", text, text, "compute", spans=spans, text=text)


def record(rank: int, *graphs: tuple[Node, ...], **extra: object) -> RankRecord:
    made = tuple(Graph(f"g{place}.fx", "fx", "", nodes) for place, nodes in enumerate(graphs))
    return RankRecord(rank, "cpu", Compilation(id="x", graphs=made), **extra)  # type: ignore[arg-type]


def test_the_first_node_that_differs() -> None:
    first = record(0, (node("a", 2), node("b", 3)), (node("c", 4),))
    other = record(1, (node("a", 2), node("b", 3)), (node("d", 7, "model.py"),), lines={"g1": 5})
    fewer = record(2, (node("a", 2), node("b", 3)))
    found = differences([first, other, fewer, record(3, *(g.nodes for g in first.compilation.graphs))])
    assert [(each.rank, each.graph, each.line) for each in found] == [(1, "g1", 5), (2, "g1", 4)]
    assert found[0].text == "d, where rank 0 has c" and found[0].place == Span(7, file="model.py")
    assert found[1].text == "1 graphs, where rank 0 has 2"


def test_a_shorter_graph_differs_too() -> None:
    found = differences([record(0, (node("a", 2), node("b", 3))), record(1, (node("a", 2),))])
    assert found[0].text == "the end of the graph, where rank 0 has b" and found[0].line == 3


def result(**extra: object) -> RanksResult:
    talk = Communication(0.01, 0.004, 0.001)
    bucket = Bucket(0, ("w", "<script>"), 4000, "all-reduce", "g0", "net", Span(8, file="/tmp/net.py"))
    first = record(0, (node("<b>", 2),), steady=(0.01,), eager=(0.02,), communication=talk, buckets=(bucket,))
    second = record(1, (node("c", 2),), reason="nothing was compiled")
    ranks = (first, second)
    return RanksResult(2, "ddp", "processes", "gloo", ranks, differences=differences(ranks), **extra)  # type: ignore[arg-type]


def test_the_table_of_ranks() -> None:
    shown = result(notes=("x stays",))
    text = shown.text
    assert str(shown) == text and repr(shown) == "<2 ranks, ddp over gloo>"
    assert "2 ranks, DDP over gloo, nbcompile: the ranks compiled different graphs" in text
    assert "rank 1 compiled something else than rank 0: graph g0, line 2: c, where rank 0 has <b>" in text
    assert "rank 1 has no steady time: nothing was compiled" in text
    row = next(line for line in text.splitlines() if line.startswith("  0 (cpu)"))
    assert row.split()[-4:] == ["ms", "25%", "3", "ms"]
    assert "g0      4 kB  net (line 8 of /tmp/net.py)  w, <script>" in text and "x stays" in text


CELL = """
import math
y = x * 2
for i in range(2):
    out = model(y)
loss = loss_of(
    out)
loss.backward()
z = 3
"""


def called(name: str, lines: set[int], graphs: dict[str, int], eager: str = "") -> Any:
    return SimpleNamespace(
        name=name, called=lines, lines=graphs, compiled=SimpleNamespace(eager_reason=eager)
    )


def test_every_line_of_a_cell_on_ranks_says_what_became_of_it() -> None:
    """They had no fate at all, and kernels no line of the cell."""
    own, inside = Span(7), Span(3, file="model.py")
    nodes = (
        Node("g0.fx.x", "x", "x", "input"),
        Node("g0.fx.a", "a", "mul", "compute"),
        Node("g0.fx.b", "b", "mul", "compute", spans=(inside,)),
        Node("g0.fx.c", "c", "mul", "compute", spans=(own,)),
    )
    compilation = Compilation(
        id="x", graphs=(Graph("g0.fx", "fx", "", nodes), Graph("g0.bw", "backward", "", ()))
    )
    calls = [called("model", {5}, {"g0": 5}), called("loss_of", {7}, {}, eager="it has no tensors")]
    found = with_lines(compilation, ast.parse(CELL), calls)
    assert [(fate.line, fate.end_line, fate.fate) for fate in found.lines] == [
        (2, 2, "python"), (3, 3, "eager"), (4, 4, "python"), (5, 5, "compiled"), (6, 7, "eager"),
        (8, 8, "python"), (9, 9, "python"),
    ]  # fmt: skip
    reasons = {fate.line: fate.reason for fate in found.lines}
    assert reasons[3] == NOT_CALLED and reasons[5] == "calls model, which is compiled here: g0"
    assert reasons[6] == "it has no tensors" and "only calls of what is compiled are told" in reasons[4]
    assert [node.spans for node in found.graphs[0].nodes] == [(), (Span(5),), (Span(5), inside), (own,)]
    assert not found.notes


def test_a_cell_that_calls_nothing_that_is_compiled_says_so() -> None:
    found = with_lines(Compilation(id="x"), ast.parse("\ny = x * 2\ny.sum().backward()"), [])
    assert [fate.fate for fate in found.lines] == ["eager", "eager"]
    assert verdict(found).text == f"ran eager: {NOT_CALLED}"
    assert (
        "nothing was compiled, as the cell calls"
        in RanksResult(1, "ddp", "processes", "gloo", (RankRecord(0, "cpu", found),)).text
    )


def test_html_shows_a_record_and_runs_nothing_of_it() -> None:
    html = result()._repr_html_()
    assert "<script" not in html and "&lt;script&gt;" in html and "&lt;b&gt;" in html


def test_prints_that_are_alike_are_shown_once() -> None:
    ranks = (record(0, output="a\n"), record(1, output="a\n"), record(2, output="b"), record(3))
    assert printed(ranks) == [("ranks 0, 1", "a\n"), ("rank 2", "b")]


def test_no_ranks_at_all() -> None:
    with pytest.raises(RanksError, match="at least 1"):
        Ranks(0)
