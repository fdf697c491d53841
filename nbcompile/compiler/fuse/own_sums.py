"""Which reductions every thread of a CPU can make for itself, beside what a kernel does with its rows: their
results so far are arrays on the thread's stack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis
from nbcompile.compiler.loop_ir.nodes import hint_product

KEPT_BYTES = 1 << 20


def fit_a_stack(group: Group, reduced: Mapping[str, frozenset[Axis]], loops: Iterable[str]) -> bool:
    """Whether there is room for the results of these reductions of the group (ids of ``reduced``, with the
    axes that each goes over). Those whose number is known at run time only never fit."""
    points = 0
    for loop in loops:
        kept = [axis.extent for axis in group.nest.axes if axis not in reduced[loop]]
        if any(extent.constant is None for extent in kept):
            return False
        points += hint_product(kept)
    return points * 8 <= KEPT_BYTES
