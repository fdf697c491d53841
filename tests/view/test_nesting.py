"""Nested drawings: they show what the graph says, nothing overlaps, levels fit, in time and space."""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import random
import time
from typing import Any

import pytest
import torch

from nbcompile import view
from nbcompile.api import compile as nb_compile
from nbcompile.record.compilation import Compilation, Graph, Kernel, Node, Span
from nbcompile.view.drawing.contents import FIRST_SHOWN, MAX_INPUTS
from nbcompile.view.drawing.nesting import MAX_NODES
from nbcompile.view.drawing.tree import MAX_CHILDREN, MAX_DEPTH, Box, grouped, module_path
from tests.view import fixtures
from tests.view.drawn import Group, check, pairs


def drawings(record: Compilation) -> dict[str, dict[str, Any]]:
    made = view.whole(record)["view"]["drawings"]
    assert [each["graph"] for each in made] == [graph.id for graph in record.graphs]
    return {each["graph"]: each for each in made}


def one(graph: Graph, **fields: Any) -> dict[str, Any]:
    """The drawing of the first graph of a record."""
    return next(iter(drawings(Compilation("x", graphs=(graph,), **fields)).values()))


def chain(count: int, **fields: Any) -> Graph:
    nodes = [Node("g.n0", "x", "placeholder", "input")]
    nodes += [Node(f"g.n{i}", f"op{i}", "aten.relu.default", "compute", (f"g.n{i - 1}",), **fields)
              for i in range(1, count + 1)]  # fmt: skip
    return Graph("g", "forward", "", tuple(nodes))


@pytest.fixture(scope="module")
def trained() -> Compilation:
    """A layer of a transformer, forward and backward, as the compiler records it."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    compiled = nb_compile(lambda x: layer(x).pow(2).mean())
    compiled(torch.randn(2, 4, 16, requires_grad=True)).backward()
    return compiled.compilation


RECORDS = {
    "transformer": fixtures.transformer(),
    "break": fixtures.with_break(),
    "large": fixtures.large(),
    "hostile": fixtures.hostile(),
}


def drawn_edges(graph: Graph, labels: list[str]) -> set[tuple[int, int]]:
    """What nodes that are drawn read of nodes that are, by their places."""
    places = {node.id: place for place, node in enumerate(graph.nodes) if labels[place]}
    return {
        (places[id], places[node.id])
        for node in graph.nodes
        if node.id in places
        for id in node.inputs
        if id in places and places[id] < places[node.id]
    }


def check_plain(graph: Graph, drawing: dict[str, Any]) -> list[Group]:
    """Of a graph without kernels: every node that has a label is there once, and every edge."""
    groups = check(drawing)
    refs = [item.ref for group in groups for item in group.items if item.ref >= 0]
    assert sorted(refs) == [place for place, label in enumerate(drawing["labels"]) if label]
    assert pairs(groups) == drawn_edges(graph, drawing["labels"])
    return groups


def check_fused(record: Compilation, graph: Graph, drawing: dict[str, Any]) -> None:
    """Every node is there once, as itself or as a kernel with all its loops, and so is every edge."""
    groups = check(drawing)
    inner = record.graph(drawing["inner"]).nodes if drawing["inner"] else ()
    start, kernels = len(graph.nodes), {kernel.id: kernel for kernel in record.kernels}
    as_group = {group["id"]: group for group in groups if group["kind"] == "kernel"}
    refs = [item.ref for group in groups for item in group.items if 0 <= item.ref < start]
    as_node = [graph.nodes[ref].id for ref in refs]
    labelled = [node.id for node, label in zip(graph.nodes, drawing["labels"], strict=True) if label]
    assert sorted([*as_node, *as_group]) == sorted(labelled)
    owner = {ref: graph.nodes[ref].id for ref in refs}
    for id, group in as_group.items():
        loops = [inner[item.ref - start].id for item in group.items if item.ref >= 0]
        assert sorted(loops) == sorted(set(kernels[id].loops))
        assert len(loops) > 1
        places = {node.id: start + place for place, node in enumerate(inner)}
        own = {
            (places[i], places[id_]) for id_ in loops for i in inner[places[id_] - start].inputs if i in loops
        }
        assert own <= pairs([group])
    # Who reads whom, by nodes of the fused graph: from every edge that ends at a node or a kernel's loop.
    found = set()
    for group in groups:
        for edge in group.edges:
            if edge.target >= 0:
                ref = group.items[edge.target].ref
                kernel = groups[-ref] if ref < 0 else group
                target = owner.get(ref) or (kernel["id"] if kernel["kind"] == "kernel" else None)
                makers = {graph.nodes[edge.value].id} if edge.value < start else {
                    kernel.id for kernel in record.kernels if inner[edge.value - start].id in kernel.loops
                }  # fmt: skip
                found |= {(maker, target) for maker in makers}
    for node in graph.nodes:
        for id in node.inputs:
            if id in labelled and node.id in labelled:
                assert (id, node.id) in found


def check_all(record: Compilation) -> None:
    made = drawings(record)
    for graph in record.graphs:
        if graph.stage == "fused":
            check_fused(record, graph, made[graph.id])
        elif made[graph.id]["groups"]:
            check_plain(graph, made[graph.id])
        for group in map(Group, made[graph.id]["groups"]):
            assert len(group.items) <= MAX_CHILDREN + MAX_INPUTS


@pytest.mark.parametrize("name", [name for name in RECORDS if name != "hostile"])
def test_drawings_show_what_the_graphs_say(name: str) -> None:
    check_all(RECORDS[name])


def test_a_real_training_step(trained: Compilation) -> None:
    check_all(trained)
    made = drawings(trained)
    assert {"g0.fx", "g0.joint", "g0.fw", "g0.bw", "g0.fw.fused", "g0.bw.fused"} <= set(made)
    labels = {group["label"] for group in made["g0.fw"]["groups"]}
    assert {"self_attn", "norm1"} <= labels, "modules are told by what Dynamo calls them"
    assert made["g0.fw"]["left_out"] == ["12 parameters not drawn"]
    fused = made["g0.bw.fused"]
    kernel = next(group for group in fused["groups"] if group["kind"] == "kernel")
    assert kernel["fate"] == "fused" and kernel["id"] in {k.id for k in trained.kernels}
    assert set(fused["fates"]) <= set("flbc-") and "f" in fused["fates"] and "l" in fused["fates"]


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_in_random_modules(seed: int) -> None:
    draw = random.Random(seed)
    nodes: list[Node] = []
    for place in range(150):
        before = [draw.choice(nodes).id for _ in range(draw.randrange(4))] if nodes else []
        kind: Any = draw.choice(["compute", "compute", "view", "library", "constant"]) if before else "input"
        module = ".".join(draw.choice("ab0") for _ in range(draw.randrange(4))) if draw.random() < 0.8 else ""
        nodes.append(Node(f"g.n{place}", f"v{place}", "aten.add.Tensor", kind, tuple(before), module=module))
    graph = Graph("g", "forward", "", tuple(nodes))
    check_plain(graph, one(graph))


@pytest.mark.parametrize("name", list(RECORDS))
def test_the_same_record_gives_the_same_drawing(name: str) -> None:
    assert drawings(RECORDS[name]) == drawings(RECORDS[name])


@pytest.mark.parametrize("name", list(RECORDS))
def test_few_boxes_are_shown_at_first(name: str) -> None:
    for drawing in drawings(RECORDS[name]).values():
        groups = [Group(packed) for packed in drawing["groups"]]
        shown = [group for group in groups if group.packed.get("open")]
        assert sum(len(group.items) for group in shown) <= max(FIRST_SHOWN, len(groups[0].items))
        assert shown[0] is groups[0]
        for group in shown[1:]:
            assert groups[group["parent"]].packed.get("open"), "what is open is seen"


def test_modules_are_groups_and_single_ones_are_joined() -> None:
    paths = [
        "net.a",
        "net.a",
        "net.b.0.x",
        "net.b.0.x",
        "net.b.0.y",
        "net.b.1.x.deep",
        "net.b.1.x.deep",
    ]
    boxes = [Box(place, path=module_path(path)) for place, path in enumerate(paths)]
    root = grouped(boxes, "graph", "ops")
    assert root.label == "graph: net"
    assert [box.label for box in root.groups()] == ["graph: net", "a", "b.0", "x", "b.1.x.deep"]
    assert [box.ref for box in root.nodes()] == list(range(len(paths)))


def layered(count: int, odd: int = -1, skip: int = 0) -> Graph:
    """Modules ``layers.0`` and on of two ops each in a chain; the one numbered ``odd`` has another op, and
    the second op of each reads the ``skip``-th value before its own module too."""
    nodes = [Node("g.n0", "x", "placeholder", "input")]
    for at in range(count):
        ops = ("aten.relu.default", "aten.sin.default" if at == odd else "aten.exp.default")
        for step, op in enumerate(ops):
            here = 2 * at + step + 1
            reads = [f"g.n{here - 1}"] + ([f"g.n{max(0, 2 * at - skip)}"] if skip and step else [])
            nodes.append(Node(f"g.n{here}", f"op{here}", op, "compute", tuple(reads), shape=(4,),
                              module=f"net.layers.{at}"))  # fmt: skip
    nodes.append(Node("g.last", "last", "aten.sum.default", "compute", (f"g.n{2 * count}",)))
    return Graph("g", "forward", "", tuple(nodes))


@pytest.mark.parametrize("skip", [0, 1])
def test_equal_modules_in_a_row_are_folded(skip: int) -> None:
    drawing = one(layered(48, skip=skip))
    check(drawing)
    (repeat,) = [Group(each) for each in drawing["groups"] if each["kind"] == "repeat"]
    assert repeat["label"].endswith("×48" if not skip else "×47") and repeat["open"]
    inner = [drawing["groups"][-item.ref] for item in repeat.items]
    assert [each.get("open", False) for each in inner] == [True, *[False] * (len(inner) - 1)]


def test_a_module_that_is_another_ends_a_fold() -> None:
    drawing = one(layered(9, odd=4))
    check(drawing)
    labels = [each["label"] for each in drawing["groups"] if each["kind"] in ("repeat", "module")]
    assert [each for each in labels if "×" in each] == ["layers.0 – layers.3 ×4", "layers.5 – layers.8 ×4"]
    assert "layers.4" in labels


def test_two_alike_are_no_fold_and_hundreds_are_several() -> None:
    kinds = [each["kind"] for each in one(layered(2))["groups"]]
    assert "repeat" not in kinds
    drawing = one(layered(450))
    check(drawing)
    assert [each["label"][-4:] for each in drawing["groups"] if each["kind"] == "repeat"] == [
        "×200",
        "×200",
        " ×50",
    ]


def test_a_node_without_a_module_stays_with_its_neighbours() -> None:
    paths = ["a.x", "a.x", "", "a.y", "a.y", "", "b", "b"]
    root = grouped([Box(n, path=module_path(path)) for n, path in enumerate(paths)], "g", "ops")
    a = next(box for box in root.groups() if box.label == "a")
    assert [box.ref for box in a.nodes()] == [0, 1, 2, 3, 4]
    assert [box.label for box in root.inner] == ["a", "", "b"], "between two modules it belongs to none"


def test_many_ops_of_no_module_are_grouped_by_line() -> None:
    graph = chain(200)
    nodes = tuple(dataclasses.replace(n, spans=(Span(2 + i // 20),)) for i, n in enumerate(graph.nodes))
    drawing = one(dataclasses.replace(graph, nodes=nodes))
    groups = check_plain(graph, drawing)
    assert [group["label"] for group in groups[1:4]] == ["line 2", "line 3", "line 4"]
    assert {group["kind"] for group in groups[1:]} == {"line"}


def test_no_level_holds_a_thousand_boxes() -> None:
    graph = chain(5000)
    groups = check_plain(graph, one(graph))
    assert max(len(group.items) for group in groups) <= MAX_CHILDREN + 1
    assert groups[-1]["kind"] == "part" and groups[-1]["label"].endswith("ops")


def test_a_loop_computed_in_two_kernels_is_in_both() -> None:
    loops = tuple(
        Node(f"g.l{n}", f"v{n}", "mul", "pointwise", inputs, bytes=64)
        for n, inputs in enumerate([(), ("g.l0",), ("g.l0",)])
    )
    fused = tuple(Node(f"g.k{n}", f"k{n}", "mul", "kernel", (), ("g.l0", f"g.l{n + 1}")) for n in (0, 1))
    kernels = tuple(
        Kernel(f"g.k{n}", f"k{n}", "g.fused", ("g.l0", f"g.l{n + 1}"), "pointwise", {}, recomputed=("g.l0",))
        for n in (0, 1)
    )
    graphs = (Graph("g.loops", "loops", "", loops), Graph("g.fused", "fused", "", fused, parent="g.loops"))
    record = Compilation("x", graphs=graphs, kernels=kernels)
    check_all(record)
    groups = [Group(packed) for packed in drawings(record)["g.fused"]["groups"]]
    assert [sorted(item.ref - 2 for item in group.items) for group in groups[1:]] == [[0, 1], [0, 2]]
    assert all(pairs([group]) for group in groups[1:])


def test_what_is_not_drawn_is_said() -> None:
    kinds: list[Any] = ["input", "input", "constant", "compute", "output"]
    names = ["l_x_", "l_self_parameters_w_", "c", "y", "out"]
    nodes = tuple(
        Node(
            f"g.n{n}",
            name,
            "aten.add.Tensor",
            kind,
            tuple(f"g.n{i}" for i in range(n) if n > 2),
            shape=(2, 3),
        )
        for n, (kind, name) in enumerate(zip(kinds, names, strict=True))
    )
    drawing = one(Graph("g", "fx", "", nodes))
    assert drawing["left_out"] == ["1 parameter not drawn", "1 constant not drawn"]
    assert drawing["labels"] == ["x [2,3]", "", "", "add", ""]
    assert drawing["fates"] == "---c-"


BAD_NODES = {
    "cycle": [("a", ("b",)), ("b", ("a",))],
    "self": [("a", ("a",)), ("b", ("a", "a"))],
    "dangling": [("a", ("gone",)), ("b", ("a", "gone"))],
    "one id twice": [("a", ()), ("a", ()), ("b", ("a",))],
    "no name": [("", ()), ("b", ("",))],
}


@pytest.mark.parametrize("name", list(BAD_NODES))
def test_graphs_that_are_none_are_drawn_all_the_same(name: str) -> None:
    nodes = tuple(Node(id, id, "op", "compute", inputs) for id, inputs in BAD_NODES[name])
    groups = check(one(Graph("g", "forward", "", nodes)))
    assert len([item for group in groups for item in group.items]) == len(nodes)


@pytest.mark.parametrize("graph", [Graph("g", "fx", ""), Graph("g", "fused", "", parent="g"), chain(0)])
def test_nothing_to_draw(graph: Graph) -> None:
    assert one(graph)["groups"] == []


def test_texts_of_any_length_and_depth() -> None:
    graph = chain(30, module=".".join(["m" * 500] * 300))
    nodes = tuple(dataclasses.replace(n, name="n" * 9000, op="o" * 9000, module=n.module + f".{i // 3}")
                  for i, n in enumerate(graph.nodes))  # fmt: skip
    drawing = one(dataclasses.replace(graph, nodes=nodes))
    check(drawing)
    assert len(json.dumps(drawing)) < 20_000
    assert len(module_path("a." * 100_000)) == MAX_DEPTH


def test_kernels_without_their_loops_are_plain_boxes() -> None:
    """Records of other versions, or damaged ones: no loop graph, or kernels whose loops are not in it."""
    whole = fixtures.transformer()
    for graphs in (whole.graphs[:2] + whole.graphs[3:], whole.graphs[3:]):
        record = dataclasses.replace(whole, graphs=graphs)
        drawing = drawings(record)["g0.fw.fused"]
        assert {group["kind"] for group in drawing["groups"]} <= {"root", "module"}
        check_fused(record, record.graph("g0.fw.fused"), drawing)
    lost = tuple(dataclasses.replace(kernel, loops=("nowhere",)) for kernel in whole.kernels)
    check(drawings(dataclasses.replace(whole, kernels=lost))["g0.fw.fused"])


def test_a_record_of_very_many_nodes_is_not_drawn_and_says_so() -> None:
    drawing = one(chain(MAX_NODES + 1))
    assert drawing["groups"] == [] and drawing["left_out"] == [f"{MAX_NODES + 2:,} nodes: too many to draw"]


def many(shape: str, count: int) -> Graph:
    if shape == "modules":
        return fixtures.large(count).graphs[0]
    graph = chain(count)
    inputs = {
        "chain": lambda place: graph.nodes[place].inputs,
        "fan out": lambda place: ("g.n0",) if place else (),
        "fan in": lambda place: tuple(node.id for node in graph.nodes[:-1]) if place == count else (),
    }[shape]
    nodes = tuple(dataclasses.replace(node, inputs=inputs(place)) for place, node in enumerate(graph.nodes))
    return dataclasses.replace(graph, nodes=nodes)


@pytest.mark.nightly
@pytest.mark.parametrize("shape", ["modules", "chain", "fan out", "fan in"])
def test_ten_thousand_nodes_in_about_a_second_and_600_kb(shape: str) -> None:
    graph = many(shape, 10_000)
    gc.collect()
    gc.freeze()  # or each collection walks what the whole suite has left: 3.0 s instead of 0.8 were seen
    try:
        times = []
        while len(times) < 3 and min(times, default=math.inf) > 2.0:
            start = time.process_time()
            drawing = one(graph)
            times.append(time.process_time() - start)
    finally:
        gc.unfreeze()
    assert min(times) < 8.0, "0.8 to 3.2 s by the machine, where nothing else runs"
    if shape != "fan in":  # each value has a line of its own through all levels, to the one that reads it
        assert len(json.dumps(drawing, separators=(",", ":"), ensure_ascii=False)) < 600_000
    check_plain(graph, drawing)
