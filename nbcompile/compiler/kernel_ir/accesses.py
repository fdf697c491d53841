"""How a kernel reaches memory: bytes and strides of each access, and the order that suits most of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nbcompile.compiler.kernel_ir.values import Gathered, KernelValues, walk_values
from nbcompile.compiler.loop_ir.index import Atom, Axis, IndexExpr, Size
from nbcompile.compiler.loop_ir.lanes import SHORT_LANE, Access, heavy, heavy_lanes, order_of, strides_of
from nbcompile.compiler.loop_ir.nodes import Buffer, hint_product

FIRST_POINTS = 64
LONGEST_PIECE = 512  # points of a row of which a program has many


def accesses(values: KernelValues, buffers: dict[str, Buffer]) -> list[Access]:
    """Every affine access of the kernel, the heaviest first."""
    found: list[Access] = []
    places = [(item.buffer, item.place) for item in values.stores]
    places += [(value.buffer, value.place) for value in walk_values(values.roots) if value.kind == "load"]
    for buffer, place in dict.fromkeys(places):
        strides = strides_of(place, values.nest.axes)
        # a gather touches an element for each point of what its index depends on
        touched = [axis for axis in values.nest.axes if axis in strides or axis in reached(place)]
        points = hint_product(axis.extent for axis in touched)
        for axis in sorted(place.axes() - set(touched), key=lambda axis: axis.name):
            points *= _places_along(place, axis)
        found.append(Access(buffer, points * buffers[buffer].dtype.itemsize, strides))
    return sorted(found, key=lambda access: -access.bytes)


def _places_along(place: IndexExpr, axis: Axis) -> int:
    """How many elements an index meets along an axis that it depends on by quotients and remainders: as many
    in proportion as at the first points."""
    extent = axis.extent.hint()
    points = max(min(extent, FIRST_POINTS), 1)

    def value_of(atom: Atom, point: int) -> int:
        return point if atom == axis else atom.hint if isinstance(atom, Size) else 0

    met = {place.evaluate(partial(value_of, point=point)) for point in range(points)}
    return max(len(met) * extent // points, 1)


def reached(place: IndexExpr) -> set[Axis]:
    """Axes that an index depends on by way of gathered values."""
    return {axis for atom in place.atoms() if isinstance(atom, Gathered) for axis in atom.value.axes}


def memory_order(values: KernelValues, buffers: dict[str, Buffer]) -> tuple[Axis, ...]:
    """The axes of the nest in the order in which the heaviest accesses have them in memory."""
    return order_of(accesses(values, buffers), values.nest.axes)


def side_by_side(
    values: KernelValues, buffers: dict[str, Buffer], order: tuple[Axis, ...]
) -> tuple[Axis, ...]:
    """``order`` with that axis as the last of the rows along which neighbours lie for some of what counts, if
    the others lie along rows that are pieces of memory by themselves: these are read as well in any order."""
    inner = values.nest.inner
    rows = [axis for axis in order if axis not in inner]
    lanes = heavy_lanes(accesses(values, buffers))
    across = lanes.intersection(rows)
    long = SHORT_LANE <= hint_product(axis.extent for axis in inner) <= LONGEST_PIECE
    sums = any(item.split for item in values.reductions)  # over the rows: these have programs of their own
    if sums or len(across) != 1 or lanes.isdisjoint(inner) or not long:
        return order
    rows.sort(key=lambda axis: axis in across)  # stable
    return (*rows, *(axis for axis in order if axis in inner))


def short_lane(found: Sequence[Access], rows: Sequence[Axis], inner: Sequence[Axis]) -> Axis | None:
    """The last of the reduced axes if it is a short one along which neighbours lie (the channels of a group,
    of a tensor whose channels are contiguous), and the next ones lie along the rows, for all that counts."""
    if len(inner) < 2 or not rows:
        return None
    lane, row = inner[-1], rows[-1]
    if lane.extent.constant is None or not 1 < lane.extent.constant < SHORT_LANE:
        return None
    size = lane.extent.constant
    fits = all(item.strides.get(lane) == 1 and item.strides.get(row) == size for item in heavy(found))
    return lane if found and fits else None


def streamed_bytes(values: KernelValues, buffers: dict[str, Buffer]) -> int:
    """Bytes read a point of what varies along the row and from row to row."""
    inner = values.nest.inner
    heavy = {
        (value.buffer, value.place)
        for value in walk_values(values.roots)
        if value.kind == "load" and value.axes & inner and value.axes - inner
    }
    return sum(buffers[name].dtype.itemsize for name, _ in heavy)
