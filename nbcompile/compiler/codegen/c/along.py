"""What is made once, for all rows: what hangs on a nest's last axis alone (a column's scale, of its
variance), and copies of small tensors in the order in which each row reads them."""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.compiler.codegen.c.expressions import REGISTER_TYPES
from nbcompile.compiler.codegen.c.kernel import Scope, memory_type
from nbcompile.compiler.codegen.c.nests import Nests, PointWork
from nbcompile.compiler.codegen.expression import Expression
from nbcompile.compiler.kernel_ir.values import Value, walk_values
from nbcompile.compiler.loop_ir.expr import TRANSCENDENTAL, WORK
from nbcompile.compiler.loop_ir.index import ONE, ZERO, Axis, index, product

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


def turned(nests: Nests, values: Sequence[Value], inner: Sequence[Axis], last: Axis) -> Scope:
    """Copies of what the loads ``values`` read (:func:`turnable`), made before all loops, in the order in
    which these read it; as the scope of what is in them."""
    scope: dict[int, Expression] = {}
    for value in values:
        buffer, place = nests.buffers[value.buffer], ZERO
        axes = [axis for axis in (*inner, last) if axis in value.axes]
        for axis in axes:
            place = place * axis.extent + index(axis)
        array = nests.fresh(f"{value.buffer}_turned")
        nests.out.add(f"{memory_type(buffer)} {array}[{product(a.extent for a in axes)}];", [value.origin])
        for axis in axes:
            nests.for_(axis)
        nests.out.touch(value.buffer, value.place)
        element = f"{array}[{nests.place(place, {})}]"
        memory = nests.memory(value.buffer, write=False)
        nests.out.add(f"{element} = {memory}[{nests.place(value.place, {})}];", [value.origin])
        for _ in axes:
            nests.out.close()
        scope[value.number] = nests.loaded(element, buffer.dtype, value.dtype)
    return scope


def turnable(nests: Nests, outer: Sequence[Axis], inner: Sequence[Axis], last: Axis) -> list[Value]:
    """The loads of small tensors that lie along ``inner``, and are read along ``last``, over and over in the
    loops over ``outer``: the centres that every point is held against."""
    if product(axis.extent for axis in outer).hint() < MANY * MANY:
        return []
    order, certain = nests.needed(nests.values.roots, {}, {})
    return [
        value
        for value in order
        if value.kind == "load" and value.number in certain and value.buffer not in nests.writes
        and value.axes <= {*inner, last} and _lies_apart(value, last)
    ]  # fmt: skip


def _lies_apart(value: Value, last: Axis) -> bool:
    """Whether neighbours of a load along ``last`` lie apart in memory of known size, a little of it."""
    count, step = product(axis.extent for axis in value.axes).constant, value.place.coefficient(last)
    known = all(isinstance(atom, Axis) for atom in value.place.atoms())
    return count is not None and count <= MOST and known and step is not None and step not in (ZERO, ONE)


def _is_costly(value: Value, last: Axis) -> bool:
    if value.kind != "op" or value.axes != {last}:
        return False
    return any(item.kind == "op" and item.op in COSTLY and last in item.axes for item in walk_values([value]))
