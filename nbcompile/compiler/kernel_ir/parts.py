"""Kernels that change a part of an input go over that part alone.

What overwrites ``x[3]`` or ``x.diagonal()`` is a new ``x`` to the program, most of it the old one. Where it
is made in the memory of ``x``, what stays as it is need not be read and written again: the guard of the part
says which points of the nest are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nbcompile.compiler.kernel_ir.group_to_values import resolver_of
from nbcompile.compiler.kernel_ir.values import KernelValues, Store, Value, gathered
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group, Nest
from nbcompile.compiler.loop_ir.index import ONE, ZERO, Axis, IndexExpr, Mod, at_least, index
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.loop_ir.substitution import substitute

Bound = tuple[IndexExpr, IndexExpr, IndexExpr]
Within = dict[tuple[IndexExpr, int], tuple[IndexExpr, IndexExpr]]
"""What lies between which bounds; one thing may lie between several."""
_ROUNDS = ("round_f16", "round_bf16")


def parts_alone(program: FusedProgram) -> FusedProgram:
    """The program, each group that leaves most of an input as it is over the part that it changes."""
    buffers = program.program.buffers()
    items = tuple(_part_of(item, buffers) if isinstance(item, Group) else item for item in program.items)
    return replace(program, items=items)


def _part_of(group: Group, buffers: Mapping[str, Buffer]) -> Group:
    if not group.in_place or group.product is not None or group.nest.inner:
        return group
    if not all(loop.kind == "pointwise" for loop in group.loops) or not any(
        loop.is_guarded for loop in group.loops
    ):
        return group
    axes, places = _left(resolver_of(group, group.nest, buffers, narrow=False).resolve())
    if not places:
        return group
    bindings = {
        loop: {axis: substitute(place, places) for axis, place in binding.items()}
        for loop, binding in group.bindings.items()
    }
    return replace(group, nest=Nest(axes), bindings=bindings)


def _left(values: KernelValues) -> tuple[tuple[Axis, ...], dict[Axis, IndexExpr]]:
    """The axes of what is left of a nest by the guards around all that it changes, and where each of its own
    axes is then; no places where all is left."""
    axes, places = list(values.nest.axes), dict[Axis, IndexExpr]()

    def keep_within(bound: Bound) -> bool:
        item, low, high = (substitute(each, places) for each in bound)
        for axis in reversed(axes):
            if (steps := _steps(axis, item, low, high)) is not None and _keep(axis, *steps):
                return True
            if (span := _span(axis, item, low, high)) is None:
                continue
            start, extent = span
            # a point of a diagonal: of the other axis there may be more than there are such points
            if extent == ONE and not _lies_within(start, axis.extent):
                if not start.axes() or not keep_within((start, ZERO, axis.extent)):
                    continue
                start = substitute(start, places)
            if _keep(axis, start, extent):
                return True
        return False

    def _keep(axis: Axis, start: IndexExpr, extent: IndexExpr, step: int = 1) -> bool:
        if extent == axis.extent or not _lies_within(start, axis.extent - (extent - 1) * step):
            return False
        left = [] if extent == ONE else [Axis(axis.name, extent)]
        place = start + index(left[0]) * step if left else start
        for known, where in places.items():
            places[known] = substitute(where, {axis: place})
        places[axis] = place
        axes[axes.index(axis) : axes.index(axis) + 1] = left
        return True

    for (item, _), (low, high) in _around_all(values).items():
        keep_within((item, low, high))
    return tuple(axes), places


def _around_all(values: KernelValues) -> Within:
    """What lies between which bounds wherever a kernel changes anything of what it stores."""
    found: Within | None = None
    for store in values.stores:
        for part in _changed_within(store):
            own: Within = {}
            for item, low, high in part:
                own[item, sum(1 for each, _ in own if each == item)] = low, high
            found = own if found is None else _around_both(found, own)
    return found or {}


def _around_both(one: Within, other: Within) -> Within:
    found: Within = {}
    for item in one:
        if item not in other:
            continue
        (low, high), (lower, higher) = one[item], other[item]
        first = low if at_least(lower, low) else lower if at_least(low, lower) else None
        last = high if at_least(high, higher) else higher if at_least(higher, high) else None
        if first is not None and last is not None:
            found[item] = first, last
    return found


def _changed_within(store: Store) -> Iterator[tuple[Bound, ...]]:
    """The bounds of each part that a store changes; ``()`` where it changes all."""
    value = store.value
    while value.op in _ROUNDS:
        value = value.args[0]
    while value.kind == "guard":
        yield value.bounds
        value = value.args[1]
    if not store.last or not _is_old(value, store):
        yield ()


def _is_old(value: Value, store: Store) -> bool:
    return value.kind == "load" and (value.buffer, value.place) == (store.buffer, store.place)


def _span(axis: Axis, item: IndexExpr, low: IndexExpr, high: IndexExpr) -> tuple[IndexExpr, IndexExpr] | None:
    """Where the points of ``axis`` begin that have ``low <= item < high``, and how many they are, if they are
    one range of it, and not none."""
    if any(gathered(place) for place in (item, low, high)):
        return None
    step = item.coefficient(axis)
    if step is None or step.constant not in (1, -1) or axis in (low.axes() | high.axes()):
        return None
    rest = item - index(axis) * step
    start = low - rest if step.constant == 1 else rest - high + 1
    extent = high - low
    at, count, whole = start.constant, extent.constant, axis.extent.constant
    if at is not None and count is not None and whole is not None:
        start, extent = index(max(0, at)), index(min(whole, at + count) - max(0, at))
    if (start.axes() and extent != ONE) or not at_least(extent, ONE):
        return None
    return start, extent


def _steps(
    axis: Axis, item: IndexExpr, low: IndexExpr, high: IndexExpr
) -> tuple[IndexExpr, IndexExpr, int] | None:
    """Where the points of ``axis`` begin that leave one remainder, how many they are, and their distance."""
    if not isinstance(item.atom, Mod) or high - low != ONE:
        return None
    ahead, distance = item.atom.numerator - index(axis), item.atom.denominator.constant
    wanted, whole = low.constant, axis.extent.constant
    if distance is None or wanted is None or whole is None or ahead.constant is None:
        return None
    first = (wanted - ahead.constant) % distance
    count = -(-(whole - first) // distance)
    return (index(first), index(count), distance) if count > 0 else None


def _lies_within(place: IndexExpr, extent: IndexExpr) -> bool:
    return at_least(place, ZERO) and at_least(extent - 1, place)
