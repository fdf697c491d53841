"""What a kernel computes again because it reads it at several places, and whether that costs too much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from nbcompile.compiler.fuse.alignment import nest_of, place_of
from nbcompile.compiler.fuse.cost import bytes_saved, evaluations, is_expensive, operations, steps
from nbcompile.compiler.fuse.limits import Limits
from nbcompile.compiler.loop_ir.expr import Expr, Guarded, Load, walk_index
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import IndexExpr
from nbcompile.compiler.loop_ir.nodes import Loop, hint_product

NEARLY_ONCE = 1.1
"""A window's overlap at the edge of a tensor is no second time."""


def repeats(group: Group, maker: Loop) -> float:
    """How often a placed pointwise loop computes each element: again for each step of the axes of the
    nest that are outside of its own."""
    if maker.kind != "pointwise":
        return 1.0
    own = {axis for place in group.bindings[maker.id].values() for axis in place.axes()}
    if len(own) == len(group.nest.axes):
        return 1.0
    order = (*group.nest.rows, *group.nest.inner_axes)
    depth = max((n + 1 for n, axis in enumerate(order) if axis in own), default=0)
    return hint_product(axis.extent for axis in order[:depth]) / max(hint_product(a.extent for a in own), 1)


def times_over(
    load: Load, reader: Loop, maker: Loop, group: Group, makers: Mapping[str, Loop], limits: Limits
) -> float:
    """How often each element of the pointwise ``maker`` would be computed, where that costs more than to keep
    it in memory; 0 where it does not."""
    points = max(maker.points(), 1)
    windows = sum(1 for other in reader.reads() if other.buffer == load.buffer)
    if not limits.split_alone:
        costly = is_expensive(maker, makers) or len(maker.reads()) > limits.cheap_loads
        times = evaluations(load, reader) / points
        if windows > 2:  # each of a window's loads counts, guarded or not
            times = max(times, windows * reader.points() / points)
        return times if costly and times > NEARLY_ONCE else 0.0
    computed = sum(_evaluated(group, maker, load.buffer))
    times = computed / points
    if times <= NEARLY_ONCE:
        return 0.0
    if is_expensive(maker, makers) or (windows > 2 and _masked(reader, load)):
        return times
    saved = bytes_saved(maker.outputs[0], load.buffer in group.stored)
    again = (computed - points) * operations(maker, makers)
    return times if again > saved * limits.operations_a_byte else 0.0


def _evaluated(group: Group, maker: Loop, buffer: str) -> Iterable[float]:
    """How many elements of ``buffer`` a kernel computes for each place that it reads it at, or stores it."""
    found: dict[object, float] = {}
    if buffer in group.stored and (own := group.bindings.get(maker.id)) is not None:
        found[False, tuple(own[axis] for axis in maker.kept)] = float(maker.points())
    for loop in group.loops:
        binding = group.bindings.get(loop.id)
        for load in loop.reads():
            if load.buffer != buffer:
                continue
            place = binding is None, place_of(load, binding or nest_of(loop.axes)[1])
            count = steps(load, loop) * _part(loop.body, load)
            found[place] = max(count, found.get(place, 0.0))
    return found.values()


def _part(expr: Expr, load: Load) -> float:
    """The part of the points of a loop at which its body reads this: what guards choose otherwise is not."""
    if expr == load or any(load == node for place in expr.indices() for node in walk_index(place)):
        return 1.0
    inside = [_part(child, load) for child in expr.children()]
    if isinstance(expr, Guarded):
        chosen = prod(_within(*bound) for bound in expr.bounds)
        return chosen * inside[0] + (1 - chosen) * inside[1]
    return max(inside, default=0.0)


def _within(value: IndexExpr, low: IndexExpr, high: IndexExpr) -> float:
    """The part of the points of an axis at which ``value``, a multiple of it and a shift, is in the range."""
    axis = next(iter(value.axes()), None)
    step = value.coefficient(axis) if axis is not None else None
    if axis is None or step is None or step.hint() < 1 or (value - step * axis).axes():
        return 1.0
    extent, shift = axis.extent.hint(), value.hint()
    first, last = (-(-(bound.hint() - shift) // step.hint()) for bound in (low, high))
    return max(0, min(last, extent) - max(first, 0)) / max(extent, 1)


def _masked(reader: Loop, load: Load) -> bool:
    """Whether this is read behind a guard that stays in the innermost loop: what is made for it is computed
    one element at a time. Guards on the innermost axis alone cut that loop into pieces instead."""
    last = reader.axes[-1]
    guards = (node for node in reader.body.walk() if isinstance(node, Guarded) and load in set(node.walk()))
    values = [value for guard in guards for value, _, _ in guard.bounds]
    return any(value.axes() != {last} for value in values) or bool(values and last.extent.constant is None)
