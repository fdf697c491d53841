"""What depends on a nest's last axis alone (a column's scale, of its variance) is made once, for all rows."""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.compiler.codegen.c.expressions import REGISTER_TYPES
from nbcompile.compiler.codegen.c.kernel import Scope
from nbcompile.compiler.codegen.c.nests import Nests, PointWork
from nbcompile.compiler.codegen.expression import Expression
from nbcompile.compiler.kernel_ir.values import Value, walk_values
from nbcompile.compiler.loop_ir.expr import TRANSCENDENTAL, WORK
from nbcompile.compiler.loop_ir.index import Axis, product

MOST = 4096
"""Elements of a row, of which an array stays in the cache beside what is walked."""
MANY = 8
"""Rows."""
COSTLY = TRANSCENDENTAL | {name for name, additions in WORK.items() if additions >= 16}


def made_along(nests: Nests, work: PointWork, outer: Sequence[Axis], last: Axis) -> Scope:
    """Arrays of such values, filled before the loops over ``outer``, as the scope of what is in these. Only
    of what takes longer than to read it again."""
    extent = last.extent.constant
    if extent is None or extent > MOST or product(axis.extent for axis in outer).hint() < MANY:
        return {}
    order, certain = nests.needed(work.values, {}, {})
    used = {child.number for user in order if not user.axes.isdisjoint(outer) for child in user.inputs()}
    wanted = [value for value in order if value.number in used & certain and _is_costly(value, last)]
    if not wanted:
        return {}
    scope: dict[int, Expression] = {}
    for value in wanted:
        array = nests.fresh(nests.names.get(value.number) or "t")
        nests.out.add(f"{REGISTER_TYPES[value.dtype]} {array}[{extent}];", [value.origin])
        scope[value.number] = Expression(f"{array}[{nests.axis_names[last.text]}]", value.dtype)
    nests.out.add(f"#pragma omp simd{nests.clauses([], arrays=False)}")
    nests.for_(last)
    local = nests.inside(wanted, {}, {})
    for value in wanted:
        nests.out.add(f"{scope[value.number].text} = {nests.code(value, local).text};", [value.origin])
    nests.out.close()
    return scope


def _is_costly(value: Value, last: Axis) -> bool:
    if value.kind != "op" or value.axes != {last}:
        return False
    return any(item.kind == "op" and item.op in COSTLY and last in item.axes for item in walk_values([value]))
