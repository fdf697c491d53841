"""The pipeline below capture: the table of contents of the compiler.

AtenGraph → LoopProgram → FusedProgram → KernelSource → CompiledModule
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from nbcompile.codegen.groups_to_source import groups_to_source
from nbcompile.codegen.wrapper import library_name, operator_name, uses_out_variant
from nbcompile.environment import detect
from nbcompile.errors import LoweringError
from nbcompile.fuse.loops_to_groups import loops_to_groups
from nbcompile.fuse.record import parts
from nbcompile.loop_ir.nodes import LibraryCall, Loop, LoopProgram
from nbcompile.loop_ir.verify import verify
from nbcompile.lower.aten_to_loops import aten_to_loops
from nbcompile.options import Options
from nbcompile.recorder import Recorder
from nbcompile.runtime import binary, source_to_module
from nbcompile.runtime.toolchain import find_toolchain
from nbcompile.stages import AtenGraph, CompiledModule


def compile_graph(aten: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule:
    """Compile one ATen graph to a module for the CPU.

    Raises LoweringError for a graph that no program can express, ToolchainError without a working C
    compiler; the caller then runs the graph as it is.
    """
    _check_device(aten)
    toolchain = find_toolchain()
    recorder.environment = replace(
        detect(options.target), compiler=toolchain.version, flags=(*toolchain.flags, *toolchain.libraries)
    )
    step = recorder.step
    with step("lower", aten.id, f"{aten.id}.loops"):
        loops = aten_to_loops(aten, options)
        if options.verify:
            verify(loops)
    with step("fuse", f"{aten.id}.loops", f"{aten.id}.fused"):
        fused = loops_to_groups(loops, options)
    with step("codegen", f"{aten.id}.fused", f"{aten.id}.source"):
        source = groups_to_source(fused, toolchain.vector_math)
    recorder.extend(parts(fused, source, aten))
    recorder.progress(f"building {len(source.kernels)} kernels of {aten.id}")
    library = binary.find_or_build(source, toolchain, options, recorder)
    module = source_to_module.bind(
        source, library.functions, _library_functions(loops), loops.constants, library.from_cache
    )
    if _repeatable(loops):
        return source_to_module.with_fallback(module, aten, recorder)
    library.functions()  # what cannot be done again must not fail at its first call for want of a compiler
    return module


def _repeatable(loops: LoopProgram) -> bool:
    """Whether a run that broke off can be done again: it overwrote nothing and drew no numbers."""
    return not any(
        item.mutates
        if isinstance(item, Loop)
        else torch.Tag.nondeterministic_seeded in getattr(item.target, "tags", ())
        for item in loops.statements
    )


def _check_device(aten: AtenGraph) -> None:
    for node in aten.module.graph.nodes:
        value = node.meta.get("val")
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, torch.Tensor) and item.device.type != "cpu":
                raise LoweringError(f"{node.name} is on {item.device}: this target compiles for the CPU")


def _library_functions(loops: LoopProgram) -> Mapping[str, Any]:
    """The wrapper's globals for library calls."""
    outs = {"mm_out": torch.mm, "bmm_out": torch.bmm, "addmm_out": torch.addmm, "baddbmm_out": torch.baddbmm}
    found: dict[str, Any] = {}
    for item in loops.statements:
        if isinstance(item, LibraryCall):
            name = library_name(item)
            found[name] = outs[name] if uses_out_variant(item) else item.target
            found |= {operator_name(a): a for a in item.args if isinstance(a, torch._ops.OpOverload)}
    return found
