"""AtenGraph → CompiledModule, by way of XLA, with the record of what it did."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from nbcompile.backends.xla.module import Module
from nbcompile.backends.xla.program import XlaProgram
from nbcompile.backends.xla.record import record
from nbcompile.backends.xla.split import check, plan
from nbcompile.compiler.stages import AtenGraph, CompiledModule, device_of
from nbcompile.errors import BackendError
from nbcompile.record.recorder import Recorder


def compile_aten(aten: AtenGraph, recorder: Recorder, flags: Mapping[str, Any]) -> CompiledModule:
    """Compile one graph for the sizes at capture. BackendError, with the operator and its line, if XLA cannot
    have it: before anything is compiled where the operator is unknown."""
    with recorder.step("split", aten.id):
        check(aten)
        steps = plan(aten)
    device = device_of(aten.module)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    if device.type == "cpu" and cores != threads:
        recorder.add(f"XLA takes as many threads as there are cores ({cores}), torch is set to {threads}")
    programs: dict[int, XlaProgram] = {}

    def compiled(place: int, program: XlaProgram) -> None:
        if place not in programs:
            programs[place] = program
            return
        recorder.add(
            f"XLA compiles {aten.id} again for each set of shapes: the record shows those of the first."
        )

    module = Module(aten, steps, device, flags, compiled)
    with recorder.step("xla", aten.id, f"{aten.id}.fused"):
        module.prepare()
    with recorder.step("record", f"{aten.id}.fused"):
        recorder.extend(record(aten, steps, [programs[place] for place in sorted(programs)]))
    if any(step.torch for step in steps.steps):
        return CompiledModule(aten.id, module)  # what drew or wrote before it failed cannot be done again
    return CompiledModule(aten.id, _with_fallback(module, aten, recorder))


def _with_fallback(module: Module, aten: AtenGraph, recorder: Recorder) -> Callable[[list[Any]], Any]:
    """A call whose sizes XLA cannot have runs in ATen, and the record says so."""

    def call(inputs: list[Any]) -> Any:
        taken = list(inputs)
        inputs.clear()
        try:
            return module(list(taken))
        except BackendError as error:
            recorder.ran_eagerly[aten.id] = f"for other sizes than those at capture: {error.message}"
            recorder.add(f"graph {aten.id} runs eagerly {recorder.ran_eagerly[aten.id]}")
            return aten.module(*taken)

    return call
