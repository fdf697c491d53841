"""The nested drawing of a graph: boxes in groups in groups, laid out once, opened and closed by whoever
shows it.

Each group is laid out by itself, from the innermost outwards, by :mod:`nbcompile.view.drawing.layout`: in
rows from top to bottom. Where a box stands across (x) is fixed; how far down follows from which groups are
open, since the height of a row is that of its tallest item. So opening a group needs no new layout.

Heights, in pixels: a node is :data:`NODE_HEIGHT`, a closed group :data:`CLOSED_HEIGHT`; an open group is
its title and its rows, :data:`ROW_GAP` apart. Items stand in the middle of their row.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from nbcompile.record.compilation import Compilation, Graph, Node
from nbcompile.record.provenance import Links
from nbcompile.units import clip, count_text
from nbcompile.view.drawing.contents import Contents, Extent, contents
from nbcompile.view.drawing.layout import Item, layered, meeting_x
from nbcompile.view.drawing.svg import label_width, title_width
from nbcompile.view.drawing.tree import Box, GroupKind
from nbcompile.view.facts.facts import PLAIN, Call, fates_of, stage_graphs
from nbcompile.view.facts.titles import graph_title
from nbcompile.view.html.styles import FATES

NODE_HEIGHT = 24
CLOSED_HEIGHT = 28
ROW_GAP = 26


@dataclass(frozen=True)
class DrawnGroup:
    """A box that holds others. ``parent`` is its place in the drawing's list of groups (-1: the root's).

    ``id`` is that of the kernel for a kernel, else the graph's with the path of the group. ``note`` says
    what is in it, ``fate`` what became of most of that. ``open``: whether to show its contents at first.
    ``width`` in pixels, open or closed.

    ``rows``, from top to bottom: each is ``[ref, x, width, ref, x, width, ...]`` from left to right, x the
    centre of an item in pixels from the group's left edge. A ref of 0 or more is a node (see
    :class:`Drawing`), a negative one is the group at the place ``-ref``. Items of a group are numbered
    through its rows, from 0.

    ``edges``: each is ``[value, from, to, x, x, ...]``. ``value`` is the ref of the node whose result it
    carries, ``from`` and ``to`` are numbers of items in this group; -1 is the group's own border, its top
    for ``from``, its bottom for ``to``: the edge goes on in the group around it, at the same x. The first x
    is where it leaves the bottom of ``from``, the last where it meets the top of ``to``, those between are
    where it passes the rows between, straight. An edge of a kernel as a whole, where the record does not
    tell which of its loops it is, ends at the kernel's border.

    ``first``: what the refs of nodes, in ``rows`` and as an edge's ``value``, are counted from. It is the
    least of them in a payload (:func:`counted_from_first`), where equal layers read alike then.
    """

    id: str
    parent: int
    label: str
    kind: GroupKind
    width: int
    rows: tuple[tuple[int, ...], ...]
    edges: tuple[tuple[int, ...], ...] = ()
    fate: str = ""
    note: str = ""
    open: bool = False
    first: int = 0


@dataclass(frozen=True)
class Drawing:
    """A graph of the record as nested groups; ``groups[0]`` is all of it. No groups and no labels where
    there is nothing to draw, or too much.

    A node's ref is its place in the graph's list of nodes. In the drawing of a fused graph, kernels hold
    the loops of the graph ``inner``: there the ref is the loop's place in that graph's list plus the number
    of nodes of this graph. One loop may be in several kernels. ``labels`` has the text of each node's box,
    by its place in the graph; an empty one for a node that is not drawn. ``fates``, by the same places,
    says what became of each: f fused, l library call, b fallback, c captured (the record says no more), -
    no work of its own. ``left_out`` says in words what is not drawn, ``description`` what is, for readers
    who see no picture.
    """

    graph: str
    title: str
    inner: str
    groups: tuple[DrawnGroup, ...]
    labels: tuple[str, ...]
    fates: str
    left_out: tuple[str, ...]
    description: str


def counted_from_first(group: DrawnGroup) -> DrawnGroup:
    """The group with its nodes' refs counted from the least of them."""
    nodes = [ref for row in group.rows for ref in row[::3] if ref >= 0] + [edge[0] for edge in group.edges]
    first = min(nodes, default=0)
    rows = (
        tuple(each - first if not n % 3 and each >= 0 else each for n, each in enumerate(row))
        for row in group.rows
    )
    edges = ((value - first, *rest) for value, *rest in group.edges)
    return replace(group, rows=tuple(rows), edges=tuple(edges), first=group.first + first)


MAX_NODES = 40_000
"""Nodes of all drawings of one record: the layout of 10,000 takes up to a second."""
BESIDE = 200.0
"""Room beside a wide group, so that inputs stand near their readers, in pixels."""
PADDING = 12
MAX_PORTS = 40
"""Places at one border of a group where edges cross it: more edges share them."""
TOGGLE = 40.0
"""Room for what opens and closes a group, beside its title."""
_LETTER = {"fused": "f", "library": "l", "fallback": "b"}
_ORDER = ("fused", "fx", "loops", "forward", "backward", "joint")
"""Stages, those first that are drawn rather than others where not all can be."""


def drawings(compilation: Compilation, calls: tuple[Call, ...], links: Links) -> tuple[Drawing, ...]:
    """One for each graph of the record, in its order."""
    fates, loops = fates_of(calls, links), graphs_of_loops(compilation)
    room, made = MAX_NODES, {}
    order = sorted(enumerate(compilation.graphs), key=lambda pair: _ORDER.index(pair[1].stage))
    held: Counter[str] = Counter()
    for kernel in compilation.kernels:
        held[kernel.graph] += len(kernel.loops)
    for number, graph in order:
        size = len(graph.nodes) + (held[graph.id] if graph.stage == "fused" else 0)
        if size <= room:
            room -= size
            made[number] = drawing(compilation, graph, loops.get(graph.id), fates, links)
        else:
            words = f"{count_text(len(graph.nodes), 'node')}: too many to draw"
            title = graph_title(compilation, graph)
            made[number] = Drawing(graph.id, title, "", (), (), "", (words,), words)
    return tuple(made[number] for number in sorted(made))


def graphs_of_loops(compilation: Compilation) -> dict[str, Graph]:
    """For each fused graph by its id the graph that has the loops of its kernels, where there is one."""
    loops = {node.id: graph for graph in stage_graphs(compilation, "loops") for node in graph.nodes}
    out: dict[str, Graph] = {}
    for kernel in compilation.kernels:
        for id in kernel.loops:
            if id in loops:
                out.setdefault(kernel.graph, loops[id])
    return {graph.id: out[graph.id] for graph in stage_graphs(compilation, "fused") if graph.id in out}


def drawing(
    compilation: Compilation,
    graph: Graph,
    inner: Graph | None,
    fates: Mapping[str, str],
    links: Links,
    extent: Extent | None = None,
) -> Drawing:
    """One graph as nested groups. ``inner`` is the graph that has the loops of its kernels; ``fates`` says
    what became of nodes, by their ids."""
    extent = extent or Extent()
    held = contents(compilation, graph, inner, links, extent)
    letters = [_letter(node, fates) for node in graph.nodes]
    if not held.root.inner:
        groups: tuple[DrawnGroup, ...] = ()
    else:
        groups = _Layout(graph, held, letters, extent).groups()
    boxes = sum(1 for _ in held.root.nodes())
    words = f"{held.root.label}: {count_text(boxes, 'node')} in {count_text(len(groups), 'group')}"
    return Drawing(graph.id, graph_title(compilation, graph), inner.id if inner else "", groups,
                   tuple(held.labels), "".join(letters), held.left_out, clip(words, 200))  # fmt: skip


def _letter(node: Node, fates: Mapping[str, str]) -> str:
    return "-" if node.kind in PLAIN else _LETTER.get(fates.get(node.id, ""), "c")


@dataclass(eq=False)
class _Level:
    """A group while it is laid out: its edges as (value, from, to), ``None`` for its border, the x of
    values that come in at its top and go out at its bottom, and what it becomes."""

    box: Box
    edges: dict[tuple[Box, Box | None, Box | None], None] = field(default_factory=dict)
    top: dict[Box, int] = field(default_factory=dict)
    bottom: dict[Box, int] = field(default_factory=dict)
    width: int = 0
    note: str = ""
    fate: str = ""
    rows: tuple[tuple[int, ...], ...] = ()
    packed: tuple[tuple[int, ...], ...] = ()


class _Layout:
    """Lays out a tree of boxes from the innermost groups outwards."""

    def __init__(self, graph: Graph, held: Contents, letters: Sequence[str], extent: Extent) -> None:
        self.graph, self.held, self.letters, self.extent = graph, held, letters, extent
        self.levels = {box: _Level(box) for box in held.root.groups()}
        self.places = {box: place for place, box in enumerate(self.levels)}

    def groups(self) -> tuple[DrawnGroup, ...]:
        """All groups, outer ones before those in them."""
        for source, target in self.held.edges:
            self._lead(source, target)
        for level in reversed(self.levels.values()):
            level.note, level.fate = self._made(level.box)
            self._place(level)
        ids: dict[str, int] = {}
        out: list[DrawnGroup] = []
        for box, level in self.levels.items():
            parent = self.places[box.outer] if box.outer else -1
            name = self._id(box, out[parent].id if out else "", ids)
            kind = box.kind or "part"
            label, opened = clip(box.label, 60), box in self.held.opened
            out.append(DrawnGroup(name, parent, label, kind, level.width, level.rows, level.packed,
                                  level.fate, level.note, opened))  # fmt: skip
        return tuple(out)

    def _id(self, box: Box, parent: str, ids: dict[str, int]) -> str:
        """That of the kernel; else of the module or line; else by number within the group around it."""
        if box.kind == "kernel":
            name = box.name
        elif box.kind == "root":
            name = self.graph.id
        else:
            name = f"{self.graph.id}/{clip(box.name, 120)}" if box.name else f"{parent}/part"
        ids[name] = ids.get(name, 0) + 1
        return name if ids[name] == 1 else f"{name}#{ids[name]}"

    def _lead(self, source: Box, target: Box) -> None:
        """Add an edge to every group that it runs in: out of groups around its source, through the one that
        holds both ends, into groups around its target."""
        up, down = source.way_down(), target.way_down()
        apart = next((n for n, (a, b) in enumerate(zip(up, down, strict=False)) if a is not b), 0)
        if not apart:  # one is in the other
            return
        if self.extent.still:
            up, down = _to_kernel(up, apart), _to_kernel(down, apart)
        source = up[-1]
        for group, box in pairwise(up[apart:]):
            self.levels[group].edges[source, box, None] = None
        self.levels[up[apart - 1]].edges[source, up[apart], down[apart]] = None
        for group, box in pairwise(down[apart:]):
            self.levels[group].edges[source, None, box] = None

    def _made(self, box: Box) -> tuple[str, str]:
        """What is in a group, in words, and what became of most of it."""
        counts: dict[str, int] = {}
        words = {letter: fate for fate, letter in _LETTER.items()}
        for node in self._counted(box):
            letter = self.letters[node.ref] if node.ref < len(self.letters) else "f"
            if letter != "-":
                fate = words.get(letter, "captured")
                counts[fate] = counts.get(fate, 0) + 1
        fate = max(counts, key=lambda fate: counts[fate]) if counts else ""
        if box.kind == "kernel":
            note = count_text(len(box.inner), "loop") if box.inner else ""
            return self.extent.notes.get(box.name, note), "fused"
        if box.kind == "root" or not counts or (self.extent.still and not box.closed):
            return "", fate
        if self.graph.stage == "fused":
            nouns = {"fused": "kernel", "library": "call", "fallback": "fallback"}
            return _made_words(counts, lambda of, count: count_text(count, nouns.get(of, "op"))), fate
        if box.closed:  # many ops make one kernel
            return _made_words(counts, lambda of, count: f"{count:,} {of}"), fate
        return count_text(sum(counts.values()), "loop" if self.graph.stage == "loops" else "op"), fate

    def _counted(self, box: Box) -> Iterator[Box]:
        """Nodes, and kernels as one each."""
        for each in box.inner:
            if each.kind is None or each.kind == "kernel":
                yield each
            else:
                yield from self._counted(each)

    def _place(self, level: _Level) -> None:
        title = title_width(clip(level.box.label, 60), level.note) + TOGGLE
        if level.box.closed:
            level.width = _even(title)
            return
        names = {box: str(n) for n, box in enumerate(level.box.inner)}
        boxes = level.box.inner
        widths = [self._width(box) for box in boxes]
        top = _ports([value for value, source, _ in level.edges if source is None], "t")
        bottom = _ports([value for value, _, target in level.edges if target is None], "b")
        ends = {
            (value, source, target): (
                names[source] if source else top[value],
                names[target] if target else bottom[value],
            )
            for value, source, target in level.edges
        }
        laid = layered(
            {names[box]: float(width) for box, width in zip(boxes, widths, strict=True)},
            list(ends.values()),
            top=list(dict.fromkeys(top.values())),
            bottom=list(dict.fromkeys(bottom.values())),
            bend_gap=4.0,
            max_width=max(self.extent.width, max(widths) + BESIDE),
        )
        low = min(item.x - item.width / 2 for layer in laid.layers for item in layer)
        high = max(item.x + item.width / 2 for layer in laid.layers for item in layer)
        level.width = _even(max(high - low + 2 * PADDING, title if level.box.kind != "root" else 0.0))
        shift = (level.width - (high + low)) / 2
        for layer in laid.layers:
            for item in layer:
                item.x = round(item.x + shift)
        level.top = {value: int(laid.items[name].x) for value, name in top.items()}
        level.bottom = {value: int(laid.items[name].x) for value, name in bottom.items()}
        numbers: dict[str, int] = {}
        rows = []
        for layer in laid.layers:
            row: list[int] = []
            for item in layer:
                if not item.bend:
                    numbers[item.name] = len(numbers)
                    box = boxes[int(item.name)]
                    ref = -self.places[box] if box.kind is not None else box.ref
                    row += (ref, int(item.x), int(item.width))
            if row:
                rows.append(tuple(row))
        level.rows = tuple(rows)
        packed = []
        for (value, source, target), (above, below) in ends.items():
            chain = laid.chains.get((above, below))
            if chain is not None and chain[0].name == above:
                xs = self._xs(value, source, target, chain)
                packed.append((value.ref, numbers.get(above, -1), numbers.get(below, -1), *xs))
        level.packed = tuple(packed)

    def _width(self, box: Box) -> int:
        return self.levels[box].width if box.kind is not None else _even(label_width(box.label))

    def _xs(self, value: Box, source: Box | None, target: Box | None, chain: Sequence[Item]) -> Iterator[int]:
        """Where an edge leaves, passes the rows between, and arrives."""
        first = self._end(value, source, "bottom", chain[0], chain[1])
        last = self._end(value, target, "top", chain[-1], chain[-2])
        yield first
        between = chain[-1].layer - chain[0].layer - 1
        if len(chain) == between + 2:
            yield from (int(item.x) for item in chain[1:-1])
        else:
            yield from (first + (last - first) * (n + 1) // (between + 1) for n in range(between))
        yield last

    def _end(self, value: Box, box: Box | None, side: Literal["top", "bottom"], item: Item, on: Item) -> int:
        """At a group, where the edge goes on within; at a node, where it can run straight."""
        if box is not None and box.kind is not None:
            level = self.levels[box]
            x = (level.top if side == "top" else level.bottom).get(value)
            if x is not None:
                return int(item.x) - level.width // 2 + x
        return int(item.x) if item.bend else round(meeting_x(item, on))


def _to_kernel(way: list[Box], start: int) -> list[Box]:
    """The way down to the first kernel from ``start`` on: seen from outside it is one box."""
    return way[: 1 + next((n for n in range(start, len(way)) if way[n].kind == "kernel"), len(way))]


def _made_words(fates: Mapping[str, int], counted: Callable[[str, int], str]) -> str:
    """``2 kernels + 1 call``: how many of each fate, in the words of ``counted``."""
    return " + ".join(counted(fate, fates[fate]) for fate in sorted(fates, key=FATES.index))


def _ports(values: Sequence[Box], prefix: str) -> dict[Box, str]:
    """A port for each value; neighbours share one where there are too many."""
    distinct = list(dict.fromkeys(values))
    share = -(-len(distinct) // MAX_PORTS)
    return {value: f"{prefix}{n // share}" for n, value in enumerate(distinct)}


def _even(width: float) -> int:
    """Even, so that left edges are whole where centres are."""
    return 2 * math.ceil(width / 2)
