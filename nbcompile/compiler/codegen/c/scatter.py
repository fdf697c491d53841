"""The nest of a scatter: copy the base, then combine the values in, deterministically.

Points that may meet in one element run in row-major order on one thread. Threads take different
values of an axis that is also an axis of the output (the columns of an embedding's gradient, say).
"""

from __future__ import annotations

import torch

from nbcompile.compiler.codegen.c.expressions import REGISTER_TYPES
from nbcompile.compiler.codegen.c.kernel import Scope, out_of_range
from nbcompile.compiler.codegen.c.nests import Nests
from nbcompile.compiler.codegen.expression import Expression, name
from nbcompile.compiler.kernel_ir.group_to_values import Resolver
from nbcompile.compiler.kernel_ir.values import Gathered, Store, Value, gathered, walk_values
from nbcompile.compiler.loop_ir.expr import Load, compute_dtype
from nbcompile.compiler.loop_ir.index import ONE, ZERO, Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Loop

CHUNK = 256


def scatter_nest(nests: Nests) -> None:
    """Print the kernel of a group that holds one scatter."""
    group, nest = nests.values.group, nests.nest
    loop = next(item for item in group.loops if item.kind == "scatter")
    held = group.in_place.get(loop.name, loop.name)
    if held != loop.base:
        _copy_base(nests, loop)
    resolver = _resolver(nests, loop)
    binding = group.bindings[loop.id]
    value = resolver.value(loop.body, binding)
    targets = tuple(resolver.resolved(place, binding) for place in loop.target or ())
    place = nests.buffers[loop.name].offset(targets)
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
    sure = held == loop.base and any(isinstance(atom, Gathered) for atom in place.atoms())
    _combine(nests, loop, f"if (!bad) {where}" if sure else where, where, nests.code(value, scope))
    for _ in range(len(nest.axes) + (lane is not None)):
        nests.out.close()


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


def _copy_base(nests: Nests, loop: Loop) -> None:
    """``out = base``, computing the base where it is a loop of this group."""
    out, base = nests.buffers[loop.name], nests.buffers[loop.base or ""]
    axes = tuple(Axis(f"c{n}", extent) for n, extent in enumerate(out.shape) if extent != ONE)
    free = iter(axes)
    kept = tuple(ZERO if extent == ONE else index(next(free)) for extent in out.shape)
    for n, axis in enumerate(axes):
        nests.axis_names[axis.text] = nests.fresh(f"c{n}")
    value = _resolver(nests, loop).value(Load(base.name, kept, base.dtype), {})
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
    if not any(map(gathered, places)):
        return ""
    nests.checks_bounds = True
    return " reduction(|:bad)"


def _report_place(nests: Nests, place: IndexExpr, loop: Loop, scope: Scope) -> None:
    for atom in sorted(place.atoms(), key=lambda atom: atom.text):
        if isinstance(atom, Gathered):
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
