"""The pipeline below capture: the table of contents of the compiler.

AtenGraph → LoopProgram → FusedProgram → KernelSource → CompiledModule
"""

from __future__ import annotations

from dataclasses import replace

import torch

from nbcompile.codegen.groups_to_source import groups_to_source
from nbcompile.compilation import PassRecord
from nbcompile.environment import detect
from nbcompile.errors import LoweringError
from nbcompile.fuse.loops_to_groups import loops_to_groups
from nbcompile.fuse.record import parts
from nbcompile.loop_ir.verify import verify
from nbcompile.lower.aten_to_loops import aten_to_loops
from nbcompile.options import Options
from nbcompile.recorder import Recorder
from nbcompile.runtime import binary, graph_cache, source_to_module
from nbcompile.runtime.cache import DiskCache
from nbcompile.runtime.toolchain import Toolchain, find_toolchain
from nbcompile.stages import AtenGraph, CompiledModule, KernelSource


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
    cache = DiskCache.shared()
    name = graph_cache.graph_key(aten, options, toolchain) if options.cache else ""
    stored = graph_cache.find(cache, name) if options.cache else None
    source = _recalled(stored, aten, recorder) if stored else _generated(aten, options, recorder, toolchain)
    recorder.progress(f"building {len(source.kernels)} kernels of {aten.id}")
    library = binary.find_or_build(source, toolchain, options, recorder)
    if options.cache and not stored:
        graph_cache.keep(cache, name, source, recorder.part(aten.id))
    constants = source_to_module.graph_constants(aten, source.constants)
    module = source_to_module.bind(source, library.functions, constants, library.from_cache)
    if source.repeatable:
        return source_to_module.with_fallback(module, aten, recorder)
    library.functions()  # what cannot be done again must not fail at its first call for want of a compiler
    return module


def _generated(aten: AtenGraph, options: Options, recorder: Recorder, toolchain: Toolchain) -> KernelSource:
    """The stages, one after the other."""
    with recorder.step("lower", aten.id, f"{aten.id}.loops"):
        loops = aten_to_loops(aten, options)
        if options.verify:
            verify(loops)
    with recorder.step("fuse", f"{aten.id}.loops", f"{aten.id}.fused"):
        fused = loops_to_groups(loops, options)
    with recorder.step("codegen", f"{aten.id}.fused", f"{aten.id}.source"):
        source = groups_to_source(fused, toolchain.vector_math)
    recorder.extend(parts(fused, source, aten))
    return source


def _recalled(stored: graph_cache.Stored, aten: AtenGraph, recorder: Recorder) -> KernelSource:
    """The same code and record from the cache, with steps that took no time."""
    recorder.load_part(stored.record, aten.id)
    for step, before, after in (
        ("lower", aten.id, f"{aten.id}.loops"),
        ("fuse", f"{aten.id}.loops", f"{aten.id}.fused"),
        ("codegen", f"{aten.id}.fused", f"{aten.id}.source"),
    ):
        recorder.add(PassRecord(step, before, after, 0.0))
    return stored.source


def _check_device(aten: AtenGraph) -> None:
    for node in aten.module.graph.nodes:
        value = node.meta.get("val")
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, torch.Tensor) and item.device.type != "cpu":
                raise LoweringError(f"{node.name} is on {item.device}: this target compiles for the CPU")
