"""FusedProgram → KernelSource for a GPU: a file of Triton functions, and the Python that calls them."""

from __future__ import annotations

from dataclasses import replace

from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.codegen.source import comment_of, source_of
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.schedules import PRINTERS
from nbcompile.compiler.loop_ir.expr import HALF
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.passes import each_kernel
from nbcompile.compiler.schedule import choose
from nbcompile.compiler.stages import KernelSource
from nbcompile.targets import Target


def groups_to_triton(program: FusedProgram, target: Target) -> KernelSource:
    """Print every group for ``target``. Raises CodegenError for what Triton cannot express."""
    writer = TritonWriter(early=target.launches_early)
    buffers = program.program.buffers()

    def printed(place: int) -> PrintedKernel:
        group = program.groups[place]
        writer.precise = not _half_only(group)
        work, schedule = choose(group, buffers, target)
        made = PRINTERS[type(schedule)](work, schedule, writer).print(comment_of(group, program))
        return replace(made, title=schedule.title)

    made = each_kernel([group.loops for group in program.groups], printed)
    kernels = {group.id: kernel for group, kernel in zip(program.groups, made, strict=True)}
    head = ["# made by nbcompile", "import triton", "import triton.language as tl", *writer.imports.values()]
    return source_of(program, "triton", kernels, ["\n".join(head), *writer.helpers.values()])


def _half_only(group: Group) -> bool:
    """Whether everything that a group stores is of a half type, or no floating-point number."""
    types = {out.dtype for loop in group.loops for out in loop.outputs if out.name in group.stored}
    return all(dtype in HALF or not dtype.is_floating_point for dtype in types)
