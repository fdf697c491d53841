"""The nest of a scatter: copy the base, then combine the values in, deterministically.

Points that may meet in one element run in row-major order on one thread. Threads take different
values of an axis that is also an axis of the output (the columns of an embedding's gradient, say).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbcompile.compiler.codegen.c.kernel import out_of_range, strip
from nbcompile.compiler.kernel_ir.group_to_values import Resolver
from nbcompile.compiler.kernel_ir.values import Gathered, Store, Value, gathered, walk_values
from nbcompile.compiler.loop_ir.index import ONE, ZERO, Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Loop

if TYPE_CHECKING:
    from nbcompile.compiler.codegen.c.nests import Nests

CHUNK = 256


def scatter_nest(printer: Nests) -> None:
    """Print the kernel of a group that holds one scatter."""
    group = printer.values.group
    loop = next(item for item in group.loops if item.kind == "scatter")
    _copy_base(printer, loop)
    resolver = Resolver(group, group.bindings, printer.nest, printer.buffers)
    binding = group.bindings[loop.id]
    resolver.origin = loop.id
    value = resolver.value(loop.body, binding)
    targets = tuple(resolver.resolved(place, binding) for place in loop.target or ())
    out = printer.buffers[loop.name]
    place = out.offset(targets)
    printer.names = resolver.names  # this part numbers its values anew
    safe = [target.axis for target in targets if target.axis is not None]
    lane = safe[-1] if safe else None
    axes = [axis for axis in printer.nest.axes if axis is not lane]
    if lane is not None:
        low, high = _open_chunks(printer, lane)
    for axis in axes:
        printer.for_(axis)
    if lane is not None:
        printer.out.add("#pragma omp simd" + _clause(printer, place, value))
        printer.for_(lane, low, high)
    scope = printer.define([value], {}, {})
    order, certain = printer.needed([value], {}, {})
    printer.report_gathers([item for item in order if item.number in certain], scope)
    _report_place(printer, place, loop, scope)
    name = printer.memory(loop.name, write=True)
    where = f"{name}[{printer.place(place, scope)}]"
    _combine(printer, loop, where, printer.text(value, scope))
    for _ in range(len(axes) + (2 if lane is not None else 0)):
        printer.out.close()


def _copy_base(printer: Nests, loop: Loop) -> None:
    """``out = base``, computing the base where it is a loop of this group."""
    group = printer.values.group
    out = printer.buffers[loop.name]
    axes = tuple(Axis(f"c{n}", extent) for n, extent in enumerate(out.shape) if extent != ONE)
    kept: list[IndexExpr] = []
    free = iter(axes)
    for extent in out.shape:
        kept.append(ZERO if extent == ONE else index(next(free)))
    for n, axis in enumerate(axes):
        printer.axis_names[axis.text] = printer.fresh(f"c{n}")
    resolver = Resolver(group, group.bindings, printer.nest, printer.buffers)
    resolver.origin = loop.id
    from nbcompile.compiler.loop_ir.expr import Load

    base = printer.buffers[loop.base or ""]
    value = resolver.value(Load(base.name, tuple(kept), base.dtype), {})
    printer.names = resolver.names
    for n, axis in enumerate(axes):
        if n == 0 and out.bytes_hint() > (1 << 16):
            printer.out.add("#pragma omp parallel for" + _clause(printer, ZERO, value))
        printer.for_(axis)
    scope = printer.define([value], {}, {})
    order, certain = printer.needed([value], {}, {})
    printer.report_gathers([item for item in order if item.number in certain], scope)
    printer.store(Store(loop, loop.name, out.offset(tuple(kept)), value), scope)
    for _ in axes:
        printer.out.close()


def _open_chunks(printer: Nests, lane: Axis) -> tuple[str, str]:
    """Threads over chunks of ``lane``; returns the bounds of a chunk."""
    first, last = printer.fresh("first"), printer.fresh("last")
    extent = printer.extent(lane)
    points = 1
    for axis in printer.nest.axes:
        points *= max(axis.extent.hint(), 1)
    if points > (1 << 14):
        clause = " reduction(|:bad)" if printer.values.group.loops else ""
        printer.out.add(f"#pragma omp parallel for{clause}")
        printer.checks_bounds = True
    chunk = min(CHUNK, max(16, -(-lane.extent.hint() // 2)))
    printer.out.open(f"for (long {first} = 0; {first} < {extent}; {first} += {chunk})", axes=(lane,))
    printer.out.add(f"const long {last} = {first} + {chunk} < {extent} ? {first} + {chunk} : {extent};")
    return first, last


def _clause(printer: Nests, place: IndexExpr, value: Value) -> str:
    """What a loop is told whose statements note indices that are out of range."""
    places = (place, *(item.place for item in walk_values([value, *gathered(place)])))
    if not any(map(gathered, places)):
        return ""
    printer.checks_bounds = True
    return " reduction(|:bad)"


def _report_place(printer: Nests, place: IndexExpr, loop: Loop, scope: dict[int, str]) -> None:
    for atom in sorted(place.atoms(), key=lambda atom: atom.text):
        if isinstance(atom, Gathered):
            printer.checks_bounds = True
            text, size = strip(printer.text(atom.value, scope)), printer.place(atom.size, scope)
            printer.out.add(f"{out_of_range(text, size)};", [loop.id])


def _combine(printer: Nests, loop: Loop, where: str, value: str) -> None:
    dtype = printer.buffers[loop.name].dtype
    from nbcompile.compiler.codegen.c.expressions import REGISTER_TYPES
    from nbcompile.compiler.loop_ir.expr import compute_dtype

    printer.out.touch(loop.name, None, write=True)
    if loop.mode is None or loop.mode == "set":
        printer.out.add(f"{where} = {printer.stored(value, dtype)};", [loop.id])
        return
    register = compute_dtype(dtype)
    old = printer.fresh("old")
    loaded = where
    if dtype.itemsize == 2 and dtype.is_floating_point:
        import torch

        loaded = (
            f"{printer.writer.helper('bf16_to_float')}({where})"
            if dtype == torch.bfloat16
            else f"(float){where}"
        )
    printer.out.add(f"const {REGISTER_TYPES[register]} {old} = {loaded};", [loop.id])
    name = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}[loop.mode]
    text = printer.writer.op(name, [old, value], register, register)
    printer.out.add(f"{where} = {printer.stored(text, dtype)};", [loop.id])
