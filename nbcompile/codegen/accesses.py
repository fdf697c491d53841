"""How a kernel reaches memory: bytes and strides of each access, and the order that suits most of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbcompile.codegen.values import Gathered, KernelValues, walk_values
from nbcompile.loop_ir.index import Axis, IndexExpr
from nbcompile.loop_ir.nodes import Buffer, hint_product

SHORT_LANE = 16
"""Neighbours: with fewer, an access is not one piece of memory."""


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


def accesses(values: KernelValues, buffers: dict[str, Buffer]) -> list[Access]:
    """Every affine access of the kernel, the heaviest first."""
    found: list[Access] = []
    places = [(item.buffer, item.place) for item in values.stores]
    places += [(value.buffer, value.place) for value in walk_values(values.roots) if value.kind == "load"]
    for buffer, place in dict.fromkeys(places):
        strides: dict[Axis, int] = {}
        for axis in values.nest.axes:
            step = place.coefficient(axis)
            if step is not None and step.hint() != 0:
                strides[axis] = step.hint()
        # a gather touches an element for each point of what its index depends on
        touched = [axis for axis in values.nest.axes if axis in strides or axis in reached(place)]
        points = hint_product(axis.extent for axis in touched)
        found.append(Access(buffer, points * buffers[buffer].dtype.itemsize, strides))
    return sorted(found, key=lambda access: -access.bytes)


def reached(place: IndexExpr) -> set[Axis]:
    """Axes that an index depends on by way of gathered values."""
    return {axis for atom in place.atoms() if isinstance(atom, Gathered) for axis in atom.value.axes}


def memory_order(values: KernelValues, buffers: dict[str, Buffer]) -> tuple[Axis, ...]:
    """The axes of the nest from the largest stride to the smallest, as the heaviest accesses see them."""
    axes = list(values.nest.axes)
    layouts: dict[frozenset[tuple[Axis, int]], int] = {}
    for access in accesses(values, buffers):
        layout = frozenset(access.strides.items())
        layouts[layout] = layouts.get(layout, 0) + access.bytes
    if not layouts:
        return tuple(axes)
    strides = dict(max(layouts.items(), key=lambda item: (len(item[0]), item[1]))[0])
    if len(strides) < len(axes):
        return tuple(axes)  # no access sees every axis: the order of the program
    place = {axis: n for n, axis in enumerate(axes)}
    return tuple(sorted(axes, key=lambda axis: (-abs(strides[axis]), place[axis])))


def heavy_lanes(found: Sequence[Access]) -> set[Axis]:
    """The axes along which neighbours lie in memory, for accesses that count."""
    most = max((access.bytes for access in found), default=0)
    return {lane for access in found if access.bytes * 4 >= most for lane in access.lanes}


def short_lane(found: Sequence[Access], rows: Sequence[Axis], inner: Sequence[Axis]) -> Axis | None:
    """The last of the reduced axes if it is a short one along which neighbours lie (the channels of a group,
    of a tensor whose channels are contiguous), and the next ones lie along the rows, for all that counts."""
    if len(inner) < 2 or not rows:
        return None
    lane, row = inner[-1], rows[-1]
    if lane.extent.constant is None or not 1 < lane.extent.constant < SHORT_LANE:
        return None
    most = max((access.bytes for access in found), default=0)
    heavy = [access.strides for access in found if access.bytes * 4 >= most]
    size = lane.extent.constant
    fits = all(strides.get(lane) == 1 and strides.get(row) == size for strides in heavy)
    return lane if heavy and fits else None


def streamed_bytes(values: KernelValues, buffers: dict[str, Buffer]) -> int:
    """Bytes read a point of what varies along the row and from row to row."""
    inner = values.nest.inner
    heavy = {
        (value.buffer, value.place)
        for value in walk_values(values.roots)
        if value.kind == "load" and value.axes & inner and value.axes - inner
    }
    return sum(buffers[name].dtype.itemsize for name, _ in heavy)
