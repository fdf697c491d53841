"""How the threads of a CPU share reductions: some make results of their own, which are arrays on the thread's
stack, beside what a kernel does with its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from nbcompile.compiler.loop_ir.fused import Group, Nest
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr
from nbcompile.compiler.loop_ir.lanes import SHORT_LANE
from nbcompile.compiler.loop_ir.nodes import hint_product

KEPT_BYTES = 1 << 20
LEAST_TILE = 16
"""Columns that a thread walks together, at the least, where memory lies along them."""

LONG_COLUMN = 128
"""Rows below each column of a table from which its sums are better shared out along them."""


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


def axes_of(places: Iterable[IndexExpr]) -> frozenset[Axis]:
    """The axes that these places are along, or depend on."""
    found: set[Axis] = set()
    for place in places:
        bare = place.axis
        found |= place.axes() if bare is None else {bare}
    return frozenset(found)


def shares(nest: Nest, lanes: Collection[Axis]) -> int:
    """Into how many parts the threads can share the rows of a nest; ``lanes``: the axes along which its
    memory lies. Where that is the last of the rows, its columns go a tile at a time."""
    across = _columns(nest, lanes)
    if across is None:
        return hint_product(axis.extent for axis in nest.rows)
    outer = hint_product(axis.extent for axis in nest.rows[:-1])
    return outer * -(-across.extent.hint() // LEAST_TILE)


def lie_across(nest: Nest, lanes: Collection[Axis]) -> bool:
    """Whether columns are so long that a tile of them is too narrow a strip of memory. In the order of
    memory, some rows a thread, all of it is read twice as fast, once for each result."""
    long = hint_product(axis.extent for axis in nest.inner_axes) >= LONG_COLUMN
    return long and len(nest.rows) == 1 and _columns(nest, lanes) is not None


def _columns(nest: Nest, lanes: Collection[Axis]) -> Axis | None:
    """The last axis of the rows, if memory lies along that."""
    if not nest.rows or nest.rows[-1] not in lanes:
        return None
    wide = nest.rows[-1].extent.hint()
    mixed = wide >= SHORT_LANE and not nest.inner.isdisjoint(lanes)  # some lies along what is reduced
    return None if mixed else nest.rows[-1]


def only_reduces(group: Group) -> bool:
    """Whether no result of a row is needed for another, or for anything made of the whole row: such a group
    can be shared out among any number of programs."""
    known_after: set[str] = set()  # what depends on a result of a row
    for _ in group.loops:  # they are in no order yet
        found = {
            out.name for loop in group.loops for out in loop.outputs
            if loop.reduction or any(load.buffer in known_after for load in loop.reads())
        }  # fmt: skip
        if found == known_after:
            break
        known_after = found
    for loop in group.loops:
        reads = any(load.buffer in known_after for load in loop.reads())
        if loop.reduction and reads:
            return False
        if not reads:
            continue
        binding = group.bindings.get(loop.id)
        stores = any(out.name in group.stored for out in loop.outputs)
        whole_row = binding is None or axes_of(binding.values()) & group.nest.inner
        if not loop.reduction and stores and whole_row:
            return False
    return True
