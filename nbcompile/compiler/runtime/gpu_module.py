"""KernelSource for a GPU → CompiledModule: on that GPU, in Triton's interpreter, or not run at all.

A chip that is not here gets its code built and shown; the graph then runs in ATen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import fx

from nbcompile import targets
from nbcompile.compiler import other_devices
from nbcompile.compiler.in_aten import in_aten
from nbcompile.compiler.runtime.autotune.tuner import Tuner
from nbcompile.compiler.runtime.bind import Allocate, Wrap, bind
from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.compiler.runtime.gpu.build import Builds, TritonBinary
from nbcompile.compiler.runtime.gpu.grid import grid_of, hints_of
from nbcompile.compiler.runtime.stopwatch import Stopwatch
from nbcompile.compiler.stages import AtenGraph, CompiledModule, KernelSource, can_be_guarded, device_of
from nbcompile.errors import LaunchError, LoweringError
from nbcompile.record import roofline
from nbcompile.record.compilation import Kernel, Launched
from nbcompile.record.recorder import Recorder
from nbcompile.targets import Target

Functions = Mapping[str, Callable[..., None]]


def on_device(
    tuner: Tuner, binary: TritonBinary, device: torch.device, aten: AtenGraph,
    constants: Mapping[str, Any], stopwatch: Stopwatch | None = None, around: Wrap | None = None,
    empty: Allocate | None = None,
) -> CompiledModule:  # fmt: skip
    """The module that launches the source of ``tuner`` on ``device``, once its kernels are built; the tuner
    searches for faster configs where the options ask for it. The others are as for ``bind``."""
    source, chip, recorder = tuner.source, tuner.chip, tuner.recorder

    def functions() -> Functions:
        from nbcompile.compiler.runtime.gpu.launch import launchers

        built = _that_fit(source, binary.built(), chip, device)
        note_launches(recorder, source, built, chip, texts=False)
        tuner.runs(built)
        found: Functions = launchers(source, built, chip, device)
        return found

    away = other_devices.away(aten.module, device)
    stay = {node.name for node in away}
    moved = {
        name: item.to(device) if isinstance(item, torch.Tensor) and name not in stay else item
        for name, item in constants.items()
    }

    def calling(launchers: Callable[[], Functions]) -> CompiledModule:
        there = empty or allocator(device)
        return bind(source, launchers, moved, binary.from_cache, there, stopwatch, around)

    module = tuner.module(calling, functions, device)
    return replace(module, call=_with_scalars_there(module.call, _scalars(aten, away), device))


def _that_fit(source: KernelSource, built: Builds, chip: Target, device: torch.device) -> Builds:
    """``built`` with a smaller config for each launch whose programs wait for each other and would not all be
    on the chip at once (the registers that a function takes are known only now)."""
    from nbcompile.compiler.runtime.gpu.launch import resident_programs

    found = dict(built)
    for launch in source.launches:
        if not launch.together:
            continue
        for config in (found[launch.function].config, *launch.configs):
            item = found[launch.function]
            if item.config != config:
                item = triton_build.begin(source, launch, config, chip).result()
            found[launch.function] = item
            programs = math.prod(grid_of(launch, config, hints_of(launch)))
            if programs <= resident_programs(item, chip, device):
                break
        else:
            raise LaunchError(f"the programs of {launch.function} cannot all be on the chip at once")
    return found


def interpreted(
    source: KernelSource, constants: Mapping[str, Any], around: Wrap | None = None,
    empty: Allocate | None = None,
) -> CompiledModule:  # fmt: skip
    """The module that runs ``source`` in Triton's interpreter, on CPU tensors; the others as for ``bind``."""
    from nbcompile.compiler.runtime.interpreter.interpret import interpreted as functions_of

    there = empty or allocator(torch.device("cpu"))
    return bind(source, lambda: functions_of(source), constants, False, there, around=around)


def elsewhere(
    source: KernelSource, binary: TritonBinary, chip: Target, aten: AtenGraph, recorder: Recorder
) -> CompiledModule:
    """The graph in ATen, its kernels built for ``chip`` and put in the record with all their texts."""
    note_launches(recorder, source, binary.built(), chip, texts=True)
    recorder.execution = "eager"
    reason = f"it was compiled for {chip.part or chip.name}, {why_elsewhere(chip, device_of(aten.module))}"
    recorder.leave_to_eager(aten.id, reason)
    if targets.is_here(chip.name):
        recorder.add(f"graph {aten.id} runs eagerly: {reason}")
    return CompiledModule(source.graph, in_aten(aten.module), binary.from_cache)


def why_elsewhere(chip: Target, device: torch.device) -> str:
    """Why code for ``chip`` does not run on tensors of ``device``."""
    if not targets.is_here(chip.name):
        return "which is not here"
    return f"and its tensors are on {'the CPU' if device.type == 'cpu' else 'another GPU'}"


def note_launches(
    recorder: Recorder, source: KernelSource, built: Builds, chip: Target, *, texts: bool
) -> None:
    """Add to the record how each kernel is launched and what its code takes; with ``texts``, every text
    that the compiler made of it (of several functions one after the other)."""
    by_kernel: dict[str, list[tuple[Launched, dict[str, str]]]] = {}
    for launch in source.launches:
        item = built[launch.function]
        facts = triton_build.launched(launch, item, hints_of(launch))
        found = triton_build.artifacts(item, chip) if texts else {}
        by_kernel.setdefault(launch.kernel, []).append((facts, found))

    def change(kernel: Kernel) -> Kernel:
        parts = by_kernel.get(kernel.id)
        if parts is None:
            return kernel
        sources = dict(kernel.sources)
        for kind in dict.fromkeys(kind for _, found in parts for kind in found):
            sources[kind] = "\n".join(found[kind] for _, found in parts if kind in found)
        return replace(kernel, launches=tuple(facts for facts, _ in parts), sources=sources)

    recorder.change_kernels(change)


def note_grids(recorder: Recorder, source: KernelSource) -> None:
    """Add to the record how each kernel is launched that is not built: what its code takes is not known."""
    by_kernel: dict[str, list[Launched]] = {}
    for launch in source.launches:
        config = launch.configs[0]
        grid = grid_of(launch, config, hints_of(launch))
        told = Launched(launch.function, grid, dict(config.constants), config.warps, config.stages)
        by_kernel.setdefault(launch.kernel, []).append(told)
    recorder.change_kernels(
        lambda kernel: replace(kernel, launches=tuple(by_kernel.get(kernel.id, kernel.launches)))
    )


def allocator(device: torch.device) -> Callable[..., torch.Tensor]:
    """``empty(shape, strides, dtype)`` on a device, as directly as torch lets one."""
    fast = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
    if fast is not None and device.type == "cuda" and torch.cuda.device_count() == 1:
        return fast  # type: ignore[no-any-return]

    def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return empty


def check_devices(aten: AtenGraph, device: torch.device) -> None:
    """LoweringError if the graph works on a device that has no memory that kernels could be given."""
    if device.type not in ("cpu", "cuda"):
        raise LoweringError(f"the graph works on {device}")


def guard_index_width(aten: AtenGraph, limit: int) -> None:
    """Kernels made for a forward graph whose tensors have fewer than ``limit`` elements from first to last
    count in 32 bits: have Dynamo capture it anew for a size at which that is not so. Sizes that are numbers
    need no guard, and a backward graph comes too late for one (its tensors are as large as the forward's)."""
    if aten.stage != "forward":
        return
    for node in aten.module.graph.nodes:
        for item in _tensors(node.meta.get("val")):
            span: Any = 1
            for size, stride in zip(item.shape, item.stride(), strict=True):
                span = span + (size - 1) * stride
            if not isinstance(span, torch.SymInt) or span.node.hint is None or span.node.hint >= limit:
                continue
            env, symbols = span.node.shape_env, span.node.expr.free_symbols
            if all(map(partial(can_be_guarded, env=env), symbols)):  # else 64 bits are counted in
                bool(span < limit)  # asking is what makes the guard


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    for item in value if isinstance(value, tuple | list) else (value,):
        if isinstance(item, torch.Tensor):
            yield item


def _scalars(aten: AtenGraph, away: Set[fx.Node]) -> tuple[int, ...]:
    """Positions of the inputs on the CPU that are moved: numbers, and what is only read as a copy."""
    inputs = [node for node in aten.module.graph.nodes if node.op == "placeholder"]
    return tuple(
        place for place, node in enumerate(inputs)
        if isinstance(value := node.meta.get("val"), torch.Tensor) and value.device.type == "cpu"
        and node not in away
    )  # fmt: skip


def _with_scalars_there(
    call: Callable[[list[Any]], Any], places: tuple[int, ...], device: torch.device
) -> Callable[[list[Any]], Any]:
    if not places:
        return call

    def moving(args: list[Any]) -> Any:
        for place in places:
            # The memory of a pinned tensor may hold something else before the GPU has read it.
            args[place] = args[place].to(device, non_blocking=not args[place].is_pinned())
        return call(args)

    return moving


def predicted(kernel: Kernel, source: KernelSource, chip: Target) -> Kernel:
    """The record of a kernel of ``source`` with the time that the chip's published rates allow."""
    if not kernel.graph.startswith(f"{source.graph}."):
        return kernel
    launches = sum(1 for launch in source.launches if launch.kernel == kernel.id)
    moved, matrix = kernel.bytes_read + kernel.bytes_written, roofline.uses_matrix_units(kernel)
    seconds = roofline.predicted_seconds(moved, kernel.flops, chip, launches=max(1, launches), matrix=matrix)
    return replace(kernel, target=chip.name, predicted_seconds=seconds)
