"""FusedProgram → KernelSource for a GPU: a file of Triton functions, and the Python that calls them."""

from __future__ import annotations

from nbcompile.compiler.codegen.c.groups_to_c import comment_of, is_repeatable
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.schedules import PRINTERS
from nbcompile.compiler.codegen.wrapper import library_targets, print_wrapper
from nbcompile.compiler.loop_ir.expr import HALF
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.versions import verify_kernel
from nbcompile.compiler.schedule import choose
from nbcompile.compiler.stages import KernelSource, KernelText
from nbcompile.targets import Target


def groups_to_triton(program: FusedProgram, target: Target) -> KernelSource:
    """Print every group for ``target``. Raises CodegenError for what Triton cannot express."""
    writer = TritonWriter(early=target.launches_early)
    buffers = program.program.buffers()
    kernels, texts = {}, []
    for group in program.groups:
        writer.precise = not _half_only(group)
        work, schedule = choose(group, buffers, target)
        printed = PRINTERS[type(schedule)](work, schedule, writer).print(comment_of(group, program))
        verify_kernel(group.name, printed.walk, group.in_place.values())
        kernels[group.id] = printed
        texts.append(KernelText(group.id, group.name, printed.text, printed.lines, schedule.title))
    head = ["# made by nbcompile", "import triton", "import triton.language as tl", *writer.imports.values()]
    parts = ["\n".join(head), *writer.helpers.values(), *(item.text for item in texts)]
    wrapper, steps = print_wrapper(program, kernels, "triton")
    return KernelSource(
        graph=program.program.graph,
        language="triton",
        source="\n\n\n".join(parts) + "\n",
        kernels=tuple(texts),
        wrapper=wrapper,
        steps=steps,
        entry_points=tuple(call.symbol for item in kernels.values() for call in item.calls),
        libraries=library_targets(program),
        constants=tuple(program.program.constants),
        repeatable=is_repeatable(program),
        launches=tuple(launch for item in kernels.values() for launch in item.launches),
    )


def _half_only(group: Group) -> bool:
    """Whether everything that a group stores is of a half type, or no floating-point number."""
    types = {out.dtype for loop in group.loops for out in loop.outputs if out.name in group.stored}
    return all(dtype in HALF or not dtype.is_floating_point for dtype in types)
