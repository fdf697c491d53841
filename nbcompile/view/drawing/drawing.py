"""What a picture of a graph shows: boxes in boxes and arrows, few enough to read.

The fused graph draws kernels as boxes that hold their loops; the captured graph draws runs of ops that come
from one cell line (or one module) as boxes that hold those ops. A graph too large for that is collapsed:
first boxes lose their contents, then neighbours merge by module path, then by equal runs. Runs of a
topological order are merged only with their neighbours, so the collapsed graph has no cycles either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from nbcompile.record.compilation import Compilation, Graph, Kernel, Node
from nbcompile.record.provenance import Links
from nbcompile.units import clip, clip_middle, count_text, percent_text, shape_text
from nbcompile.view.facts.facts import PLAIN, Call, call_size, is_parameter, short_id, short_op, stage_graphs
from nbcompile.view.html.styles import FATES

MAX_BOXES = 300
MAX_OUTER = 120
"""Outer boxes of one picture: more are merged."""
MAX_INNER = 24
MAX_INPUTS = 8
LABEL = 26


@dataclass(frozen=True)
class Box:
    """``fate`` selects the colour; ``note`` stands at the right of the title, ``detail`` is the tooltip."""

    id: str
    label: str
    fate: str
    note: str = ""
    detail: str = ""
    inner: tuple[Box, ...] = ()
    inner_edges: tuple[tuple[str, str], ...] = ()
    more: int = 0


@dataclass(frozen=True)
class Drawing:
    """``left_out`` says in words what is not drawn; ``description`` serves readers who see no picture."""

    boxes: tuple[Box, ...]
    edges: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...] = ()
    description: str = ""


def fused_drawing(
    compilation: Compilation, graph: Graph, calls: Sequence[Call], links: Links, limit: int = MAX_BOXES
) -> Drawing:
    """The fused graph: kernels with their loops, library calls, fallbacks, and the inputs they read."""
    by_id = {call.id: call for call in calls}
    loops = {node.id: node for stage in stage_graphs(compilation, "loops") for node in stage.nodes}
    kernels = {kernel.id: kernel for kernel in compilation.kernels}

    def box(node: Node) -> Box:
        call = by_id.get(node.id)
        fate = call.fate if call else _fate_of_kind(node)
        note = f"{call_size(call)} · {percent_text(call.share)}" if call and call.share else ""
        kernel = kernels.get(node.id)
        if kernel is None:
            label = short_op(node.op or node.name)
            return Box(node.id, clip(label, LABEL), fate, "", _detail(node, note))
        label = kernel_label(compilation, kernel)
        held = [loops[id] for id in kernel.loops if id in loops]
        inner = tuple(Box(n.id, loop_label(n), "loop", "", _detail(n)) for n in held[:MAX_INNER])
        return Box(node.id, label, fate, note, _detail(node, note), inner, _inside(held[:MAX_INNER]),
                   max(0, len(kernel.loops) - len(inner)))  # fmt: skip

    modules = {
        node.id: next((loops[i].module for i in _loops_of(node, kernels) if i in loops), "") or node.module
        for node in graph.nodes
    }  # fmt: skip
    noun, title = "{} kernels and calls", f"fused graph {graph.id}"
    known = captured_inputs(links, graph)
    return _draw(graph, box, lambda node: modules[node.id], limit, noun, count_calls, title, known)


def fx_drawing(
    graph: Graph, fates: Mapping[str, str], chips: Mapping[str, str], limit: int = MAX_BOXES
) -> Drawing:
    """The captured graph, ops gathered by the cell line they came from, coloured by what became of them.

    ``fates`` and ``chips`` (labels of kernels and calls) are keyed by node id.
    """
    work = [node for node in graph.nodes if node.kind not in PLAIN]

    def op_box(node: Node) -> Box:
        chip = chips.get(node.id, "")
        return Box(node.id, clip(short_op(node.op or node.name), 20), fates.get(node.id, "captured"), "",
                   _detail(node, f"→ {chip}" if chip else ""))  # fmt: skip

    if len(work) > limit:
        title = f"captured graph {graph.id}"
        return _draw(graph, op_box, lambda node: node.module, limit, "{} ops", _ops, title)
    runs = _runs(work, _place)
    boxes, owner = [], {}
    for number, (place, nodes) in enumerate(runs):
        name = f"{graph.id}.run{number}"
        owner.update({node.id: name for node in nodes})
        if len(nodes) == 1 and len(runs) > 1:
            only = op_box(nodes[0])
            boxes.append(Box(name, only.label, only.fate, clip(place, 14), only.detail))
            continue
        inner = tuple(op_box(node) for node in nodes[:MAX_INNER])
        title, more = clip(place, LABEL) or "ops", max(0, len(nodes) - MAX_INNER)
        boxes.append(Box(name, title, "group", "", "", inner, _inside(nodes[:MAX_INNER]), more))
    return _connected(graph, boxes, owner, f"captured graph {graph.id}")


def _draw(
    graph: Graph,
    box: Callable[[Node], Box],
    module: Callable[[Node], str],
    limit: int,
    noun: str,
    counted: Callable[[str, int], str],
    title: str,
    known: Mapping[str, Node] | None = None,
) -> Drawing:
    work = [node for node in graph.nodes if node.kind not in PLAIN]
    outer = max(8, min(limit, MAX_OUTER))
    if len(work) > outer:
        boxes, owner = _merged(work, box, module, outer, noun, counted)
        return _connected(graph, boxes, owner, title, known)
    boxes = [box(node) for node in work]
    if sum(1 + len(item.inner) for item in boxes) > limit:
        boxes = [replace(box, inner=(), inner_edges=(), more=0) for box in boxes]
    return _connected(graph, boxes, {node.id: node.id for node in work}, title, known)


def _merged(
    work: Sequence[Node],
    box: Callable[[Node], Box],
    module: Callable[[Node], str],
    outer: int,
    noun: str,
    counted: Callable[[str, int], str],
) -> tuple[list[Box], dict[str, str]]:
    """Neighbours with a common module path become one box, at the finest depth that fits; ``counted`` says
    how many of a fate are in it."""
    runs: list[tuple[str, list[Node]]] = []
    for depth in (8, 6, 5, 4, 3, 2, 1):
        runs = _runs(work, lambda node, depth=depth: ".".join(module(node).split(".")[:depth]))  # type: ignore[misc]
        if len(runs) <= outer:
            break
    if len(runs) > outer or len(runs) < 4:
        size = -(-len(work) // outer)
        runs = [("", list(work[start : start + size])) for start in range(0, len(work), size)]
    boxes, owner = [], {}
    for number, (path, nodes) in enumerate(runs):
        if len(nodes) == 1:
            boxes.append(box(nodes[0]))
            owner[nodes[0].id] = boxes[-1].id
            continue
        name = f"merged{number}"
        owner.update({node.id: name for node in nodes})
        fates: dict[str, int] = {}
        for node in nodes:
            fate = box(node).fate
            fates[fate] = fates.get(fate, 0) + 1
        made = made_words(fates, counted)
        label = clip(path[-LABEL:] if path else noun.format(len(nodes)), LABEL + 4)
        main = max(fates, key=lambda fate: fates[fate])
        boxes.append(Box(name, label, main, made, f"{path} {made}"))
    return boxes, owner


def made_words(fates: Mapping[str, int], counted: Callable[[str, int], str]) -> str:
    """``2 kernels + 1 call``: how many of each fate, in the words of ``counted``."""
    return " + ".join(counted(fate, fates[fate]) for fate in sorted(fates, key=FATES.index))


def count_calls(fate: str, count: int) -> str:
    words = {"fused": "kernel", "library": "call", "fallback": "fallback"}
    return count_text(count, words.get(fate, "op"))


def _ops(fate: str, count: int) -> str:
    """Of captured ops, of which many make one kernel."""
    return f"{count:,} {fate}"


def _runs(nodes: Sequence[Node], key: Callable[[Node], str]) -> list[tuple[str, list[Node]]]:
    """Maximal runs of neighbours with an equal key."""
    runs: list[tuple[str, list[Node]]] = []
    for node in nodes:
        name = key(node)
        if not runs or runs[-1][0] != name:
            runs.append((name, []))
        runs[-1][1].append(node)
    return runs


def captured_inputs(links: Links, graph: Graph) -> dict[str, Node]:
    """For the inputs of a loop or fused graph, the captured inputs that they are. Below AOTAutograd inputs
    are called ``primals_3``; their graph's ATen graph has a node of that name, whose origins say which
    argument or parameter it is. Saved tensors and tangents of a backward graph are nobody's argument."""
    nodes = links.nodes
    above = links.graphs.get(graph.parent)
    if above is not None and above.stage == "loops":
        above = links.graphs.get(above.parent)
    names = {node.name: node for node in above.nodes if node.kind == "input"} if above else {}
    out = {}
    for node in graph.nodes:
        here, steps = names.get(node.name, node), 0
        while here.kind == "input" and here.origins and here.origins[0] in nodes and steps < len(_STAGES):
            here, steps = nodes[here.origins[0]], steps + 1
        if here.kind == "input" and here is not node and not here.origins:
            out[node.id] = here
    return out


_STAGES = ("fx", "joint", "forward", "backward", "loops", "fused")


def _connected(
    graph: Graph,
    boxes: Sequence[Box],
    owner: Mapping[str, str],
    title: str,
    known: Mapping[str, Node] | None = None,
) -> Drawing:
    """Add the inputs worth drawing, and the edges between boxes, through views that are not drawn."""
    known = known or {}
    inputs = [node for node in graph.nodes if node.kind == "input"]
    constants = sum(1 for node in graph.nodes if node.kind == "constant")
    used = {source for node in graph.nodes for source in node.inputs}
    shown = [node for node in inputs if node.id in used and not is_parameter(known.get(node.id, node))]
    if len(shown) > MAX_INPUTS:
        # The arguments and tangents first; the rest are tensors saved for the backward pass.
        named = [node for node in shown if node.id in known or node.name.startswith("tangents")]
        shown = (named if graph.id.endswith(".bw.fused") else shown)[:MAX_INPUTS]
    edges = _edges(graph, {**owner, **{node.id: node.id for node in shown}}, owner)
    pills = [Box(n.id, input_label(known.get(n.id, n)), "input", "", _detail(n)) for n in shown]
    left_out = left_out_words([node for node in inputs if node not in shown], constants, known)
    words = f"{title}: {count_text(len(owner), 'node')} in {count_text(len(boxes), 'box', 'boxes')}"
    return Drawing((*pills, *boxes), edges, left_out, clip(words, 200))


def left_out_words(hidden: Sequence[Node], constants: int, known: Mapping[str, Node]) -> tuple[str, ...]:
    """What is not drawn: these inputs, of which ``known`` are captured ones, and a number of constants."""
    parameters = sum(1 for node in hidden if is_parameter(known.get(node.id, node)))
    counts = {"parameter": parameters, "other input": len(hidden) - parameters, "constant": constants}
    return tuple(f"{count_text(count, noun)} not drawn" for noun, count in counts.items() if count)


def _edges(graph: Graph, drawn: Mapping[str, str], targets: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Edges between boxes, where ``drawn`` names the box of a node. What is not drawn is looked through;
    nodes come in topological order, so what a node's value comes from is known when it is read."""
    comes_from: dict[str, dict[str, None]] = {}
    edges: dict[tuple[str, str], None] = {}
    for node in graph.nodes:
        found: dict[str, None] = {}
        for id in node.inputs:
            found.update({drawn[id]: None} if id in drawn else comes_from.get(id, {}))
        comes_from[node.id] = found
        if target := targets.get(node.id):
            edges.update({(source, target): None for source in found if source != target})
    return tuple(edges)


def kernel_label(compilation: Compilation, kernel: Kernel) -> str:
    """``k0 add_layer_norm``."""
    return clip(f"{short_id(compilation, kernel.id)} {kernel.name}", LABEL + 4)


def loop_label(node: Node) -> str:
    """The name of a loop, the end of it where it is long."""
    return clip_middle(node.name.removeprefix("native_").lstrip("_") or node.name, 18)


def _inside(nodes: Sequence[Node]) -> tuple[tuple[str, str], ...]:
    known = {node.id for node in nodes}
    return tuple((source, node.id) for node in nodes for source in node.inputs if source in known)


def _place(node: Node) -> str:
    """``line 3`` of the cell, else the module path's last parts, else ``model.py:7``, else nothing."""
    for span in node.spans[:1]:
        if not span.file:
            return f"line {span.line}"
        if not node.module:
            return f"{span.file.rsplit('/', 1)[-1]}:{span.line}"
    return ".".join(node.module.split(".")[-2:])


def input_label(node: Node) -> str:
    """Name and shape; Dynamo calls the argument ``x`` ``l_x_`` or ``L_x_``."""
    name = node.name
    if name[:2] in ("l_", "L_") and name.endswith("_") and len(name) > 3:
        name = name[2:-1]
    return clip(f"{name} {shape_text(None, node.shape)}".strip(), LABEL)


def _detail(node: Node, note: str = "") -> str:
    parts = (node.id, node.op, shape_text(node.dtype, node.shape), note, node.note)
    return clip(" · ".join(part for part in parts if part), 160)


def _fate_of_kind(node: Node) -> str:
    return {"kernel": "fused", "library": "library", "fallback": "fallback"}.get(node.kind, "captured")


def _loops_of(node: Node, kernels: Mapping[str, Kernel]) -> tuple[str, ...]:
    return kernels[node.id].loops if node.id in kernels else node.origins
