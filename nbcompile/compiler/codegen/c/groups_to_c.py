"""FusedProgram → KernelSource: one header-free C file of kernels, and the Python that calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nbcompile.compiler.codegen.c.checks import called_ahead, look_ahead, stop_if_bad, with_ahead
from nbcompile.compiler.codegen.c.columns import columns_nest, is_columns
from nbcompile.compiler.codegen.c.expressions import CWriter
from nbcompile.compiler.codegen.c.nests import LONG, Nests
from nbcompile.compiler.codegen.c.rows import points_nest, rows_nest
from nbcompile.compiler.codegen.c.scatter import look_ahead_of_scatter, scatter_nest
from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.codegen.source import comment_of, source_of
from nbcompile.compiler.kernel_ir.group_to_values import kernel_values, resolver_of
from nbcompile.compiler.kernel_ir.values import KernelValues, walk_values
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group, Nest
from nbcompile.compiler.loop_ir.index import ONE, Axis, product
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.passes import each_kernel
from nbcompile.compiler.stages import KernelSource

NESTS: Mapping[str, Callable[[Nests], None]] = {
    "points": points_nest, "rows": rows_nest, "columns": columns_nest, "scatter": scatter_nest,
}  # fmt: skip
"""What prints each shape of nest."""


def groups_to_c(program: FusedProgram, vector_math: frozenset[str]) -> KernelSource:
    """Print every group. ``vector_math`` names the C functions that have a SIMD version here."""
    writer = CWriter()
    buffers = program.program.buffers()

    def printed(place: int) -> PrintedKernel:
        group = program.groups[place]
        kernel = print_kernel(group, buffers, writer, comment_of(group, program))
        return with_ahead(kernel, ahead[group.id]) if group.id in ahead else kernel

    ahead = called_ahead(program, lambda group: print_checks(group, buffers, writer))
    made = each_kernel([group.loops for group in program.groups], printed)
    kernels = {group.id: kernel for group, kernel in zip(program.groups, made, strict=True)}
    head = ["// made by nbcompile; header-free C", _declarations(writer, vector_math)]
    return source_of(program, "c", kernels, [part for part in head if part])


def print_kernel(
    group: Group, buffers: Mapping[str, Buffer], writer: CWriter, comment: Sequence[str]
) -> PrintedKernel:
    """The C function of a group; ``comment`` lines are put above it."""
    nests = Nests(_values(group, buffers), buffers, writer)
    shape = nest_of(nests)
    if group.in_place and shape != "scatter" and look_ahead(nests, nests.values.needed):
        stop_if_bad(nests)
    NESTS[shape](nests)
    return nests.function(comment)


def print_checks(group: Group, buffers: Mapping[str, Buffer], writer: CWriter) -> PrintedKernel | None:
    """The C function that looks at the indices which a group gathers by; None if none is known beforehand."""
    nests = Nests(_values(group, buffers), buffers, writer)
    nests.split.clear()
    nests.writes.clear()
    of_scatter = nest_of(nests) == "scatter"
    if not (look_ahead_of_scatter(nests) if of_scatter else look_ahead(nests, nests.values.needed)):
        return None
    nests.checks_bounds = True
    return nests.function([f"what {group.name} gathers by: nothing is overwritten before"], "_indices")


def _values(group: Group, buffers: Mapping[str, Buffer]) -> KernelValues:
    """What the kernel is printed from: sums over everything, made of rows that end after a few vectors, as
    one long row where memory has no gap between them, in whichever order that has them."""
    values = kernel_values(group, buffers)
    nest = values.nest
    points = product(axis.extent for axis in nest.axes)
    whole = values.reductions and all(
        buffers[item.output].numel() == ONE
        and item.position is None
        and product(axis.extent for axis in item.loop.axes) == points  # none is folded but once a row
        for item in values.reductions
    )
    if not whole:
        return values
    order = _in_memory_order(group, buffers)
    short = nest.rows and product(axis.extent for axis in nest.inner_axes).constant in range(LONG)
    if not short and order == group.nest.axes:
        return values
    joined = kernel_values(replace(group, nest=Nest(order, frozenset(order))), buffers)
    return joined if len(joined.nest.axes) == 1 else values


def _in_memory_order(group: Group, buffers: Mapping[str, Buffer]) -> tuple[Axis, ...]:
    """The axes of a group as the tensor that has most of them lies in memory; as they are if none tells."""
    axes = group.nest.axes
    values = resolver_of(group, group.nest, buffers, narrow=False).resolve()
    loads = [value for value in walk_values(values.roots) if value.kind == "load"]
    place = max(loads, key=lambda value: len(value.axes)).place if loads else None
    steps = [None if place is None else place.coefficient(axis) for axis in axes]
    known = {axis: step.constant for axis, step in zip(axes, steps, strict=True) if step is not None}
    if any(known.get(axis) is None for axis in axes):
        return axes
    return tuple(sorted(axes, key=lambda axis: -(known[axis] or 0)))


def nest_of(nests: Nests) -> str:
    """The shape of nest that suits a kernel: a key of :data:`NESTS`."""
    if any(loop.kind == "scatter" for loop in nests.values.group.loops):
        return "scatter"
    if not nests.nest.inner:
        return "points"
    return "columns" if is_columns(nests) else "rows"


def _declarations(writer: CWriter, vector_math: frozenset[str]) -> str:
    """The C library's functions that kernels call, and helpers: what a helper calls was noted before it."""
    lines = []
    for name, (kind, arity) in sorted(writer.functions.items()):
        simd = 'simd("notinbranch"), ' if name in vector_math else ""
        lines.append(f"__attribute__(({simd}const)) {kind} {name}({', '.join([kind] * arity)});")
    return "\n".join([*lines, *writer.helpers.values()])
