"""The nested drawing of a graph: boxes in groups in groups, laid out once, opened and closed by whoever
shows it.

Each group is laid out by itself, from the innermost outwards, by :mod:`nbcompile.view.layout`: in rows from
top to bottom. Where a box stands across (x) is fixed; how far down follows from which groups are open,
since the height of a row is that of its tallest item. So opening a group needs no new layout.

Heights, in pixels: a node is :data:`NODE_HEIGHT`, a closed group :data:`CLOSED_HEIGHT`; an open group is
its title and its rows, :data:`ROW_GAP` apart. Items stand in the middle of their row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nbcompile.compilation import Compilation
from nbcompile.provenance import Links
from nbcompile.view.facts import Call

NODE_HEIGHT = 24
CLOSED_HEIGHT = 28
ROW_GAP = 26

GroupKind = Literal["root", "module", "kernel", "line", "part"]
"""What the contents of a group have in common: the graph, a module, a kernel, a cell line; or nothing but
their place in the graph (``part``)."""


@dataclass(frozen=True)
class Group:
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
    where it passes the rows between, straight.
    """

    id: str
    parent: int
    label: str
    kind: GroupKind
    fate: str
    note: str
    open: bool
    width: int
    rows: tuple[tuple[int, ...], ...]
    edges: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Drawing:
    """A graph of the record as nested groups; ``groups[0]`` is all of it. Empty where it is too large.

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
    groups: tuple[Group, ...]
    labels: tuple[str, ...]
    fates: str
    left_out: tuple[str, ...]
    description: str


def drawings(compilation: Compilation, calls: Sequence[Call], links: Links) -> tuple[Drawing, ...]:
    """One for each graph of the record, in its order."""
    return ()
