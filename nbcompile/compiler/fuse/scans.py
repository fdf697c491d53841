"""Where a scan can be done in a nest: along its rows, in order, at every point."""

from __future__ import annotations

from dataclasses import replace

from nbcompile.compiler.loop_ir.fused import Group, Nest
from nbcompile.compiler.loop_ir.index import ZERO, Axis, IndexExpr
from nbcompile.compiler.loop_ir.nodes import Loop


def scanning(group: Group) -> Group | str:
    """The group with the axes inside its nest that its scans go along, or why it cannot be so.

    A kernel of scans goes along its rows from one end to the other and carries what it has so far: so all
    scans must go along the same axes in the same direction, and whatever is stored has a value at each point.
    """
    if any(loop.reduction for loop in group.loops):
        return "one of them scans along a row, the other reduces it"
    everything = set(group.nest.axes)
    for loop in group.loops:
        if loop.scan or any(out.name in group.stored for out in loop.outputs):
            binding = group.bindings.get(loop.id)
            if binding is None:
                return "they iterate over different shapes"
            if not set().union(*(place.axes() for place in binding.values())) >= everything:
                return "a scan takes each point of a row in turn, and one of them has fewer points"
    ways = {_way(group, loop) for loop in group.loops if loop.scan}
    if len(ways) > 1 or None in ways:
        return "they go along a row in different orders"
    ((inner, _),) = filter(None, ways)
    return replace(group, nest=Nest(group.nest.axes, inner))


def _way(group: Group, loop: Loop) -> tuple[frozenset[Axis], int] | None:
    """The axes of the nest that a scan counts through in the nest's order, and in which direction; None if
    it jumps about in them."""
    assert loop.scanned is not None
    place = group.bindings[loop.id][loop.scanned]
    inner, counted = frozenset(place.axes()), _counted(group, place)
    if place == counted:
        return inner, 1
    return (inner, -1) if place == loop.scanned.extent - 1 - counted else None


def _counted(group: Group, place: IndexExpr) -> IndexExpr:
    """The number of a point among those that the nest goes through along the axes of ``place``."""
    counted = ZERO
    for axis in group.nest.axes:
        if axis in place.axes():
            counted = counted * axis.extent + axis
    return counted


def counts_up(group: Group, loop: Loop) -> bool:
    """Whether the nest meets the numbers that argmax or argmin look through in the order of their positions:
    of equal ones the first is the result."""
    if loop.reduction not in ("argmax", "argmin"):
        return True
    place = ZERO
    for axis in loop.reduced:
        place = place * axis.extent + group.bindings[loop.id][axis]
    return place == _counted(group, place)
