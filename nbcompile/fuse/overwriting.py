"""What in a group depends on memory that the group overwrites."""

from __future__ import annotations

from nbcompile.loop_ir.fused import Group
from nbcompile.loop_ir.index import Axis


def reached_by(buffer: str, group: Group) -> frozenset[Axis]:
    """The axes of the nest along which anything is made from ``buffer``, directly or through others."""
    known, axes = {buffer}, frozenset[Axis]()
    for _ in group.loops:  # they are in no order yet
        for loop in group.loops:
            if any(load.buffer in known for load in loop.reads()):
                known |= {out.name for out in loop.outputs}
                for place in group.bindings.get(loop.id, {}).values():
                    axes |= place.axes()
    return axes
