"""The nest of a scatter: copy the base, then combine the values in, deterministically.

Points that may meet in one element run in row-major order on one thread. Threads take different
values of an axis that is also an axis of the output (the columns of an embedding's gradient, say).
"""

from __future__ import annotations

import torch

from nbcompile.compiler.codegen.c.checks import look_ahead, stop_if_bad
from nbcompile.compiler.codegen.c.expressions import REGISTER_TYPES
from nbcompile.compiler.codegen.c.kernel import Scope, out_of_range
from nbcompile.compiler.codegen.c.nests import Nests
from nbcompile.compiler.codegen.expression import Expression, name
from nbcompile.compiler.kernel_ir.group_to_values import Resolver
from nbcompile.compiler.kernel_ir.values import Store, Value, gathered, walk_values
from nbcompile.compiler.loop_ir.expr import Load, compute_dtype
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import ONE, ZERO, Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Loop

CHUNK = 256


def scatter_nest(nests: Nests) -> None:
    """Print the kernel of a group that holds one scatter."""
    group, nest = nests.values.group, nests.nest
    loop = _scatter_of(group)
    held = group.in_place.get(loop.name, loop.name)
    if held != loop.base:
        _copy_base(nests, loop)
    value, targets, place = _point(nests, loop)
    if held == loop.base and group.in_place and look_ahead(nests, [value], [place]):
        stop_if_bad(nests)
    safe = [target.axis for target in targets if target.axis is not None]
    lane = safe[-1] if safe else None
    between = _open_chunks(nests, lane) if lane is not None else None
    outside = lane is not None and not _lies_along(nests, lane, value, place)
    if lane is not None and outside:
        nests.for_(lane, between=between)
    for axis in nest.axes:
        if axis is not lane:
            nests.for_(axis)
    scope: Scope = {}
    if lane is not None and not outside:
        for item in gathered(place):
            if lane not in item.axes:
                scope = nests.declared(item, nests.define([item], {}, scope), gathers=True)
        scope = nests.hoist([value], frozenset((lane,)), scope)
        nests.out.add("#pragma omp simd" + _clause(nests, place, value))
        nests.for_(lane, between=between)
    scope = nests.inside([value], {}, scope)
    _report_place(nests, place, loop, scope)
    memory = nests.memory(held, write=True)
    where = f"{memory}[{nests.place(place, scope)}]"
    nests.out.touch(held, None, write=True)
    # nothing of an input is overwritten with what an index out of range was given
    sure = held == loop.base and bool(nests.unlooked(place))
    _combine(nests, loop, f"if (!bad) {where}" if sure else where, where, nests.code(value, scope))
    for _ in range(len(nest.axes) + (lane is not None)):
        nests.out.close()


def look_ahead_of_scatter(nests: Nests) -> bool:
    """Print the loops that look at the indices of a scatter and of its base. False if there are none."""
    loop = _scatter_of(nests.values.group)
    _, _, base = _base(nests, loop)
    of_base = look_ahead(nests, [base])
    value, _, place = _point(nests, loop)
    return look_ahead(nests, [value], [place]) or of_base


def _scatter_of(group: Group) -> Loop:
    return next(item for item in group.loops if item.kind == "scatter")


def _point(nests: Nests, loop: Loop) -> tuple[Value, tuple[IndexExpr, ...], IndexExpr]:
    """What one point of a scatter combines in, at which indices, and at which place of memory that is."""
    resolver, binding = _resolver(nests, loop), nests.values.group.bindings[loop.id]
    value = resolver.value(loop.body, binding)
    targets = tuple(resolver.resolved(place, binding) for place in loop.target or ())
    return value, targets, nests.buffers[loop.name].offset(targets)


def _lies_along(nests: Nests, lane: Axis, value: Value, place: IndexExpr) -> bool:
    """Whether more of the memory that is read and written lies along ``lane`` than across it."""
    loads = [item for item in walk_values([value, *gathered(place)]) if item.kind == "load"]
    places = [place, *(item.place for item in loads)]
    steps = [step for step in (each.coefficient(lane) for each in places) if step != 0]
    return 2 * sum(step == ONE for step in steps) >= len(steps)


def _resolver(nests: Nests, loop: Loop) -> Resolver:
    """What makes values of the loop; each numbers its values anew."""
    resolver = Resolver(nests.values.group, nests.values.group.bindings, nests.nest, nests.buffers)
    resolver.origin = loop.id
    nests.names = resolver.names
    return resolver


def _base(nests: Nests, loop: Loop) -> tuple[tuple[Axis, ...], tuple[IndexExpr, ...], Value]:
    """The axes of the base, the indices of a point along them, and the value there."""
    out, base = nests.buffers[loop.name], nests.buffers[loop.base or ""]
    axes = tuple(Axis(f"c{n}", extent) for n, extent in enumerate(out.shape) if extent != ONE)
    free = iter(axes)
    kept = tuple(ZERO if extent == ONE else index(next(free)) for extent in out.shape)
    for n, axis in enumerate(axes):
        nests.axis_names[axis.text] = nests.fresh(f"c{n}")
    return axes, kept, _resolver(nests, loop).value(Load(base.name, kept, base.dtype), {})


def _copy_base(nests: Nests, loop: Loop) -> None:
    """``out = base``, computing the base where it is a loop of this group."""
    out, (axes, kept, value) = nests.buffers[loop.name], _base(nests, loop)
    for n, axis in enumerate(axes):
        if n == 0 and out.bytes_hint() > (1 << 16):
            nests.out.add("#pragma omp parallel for" + _clause(nests, ZERO, value))
        nests.for_(axis)
    nests.store(Store(loop, loop.name, out.offset(kept), value), nests.inside([value], {}, {}))
    for _ in axes:
        nests.out.close()


def _open_chunks(nests: Nests, lane: Axis) -> tuple[str, str]:
    """Threads over chunks of ``lane``; returns the bounds of a chunk."""
    first, last = nests.fresh("first"), nests.fresh("last")
    extent = nests.extent(lane)
    points = 1
    for axis in nests.nest.axes:
        points *= max(axis.extent.hint(), 1)
    if points > (1 << 14):
        clause = " reduction(|:bad)" if nests.values.group.loops else ""
        nests.out.add(f"#pragma omp parallel for{clause}")
        nests.checks_bounds = True
    chunk = min(CHUNK, max(16, -(-lane.extent.hint() // 2)))
    nests.out.open(f"for (long {first} = 0; {first} < {extent}; {first} += {chunk})", axes=(lane,))
    nests.out.add(f"const long {last} = {first} + {chunk} < {extent} ? {first} + {chunk} : {extent};")
    return first, last


def _clause(nests: Nests, place: IndexExpr, value: Value) -> str:
    """What a loop is told whose statements note indices that are out of range."""
    places = (place, *(item.place for item in walk_values([value, *gathered(place)])))
    if not any(map(nests.unlooked, places)):
        return ""
    nests.checks_bounds = True
    return " reduction(|:bad)"


def _report_place(nests: Nests, place: IndexExpr, loop: Loop, scope: Scope) -> None:
    for atom in nests.unlooked(place):
        nests.checks_bounds = True
        text, size = nests.code(atom.value, scope).text, nests.place(atom.size, scope)
        nests.out.add(f"{out_of_range(text, size)};", [loop.id])


def _combine(nests: Nests, loop: Loop, put: str, where: str, value: Expression) -> None:
    """Put a value into the output, as the loop's mode says."""
    dtype = nests.buffers[loop.name].dtype
    if loop.mode is not None and loop.mode != "set":
        register = compute_dtype(dtype)
        old = nests.fresh("old")
        loaded = nests.loaded(where, dtype, register) if dtype != torch.bool else Expression(where, dtype)
        nests.out.add(f"const {REGISTER_TYPES[register]} {old} = {loaded.text};", [loop.id])
        combine = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}[loop.mode]
        value = nests.writer.op(combine, [name(old, register), value], register)
    nests.out.add(f"{put} = {nests.stored(value, dtype).operand};", [loop.id])
