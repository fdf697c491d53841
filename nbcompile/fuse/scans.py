"""Where a scan can be done in a nest: along its rows, in order, at every point."""

from __future__ import annotations

from dataclasses import replace

from nbcompile.loop_ir.fused import Group, Nest
from nbcompile.loop_ir.index import ZERO, Axis, IndexExpr, substitute
from nbcompile.loop_ir.nodes import Loop


def scanning(group: Group) -> Group | str:
    """The group with the axes inside its nest that its scans go along, or why it cannot be so.

    A kernel of scans goes along its rows from the first point to the last and carries what it has so far: so
    all scans must go along the same axes in the same direction, and whatever is stored has a value at each
    point. Where they go backwards, the nest's axes are counted from the other end.
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
    scans = [loop for loop in group.loops if loop.scan]
    inner = frozenset(_place(group, scans[0]).axes())
    if not _forwards(group, scans[0], inner):
        mirror = {axis: axis.extent - 1 - axis for axis in inner}
        turned = {
            id: {axis: substitute(place, mirror) for axis, place in binding.items()}
            for id, binding in group.bindings.items()
        }
        group = replace(group, bindings=turned)
    if not all(_forwards(group, loop, inner) for loop in scans):
        return "they go along a row in different orders"
    return replace(group, nest=Nest(group.nest.axes, inner))


def _place(group: Group, loop: Loop) -> IndexExpr:
    """Where a scan's axis is in the nest."""
    assert loop.scanned is not None
    return group.bindings[loop.id][loop.scanned]


def _forwards(group: Group, loop: Loop, inner: frozenset[Axis]) -> bool:
    """Whether a scan's axis counts through the axes ``inner`` in the nest's order."""
    counted = ZERO
    for axis in group.nest.axes:
        if axis in inner:
            counted = counted * axis.extent + axis
    return _place(group, loop) == counted
