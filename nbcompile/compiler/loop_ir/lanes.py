"""Along which axes of a nest neighbours lie in memory: asked when loops are fused, and when a kernel is cut
into tiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, index

Bound = tuple[IndexExpr, IndexExpr, IndexExpr]  # value, low, high: low <= value < high

SHORT_LANE = 16
"""Neighbours: with fewer, an access is not one piece of memory."""
BLOCKS = (1024, 512, 256, 128, 64)
SMALLEST_PART = 256
"""Points of the smallest block that keeps to one part of what is joined."""


@dataclass(frozen=True)
class Access:
    """One read or write of memory: bytes it moves, and its stride along each axis."""

    buffer: str
    bytes: int
    strides: dict[Axis, int]

    @property
    def lane(self) -> Axis | None:
        """The axis along which neighbours in memory lie."""
        return next((axis for axis, stride in self.strides.items() if abs(stride) == 1), None)

    @property
    def lanes(self) -> list[Axis]:
        """That axis; where it is short (a group of channels), also the one along which the next ones lie."""
        lane = self.lane
        if lane is None:
            return []
        extent = lane.extent.hint()
        beyond = [axis for axis, stride in self.strides.items() if axis != lane and abs(stride) == extent]
        return [lane, *beyond] if extent < SHORT_LANE else [lane]


def cut_well(length: int) -> list[int]:
    """Blocks of a row that leave few lanes idle: images are often 7, 14, 28, 56 points wide."""
    return [size for size in BLOCKS if -(-length // size) * size * 7 <= length * 8]


def part_blocks(last: Axis, bounds: Iterable[Bound]) -> list[int]:
    """Blocks of a row along ``last`` of which each lies either inside or outside of every one of these bounds
    of guards: what one part of a joined row takes, say, is then not computed for the others."""
    length = last.extent.constant
    sizes = [size for size in cut_well(length or 1) if size >= SMALLEST_PART]
    for value, low, high in bounds:
        if last in value.axes() | low.axes() | high.axes():
            edges = [(edge - (value - index(last))).constant for edge in (low, high)]
            sizes = [size for size in sizes if all(edge is not None and edge % size == 0 for edge in edges)]
    return sizes


def strides_of(offset: IndexExpr, axes: Iterable[Axis]) -> dict[Axis, int]:
    """How far apart in memory neighbours along each axis are, where they are equally far; at the hints."""
    strides: dict[Axis, int] = {}
    for axis in axes:
        step = offset.coefficient(axis)
        if step is not None and step.hint() != 0:
            strides[axis] = step.hint()
    return strides


def heavy(found: Sequence[Access]) -> list[Access]:
    """The accesses that count: none moves more than four times as much as one of them."""
    most = max((access.bytes for access in found), default=0)
    return [access for access in found if access.bytes * 4 >= most]


def heavy_lanes(found: Sequence[Access]) -> set[Axis]:
    """The axes along which neighbours lie in memory, for accesses that count."""
    return {lane for access in heavy(found) for lane in access.lanes}


def order_of(found: Sequence[Access], axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes of a nest from the largest stride to the smallest, as the heaviest accesses see them; as they
    are if none sees every axis."""
    layouts: dict[frozenset[tuple[Axis, int]], int] = {}
    for access in found:
        layout = frozenset(access.strides.items())
        layouts[layout] = layouts.get(layout, 0) + access.bytes
    strides = dict(max(layouts.items(), key=lambda item: (len(item[0]), item[1]))[0]) if layouts else {}
    if len(strides) < len(axes):
        return tuple(axes)
    place = {axis: n for n, axis in enumerate(axes)}
    return tuple(sorted(axes, key=lambda axis: (-abs(strides[axis]), place[axis])))
