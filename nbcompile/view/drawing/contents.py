"""What is drawn of a graph, before any of it has a place: boxes in groups, and what reads what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nbcompile.record.compilation import Compilation, Graph, Kernel, Node
from nbcompile.record.provenance import Links
from nbcompile.units import clip, clip_middle, count_text, shape_text
from nbcompile.view.drawing.folding import fold
from nbcompile.view.drawing.tree import Box, close, grouped, limit, module_path, opened
from nbcompile.view.facts.facts import is_parameter, short_id, short_op
from nbcompile.view.facts.titles import graph_title

NOT_DRAWN = ("constant", "output")
MAX_ARGUMENTS = 12
"""Up to this many arguments of forward stand at the top; more, and saved tensors, where they are read."""
MAX_EDGES = 30_000
MAX_INPUTS = 24
"""Inputs of one group: more are put in a group of their own."""
LABEL = 26
FIRST_SHOWN = 64
"""Boxes that are to be seen at first."""


@dataclass(frozen=True)
class Extent:
    """How much a drawing has: by default what the explorer shows, where all can be opened.

    ``boxes`` are to be seen at first; in a ``still`` picture, where nothing opens, there are no others, nor
    views, and of the inputs only the first ``inputs``. ``width`` of a row, in pixels; ``lines``: grouped by
    line of the source alone. ``notes`` are beside the titles of kernels, by their ids.
    """

    boxes: int = FIRST_SHOWN
    still: bool = False
    inputs: int | None = None
    width: float = 640.0
    lines: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Contents:
    """The tree of boxes, and pairs of boxes of which the second reads the first. Either may be a kernel as a
    whole, where the record does not tell which of its loops it is. ``labels`` has one a node of the graph,
    ``opened`` the groups that are open at first."""

    root: Box
    opened: set[Box]
    edges: Sequence[tuple[Box, Box]]
    labels: Sequence[str]
    left_out: tuple[str, ...]


def contents(
    compilation: Compilation, graph: Graph, inner: Graph | None, links: Links, extent: Extent
) -> Contents:
    """What is drawn of ``graph``; ``inner`` has the loops of its kernels."""
    known = captured_inputs(links, graph)
    read = {id for node in graph.nodes for id in node.inputs}
    held = [node for node in graph.nodes if node.kind == "input"]
    backward = any(node.name.startswith("tangents") for node in held)
    wanted = [node for node in held if node.id in read and not is_parameter(known.get(node.id, node))]
    if extent.inputs is not None and len(wanted) > extent.inputs:
        # The arguments and tangents first; the rest are tensors saved for the backward pass.
        named = [node for node in wanted if node.id in known or node.name.startswith("tangents")]
        wanted = (named if backward else wanted)[: extent.inputs]
    shown = {node.id for node in wanted}
    maker = _Maker(compilation, graph, inner, links, known, extent)
    boxes, inputs = maker.boxes(shown)
    edges = maker.edges()
    more, edges = max(0, len(edges) - MAX_EDGES), edges[:MAX_EDGES]
    title = graph_title(compilation, graph)
    noun = {"loops": "loops", "fused": "kernels and calls"}.get(graph.stage, "ops")
    folding = None if extent.still else lambda root: fold(root, edges, maker.kind_of)
    root = grouped(boxes, title, noun, lines=extent.lines, flat=extent.still, fold=folding)
    if extent.still and graph.stage == "fx":
        _tell_places(root, maker.labels, lines=extent.lines)
    arguments = [b for b in inputs if not backward and (graph.nodes[b.ref].id in known or not graph.parent)]
    _place_inputs(root, inputs, arguments if len(arguments) <= MAX_ARGUMENTS else (), edges)
    constants = sum(1 for node in graph.nodes if node.kind == "constant")
    hidden = [node for node in held if node.id not in shown]
    left_out = left_out_words(hidden, constants, known)
    left_out += (f"{count_text(more, 'edge')} not drawn",) if more else ()
    first = opened(root, extent.boxes)
    if extent.still:
        close(root, first)
    return Contents(root, first, edges, maker.labels, left_out)


class _Maker:
    """Makes the boxes of a graph's nodes, and finds what they read."""

    def __init__(
        self,
        compilation: Compilation,
        graph: Graph,
        inner: Graph | None,
        links: Links,
        known: Mapping[str, Node],
        extent: Extent,
    ) -> None:
        self.extent = extent
        self.compilation, self.graph, self.links, self.known = compilation, graph, links, known
        self.loops = inner.nodes if inner else ()
        self.loop_places = {node.id: place for place, node in reversed(list(enumerate(self.loops)))}
        self.of_node: dict[str, Box] = {}
        self.of_loop: dict[str, dict[str, Box]] = {}
        """For each loop, the box that it stands in or is, by the node of this graph that it belongs to."""
        self.labels: list[str] = []

    def boxes(self, inputs: set[str]) -> tuple[list[Box], list[Box]]:
        """The boxes of what works, in order, and those of the given inputs."""
        out: list[Box] = []
        at_top: list[Box] = []
        for place, node in enumerate(self.graph.nodes):
            drawn = node.id in inputs if node.kind == "input" else node.kind not in NOT_DRAWN
            view = node.kind == "view" and self.extent.still
            self.labels.append(self._label(node) if drawn and not view else "")
            if view:  # what reads it reads what it is a view of
                source = next((self.of_node[id] for id in node.inputs if id in self.of_node), None)
                if source is not None:
                    self._keep(node, source, self._held(node))
            elif drawn:
                box = self._box(place, node)
                (at_top if node.kind == "input" else out).append(box)
        return out, at_top

    def _label(self, node: Node) -> str:
        if node.kind == "input":
            return input_label(self.known.get(node.id, node))
        if kernel := self._kernel(node):
            return kernel_label(self.compilation, kernel)
        if self.graph.stage == "loops" and node.kind not in ("library", "fallback"):
            return loop_label(node)
        return clip(short_op(node.op or node.name), 20)

    def _box(self, place: int, node: Node) -> Box:
        box = Box(place, label=self.labels[place], path=self._path(node), line=_line(node))
        held = self._held(node)
        if self._kernel(node) and (len(held) > 1 or (held and node.id in self.extent.notes)):
            box.kind, box.name = "kernel", node.id
            start = len(self.graph.nodes)
            box.inner = [Box(start + at, label=loop_label(self.loops[at]), line=_line(self.loops[at]))
                         for at in held]  # fmt: skip
        self._keep(node, box, held)
        return box

    def kind_of(self, box: Box) -> tuple[object, ...]:
        """What a box that is no group has in common with those of equal modules."""
        start = len(self.graph.nodes)
        node = self.graph.nodes[box.ref] if box.ref < start else self.loops[box.ref - start]
        # A kernel's name counts kernels of that name: its loops say what it does.
        within = [self.loops[at] for at in self._held(node)] if node.kind == "kernel" else [node]
        return (node.kind, *((each.op, each.shape, each.dtype) for each in within))

    def _keep(self, node: Node, box: Box, held: Sequence[int]) -> None:
        """``box`` stands for a node and its loops."""
        self.of_node.setdefault(node.id, box)
        inside = box.inner if len(box.inner) == len(held) else [box] * len(held)
        for at, leaf in zip(held, inside, strict=True):
            self.of_loop.setdefault(self.loops[at].id, {}).setdefault(node.id, leaf)

    def _kernel(self, node: Node) -> Kernel | None:
        return self.links.kernels.get(node.id) if node.kind == "kernel" else None

    def _held(self, node: Node) -> list[int]:
        """Places of the loops that a node of a fused graph stands for."""
        kernel = self._kernel(node)
        ids = kernel.loops if kernel else (node.id, *node.origins)
        return list(dict.fromkeys(self.loop_places[id] for id in ids if id in self.loop_places))

    def _path(self, node: Node) -> tuple[str, ...]:
        if node.module or node.kind == "input":
            return module_path(node.module)
        above = (self.links.nodes.get(id) for id in self.links.up(node.id))
        return module_path(next((each.module for each in above if each and each.module), ""))

    def edges(self) -> list[tuple[Box, Box]]:
        """In the order of the graph, each once. What a node reads that comes after it is left out."""
        out: dict[tuple[int, int], tuple[Box, Box]] = {}
        seen: set[str] = set()
        for node in self.graph.nodes:
            box = self.of_node.get(node.id)
            if box is not None and node.id not in seen:
                pairs = self._inside(node, box, seen) if self.loops else []
                found = {id for id, _, _ in pairs}
                pairs += [(id, self.of_node[id], box) for id in node.inputs if id in seen and id not in found]
                for _, source, target in pairs:
                    if source is not target:
                        out.setdefault((id(source), id(target)), (source, target))
                seen.add(node.id)
        return list(out.values())

    def _inside(self, node: Node, box: Box, seen: set[str]) -> list[tuple[str, Box, Box]]:
        """What the loops of a node of a fused graph read: the node that made it (its own id for another of
        its loops), the box that made it and the box that reads it."""
        out = []
        for at in self._held(node):
            loop = self.loops[at]
            target = self.of_loop[loop.id][node.id]
            for id in loop.inputs:
                makers = self.of_loop.get(id, {})
                place = self.loop_places.get(id)
                if node.id in makers and place is not None and place < at:
                    out.append((node.id, makers[node.id], target))
                    continue
                source = next((each for each in node.inputs if each in makers and each in seen), None)
                if source is not None:
                    out.append((source, makers[source], target))
        return out


def _line(node: Node) -> str:
    """``line 3`` of the cell, else ``model.py:7``, else nothing."""
    for span in node.spans[:1]:
        return f"{span.file.rsplit('/', 1)[-1]}:{span.line}" if span.file else f"line {span.line}"
    return ""


def _tell_places(root: Box, labels: list[str], *, lines: bool) -> None:
    """An op that stands alone of its line or module says which it is."""
    for group in root.groups():
        for box in group.inner:
            alone = group is root if lines else len(box.path) > len(group.path)
            place = box.line if lines else (box.path or ("",))[-1]
            if box.kind is None and alone and place:
                box.label = labels[box.ref] = f"{clip(place, 20)}: {box.label}"


def _place_inputs(
    root: Box, inputs: Sequence[Box], arguments: Sequence[Box], edges: Sequence[tuple[Box, Box]]
) -> None:
    """Put arguments into the root, and each other input into the innermost group that holds all its readers,
    but not into kernels."""
    readers: dict[int, list[Box]] = {}
    for source, target in edges:
        readers.setdefault(id(source), []).append(target)
    at_root = {id(box) for box in arguments}
    added: dict[int, tuple[Box, list[Box]]] = {}
    for box in inputs:
        ways = [reader.way_down() for reader in readers.get(id(box), ())]
        group = root
        if id(box) not in at_root and ways:
            for level in zip(*(way[:-1] for way in ways), strict=False):
                if any(each is not level[0] for each in level) or level[0].kind == "kernel":
                    break
                group = level[0]
        if group.kind == "repeat" and group.outer is not None:  # of all of them
            group = group.outer
        added.setdefault(id(group), (group, []))[1].append(box)
    for group, boxes in added.values():
        if len(boxes) > MAX_INPUTS:
            held = Box(kind="part", label=f"{len(boxes):,} inputs", name="inputs", inner=boxes)
            limit(held, "inputs")
            boxes = [held]
        for box in boxes:
            box.outer = group
        group.inner = [*boxes, *group.inner]


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


def left_out_words(hidden: Sequence[Node], constants: int, known: Mapping[str, Node]) -> tuple[str, ...]:
    """What is not drawn: these inputs, of which ``known`` are captured ones, and a number of constants."""
    parameters = sum(1 for node in hidden if is_parameter(known.get(node.id, node)))
    counts = {"parameter": parameters, "other input": len(hidden) - parameters, "constant": constants}
    return tuple(f"{count_text(count, noun)} not drawn" for noun, count in counts.items() if count)


def kernel_label(compilation: Compilation, kernel: Kernel) -> str:
    """``k0 add_layer_norm``."""
    return clip(f"{short_id(compilation, kernel.id)} {kernel.name}", LABEL + 4)


def loop_label(node: Node) -> str:
    """The name of a loop, the end of it where it is long."""
    return clip_middle(node.name.removeprefix("native_").lstrip("_") or node.name, 18)


def input_label(node: Node) -> str:
    """Name and shape; Dynamo calls the argument ``x`` ``l_x_`` or ``L_x_``."""
    name = node.name
    if name[:2] in ("l_", "L_") and name.endswith("_") and len(name) > 3:
        name = name[2:-1]
    return clip(f"{name} {shape_text(None, node.shape)}".strip(), LABEL)


_STAGES = ("fx", "joint", "forward", "backward", "loops", "fused")


def tooltips(graph: Graph, inner: Graph | None, notes: Mapping[str, str]) -> dict[int | str, str]:
    """A line on each node, by its ref in the drawing and by its id (of a kernel); ``notes`` by id too."""
    out: dict[int | str, str] = {}
    for ref, node in enumerate((*graph.nodes, *(inner.nodes if inner else ()))):
        parts = (node.id, node.op, shape_text(node.dtype, node.shape), notes.get(node.id, ""), node.note)
        out[ref] = out[node.id] = clip(" · ".join(part for part in parts if part), 160)
    return out
