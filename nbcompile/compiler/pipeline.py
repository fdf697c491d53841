"""The table of contents of the compiler: what a program goes through, pass by pass.

    FxGraph → AtenGraph → LoopProgram → FusedProgram → KernelSource → CompiledModule

Each pass takes a value and returns a value, leaves a PassRecord, and can be called by itself::

    setting = Setting(options, recorder)
    fused = fuse(lower(aten, setting), setting)

What is around them, caches, edits, tuning and replay, is in :mod:`nbcompile.compiler.compile_graph`; what
runs the code that they make, in :mod:`nbcompile.compiler.runtime`.
"""

from __future__ import annotations

from nbcompile.compiler.capture.function_to_fx import FX_PASSES
from nbcompile.compiler.capture.fx_to_aten import JOINT_PASSES, LAYOUT_PASSES
from nbcompile.compiler.codegen.c.groups_to_c import groups_to_c
from nbcompile.compiler.codegen.triton.groups_to_triton import groups_to_triton
from nbcompile.compiler.fuse.limits import limits_of
from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.fuse.storage import with_storage
from nbcompile.compiler.kernel_ir.bounds import verify_bounds
from nbcompile.compiler.kernel_ir.parts import parts_alone
from nbcompile.compiler.loop_ir.fused import FusedProgram
from nbcompile.compiler.loop_ir.nodes import LoopProgram
from nbcompile.compiler.loop_ir.verify import verify
from nbcompile.compiler.loop_ir.versions import verify_versions
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.passes import Pass, Setting
from nbcompile.compiler.schedule.memory_order import in_one_order
from nbcompile.compiler.stages import AtenGraph, KernelSource


def lower(aten: AtenGraph, setting: Setting) -> LoopProgram:
    """Every operator of a graph as loops over scalars, or as a call of its library. LoweringError for what
    neither can express."""
    loops = aten_to_loops(aten, setting.options, setting.apart_from.called)
    return verify(loops) if setting.options.verify else loops


def fuse(loops: LoopProgram, setting: Setting) -> FusedProgram:
    """The loops in groups, one a kernel, with the decision on each pair and its reason."""
    return loops_to_groups(loops, setting.options, setting.apart_from.alone)


def order_memory(fused: FusedProgram, setting: Setting) -> FusedProgram:
    """Copies where a kernel would meet memory in two orders at once."""
    fused = in_one_order(fused, setting.chip)
    if setting.options.verify:
        verify(fused.program)
    return fused


def choose_products(fused: FusedProgram, setting: Setting) -> FusedProgram:
    """Matrix products by kernels of ours, with what follows them, where the mode asks for it and they are
    the faster ones."""
    return setting.products.choose(fused) if setting.products is not None else fused


def prove_bounds(fused: FusedProgram, setting: Setting) -> FusedProgram:
    """The same program: no access of a kernel leaves its memory. VerifyError, or SymbolicSizeError, else."""
    verify_bounds(fused, narrow=setting.chip.is_gpu)
    return fused


def store(fused: FusedProgram, setting: Setting) -> FusedProgram:
    """A place for each value; VerifyError where a kernel would read what has been overwritten."""
    return verify_versions(with_storage(fused, limits_of(setting.chip), apart=setting.apart))


def keep_to_parts(fused: FusedProgram, setting: Setting) -> FusedProgram:
    """Kernels that change a part of an input in its place go over that part alone."""
    return parts_alone(fused)


def print_c(fused: FusedProgram, setting: Setting) -> KernelSource:
    """C for every group, and the Python that calls it."""
    return groups_to_c(fused, setting.vector_math)


def print_triton(fused: FusedProgram, setting: Setting) -> KernelSource:
    """Triton for every group, and the Python that launches it. CodegenError for what Triton has no way of."""
    return groups_to_triton(fused, setting.chip)


CAPTURED = FX_PASSES  # of the graph that Dynamo gives, before AOTAutograd
TRACED = (*LAYOUT_PASSES, *JOINT_PASSES)  # of those that AOTAutograd gives; the last two of joint ones

_FIRST = (Pass("lower", lower, makes="loops"), Pass("fuse", fuse, makes="fused"))
_FOR_A_GPU = (Pass("memory order", order_memory), Pass("products", choose_products))
_PROVED = (Pass("bounds", prove_bounds),)

# Down to the program whose kernels are known, and from there to its code: the storage is decided anew, with
# every value apart, if what is printed cannot be proved to read what it means.
CPU = (
    (*_FIRST, *_PROVED),
    (Pass("storage", store), Pass("parts", keep_to_parts), Pass("codegen", print_c, makes="source")),
)
GPU = (
    (*_FIRST, *_FOR_A_GPU, *_PROVED),
    (Pass("storage", store), Pass("parts", keep_to_parts), Pass("codegen", print_triton, makes="source")),
)
