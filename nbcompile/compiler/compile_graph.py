"""One ATen graph to a module: the passes of its target (:mod:`nbcompile.compiler.pipeline`), and what stands
around them: the cache, edited kernels, tuning, replay, and the second compile of products that were measured.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import Any, cast

import torch
from torch import fx

from nbcompile import targets
from nbcompile.compiler import nested, other_devices, pipeline
from nbcompile.compiler.capture.fixed_sizes import can_fix
from nbcompile.compiler.kernel_ir import integer_ranges
from nbcompile.compiler.lower.outputs import made_again, made_anew
from nbcompile.compiler.lower.registry import from_outside
from nbcompile.compiler.passes import Pass, Setting, failed_kernels, places, run
from nbcompile.compiler.products import Products, in_two_steps
from nbcompile.compiler.runtime import artifacts, bind, gpu_module, graph_cache
from nbcompile.compiler.runtime.autotune.tuner import Tuner
from nbcompile.compiler.runtime.c import binary
from nbcompile.compiler.runtime.c.toolchain import Toolchain, find_toolchain
from nbcompile.compiler.runtime.cache import DiskCache
from nbcompile.compiler.runtime.cuda_graphs import replays as cuda_graphs
from nbcompile.compiler.runtime.edit import edited
from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.compiler.runtime.gpu.tools import triton_version
from nbcompile.compiler.runtime.pool import POOL
from nbcompile.compiler.runtime.stopwatch import Stopwatch
from nbcompile.compiler.stages import AtenGraph, CompiledModule, KernelEdit, KernelSource, Portable, device_of
from nbcompile.compiler.stages_to_record import parts
from nbcompile.compiler.taken_apart import is_lasting, taken_apart
from nbcompile.errors import (
    CodegenError,
    EditError,
    KernelError,
    LoweringError,
    NbcompileError,
    RecordError,
    SymbolicSizeError,
    ToolchainError,
    VerifyError,
)
from nbcompile.options import REPLAY_MODES, Options
from nbcompile.record.compilation import PassRecord
from nbcompile.record.environment import detect
from nbcompile.record.recorder import Recorder
from nbcompile.targets import Target

Passes = tuple[tuple[Pass, ...], tuple[Pass, ...]]  # down to the kernels that there are, and up to their code


def compile_graph(
    aten: AtenGraph, options: Options, recorder: Recorder, changes: Sequence[KernelEdit] = ()
) -> CompiledModule:
    """Compile one ATen graph to a module for where its tensors are, or for the target that is named.
    ``changes``: kernels to edit or to watch; those of another graph are left alone.

    Raises LoweringError for a graph that no program can express, ToolchainError without a working C
    compiler (or Triton, for a GPU); the caller then runs the graph as it is.
    """
    if missing := artifacts.register():
        recorder.add(missing)
    device = device_of(aten.module)
    options = options.for_device(device)
    if options.cache and torch.compiler.config.force_disable_caches:
        recorder.add("torch.compiler.config.force_disable_caches is set: our cache was not read")
        options = replace(options, cache=False)
    gpu_module.check_devices(aten, device)
    with torch.device("cpu"):  # what is computed on the way, whatever device is the default around the call
        if options.chip.is_gpu:
            gpu_module.guard_index_width(aten, integer_ranges.INT32_LIMIT)
            aten, written = other_devices.writing_last(aten, device)
            module = _for_gpu(aten, device, options, recorder, changes=changes)
            return replace(module, call=other_devices.writes(module.call, written)) if written else module
        if device.type != "cpu":
            raise LoweringError(f"code for a CPU cannot be given the memory of {device}")
        return _for_cpu(aten, options, recorder, changes)


def _for_cpu(
    aten: AtenGraph, options: Options, recorder: Recorder, changes: Sequence[KernelEdit]
) -> CompiledModule:
    """C, built by the C compiler of this machine."""
    toolchain = find_toolchain()
    recorder.environment = replace(
        detect(options.target), compiler=toolchain.version, flags=(*toolchain.flags, *toolchain.libraries)
    )
    compiler = (toolchain.fingerprint, toolchain.vector_math)
    setting = Setting(options, recorder, vector_math=toolchain.vector_math)
    source = source_of(aten, pipeline.CPU, setting, compiler)
    recorder.progress(f"building {len(source.kernels)} kernels of {aten.id}")
    constants = _constants(aten, source, options, recorder)
    changed = edited.changes_of(source, changes)
    if changed:
        functions = edited.build_c(source, changed, toolchain, options, recorder)
        source = edited.replaced(source, changed)
        edited.note_edits(recorder, source, changed)
        around = edited.watched(source, changed)
        empty = edited.spoiling(POOL.empty_strided, changed)
        return bind.bind(source, lambda: functions, constants, False, empty, around=around)
    library = binary.find_or_build(source, toolchain, options, recorder)
    stopwatch = recorder.stopwatches[aten.id] = Stopwatch(source)
    code = bind.wrapper_code(source)
    module = bind.bind(
        source, library.functions, constants, library.from_cache, stopwatch=stopwatch, code=code
    )
    if options.cache and not _made_outside(aten, options):
        module = replace(module, portable=_portable(source, code, library.key, constants))
    again = partial(_without_the_refused, aten, setting, toolchain)
    if source.repeatable:
        return bind.with_fallback(_built_at_first_call(module, library.functions, again), aten, recorder)
    try:
        library.functions()  # what cannot be done again must not fail at its first call
    except ToolchainError as error:
        return again(error)
    return module


def _built_at_first_call(
    module: CompiledModule, built: Callable[[], object], again: Callable[[NbcompileError], CompiledModule]
) -> CompiledModule:
    """``module``, in whose place ``again`` makes another if the compiler that ``built()`` waits for has
    refused it by then."""
    state: list[Callable[[list[Any]], Any]] = []

    def call(args: list[Any]) -> Any:
        if not state:
            try:
                built()
            except (KernelError, ToolchainError) as error:
                state.append(again(error).call)
            else:
                state.append(module.call)
        return state[0](args)

    return replace(module, call=call)


def _without_the_refused(
    aten: AtenGraph, setting: Setting, toolchain: Toolchain, error: ToolchainError
) -> CompiledModule:
    """The graph compiled again, the kernels taken apart that the C compiler refuses. Raises ``error`` where
    that helps nothing: it refuses none by itself, or there is no compiler."""
    options, recorder = setting.options, setting.recorder
    if not error.output:
        raise error
    compiler = (toolchain.fingerprint, toolchain.vector_math)
    refused = partial(bind.refused_kernels, toolchain=toolchain)
    source, _ = _taken_apart(aten, pipeline.CPU, setting, compiler, refused, error)
    library = binary.find_or_build(source, toolchain, options, recorder)
    library.functions()
    stopwatch = recorder.stopwatches[aten.id] = Stopwatch(source)
    constants = _constants(aten, source, options, recorder)
    return bind.bind(source, library.functions, constants, False, stopwatch=stopwatch)


def _taken_apart(
    aten: AtenGraph, passes: Passes, setting: Setting, compiler: Sequence[object],
    refused_of: Callable[[KernelSource], Mapping[str, NbcompileError]], error: NbcompileError,
) -> tuple[KernelSource, Setting]:  # fmt: skip
    """The code of a graph that the compiler refuses with ``error``, made again until ``refused_of`` has none
    of its kernels, by its id, and what it was made under. The cache has it in the other's place from then on,
    so that nobody tries again. Raises ``error`` where it refuses none, or nothing is left to take apart."""
    said: list[NbcompileError] = []
    while True:
        setting.recorder.drop_part(aten.id)
        source, setting = _generate(aten, passes, setting)
        refused = refused_of(source)
        if not refused:
            break
        fused = run(passes[0], aten, aten.id, setting)[-1]
        failed = [(group.loops, refused[group.id]) for group in fused.groups if group.id in refused]
        narrower = taken_apart(failed, aten, setting)
        if narrower is None:
            raise error
        setting, said = narrower, [*said, *refused.values()]
    if not said:
        raise error
    if all(map(is_lasting, said)) and (name := _key(aten, setting, compiler)):
        DiskCache.shared().remove(name)
        _keep(name, aten, setting, source)
    return source, setting


def _for_gpu(
    aten: AtenGraph, device: torch.device, options: Options, recorder: Recorder, search: bool = False,
    changes: Sequence[KernelEdit] = (),
) -> CompiledModule:  # fmt: skip
    """Triton, for the GPU that the tensors are on, for the interpreter, or for a chip that is not here.
    ``search``: measure what is the best way to do its matrix products, if that is not known."""
    chip = _chip(device, options)
    runs = device.type != "cpu" and chip.name == targets.of_device(device.index or 0).name
    here = device if runs and not options.interpret else None
    products = Products(options, chip, recorder, here, search=search)
    triton_build.prestart(chip)
    recorder.environment = detect(str(device))
    compiler = (triton_version(), *products.fingerprint)
    setting = Setting(options, recorder, chip, products)
    source = source_of(aten, pipeline.GPU, setting, compiler)
    recorder.change_kernels(lambda kernel: gpu_module.predicted(kernel, source, chip))
    changed = edited.changes_of(source, changes)
    if changed:
        return _changed_for_gpu(source, changed, chip, device if runs else None, aten, options, recorder)
    if options.interpret:
        gpu_module.note_grids(recorder, source)
        module = gpu_module.interpreted(source, _constants(aten, source, options, recorder))
        return bind.with_fallback(module, aten, recorder) if source.repeatable else module
    return _built_for_gpu(aten, source, setting, device if runs else None, compiler)


def _built_for_gpu(
    aten: AtenGraph, source: KernelSource, setting: Setting, device: torch.device | None,
    compiler: Sequence[object],
) -> CompiledModule:  # fmt: skip
    """The module of Triton's ``source``, for ``device`` if the chip is here."""
    options, recorder, chip, products = setting.options, setting.recorder, setting.chip, setting.products
    recorder.progress(f"building {len(source.launches)} Triton functions of {aten.id}")
    # else another module takes this one's place after its first call
    final = products.settled or products.search
    tuner = Tuner(source, chip, options if final else replace(options, mode="default"), recorder)
    library = triton_build.find_or_build(source, chip, options, recorder, tuner.chosen)

    def again(error: NbcompileError) -> CompiledModule:
        def refused(made: KernelSource) -> Mapping[str, NbcompileError]:
            return triton_build.find_or_build(made, chip, options, recorder).refused(wait=True)

        narrower, under = _taken_apart(aten, pipeline.GPU, setting, compiler, refused, error)
        recorder.change_kernels(lambda kernel: gpu_module.predicted(kernel, narrower, chip))
        return replace(_built_for_gpu(aten, narrower, under, device, compiler), from_cache=False)

    at_once = device is None or not source.repeatable
    if refused := library.refused(wait=at_once):  # without waiting: what Triton refuses as it reads it
        return again(next(iter(refused.values())))
    constants = _constants(aten, source, options, recorder)
    if device is None:
        return gpu_module.elsewhere(source, library, chip, aten, recorder)
    stopwatch = recorder.stopwatches[aten.id] = Stopwatch(source)
    module = gpu_module.on_device(tuner, library, device, aten, constants, stopwatch)
    replayed = final and options.mode in REPLAY_MODES
    if source.repeatable:
        if not replayed:  # a replay is of one graph's code
            module = _built_at_first_call(module, library.built, again)
        module = bind.with_fallback(module, aten, recorder)
    else:
        library.built()
    if replayed:
        module = cuda_graphs.replayed(module, aten, source, chip, device, recorder, lambda: tuner.settled)
    if final:
        return module
    better = partial(_measured, module, aten, device, options, recorder)
    return in_two_steps(module, better, torch.cuda.is_current_stream_capturing)


def _changed_for_gpu(
    source: KernelSource, changed: Mapping[str, KernelEdit], chip: Target, device: torch.device | None,
    aten: AtenGraph, options: Options, recorder: Recorder,
) -> CompiledModule:  # fmt: skip
    """Triton with some kernels edited or watched: no search for configs, no CUDA graph, and no run in ATen
    where it fails. ``device`` is where the chip is, if it is here."""
    constants = _constants(aten, source, options, recorder)
    source = edited.replaced(source, changed)
    edited.note_edits(recorder, source, changed)
    around = edited.watched(source, changed)
    place = torch.device("cpu") if options.interpret or device is None else device
    empty = edited.spoiling(gpu_module.allocator(place), changed)
    if options.interpret:
        return gpu_module.interpreted(source, constants, around, empty)
    if device is None:
        raise EditError(
            f"these kernels are for {chip.part or chip.name}, "
            f"{gpu_module.why_elsewhere(chip, device_of(aten.module))}.",
            advice="Compile with --interpret to run them in Triton's interpreter.",
        )
    tuner = Tuner(source, chip, replace(options, mode="default"), recorder)
    try:
        library = triton_build.find_or_build(source, chip, options, recorder, tuner.chosen)
        library.built()
    except KernelError as error:
        raise edited.refused(error, source, changed) from error
    return gpu_module.on_device(tuner, library, device, aten, constants, around=around, empty=empty)


def _measured(
    first: CompiledModule, aten: AtenGraph, device: torch.device, options: Options, recorder: Recorder
) -> CompiledModule:
    """The graph compiled again, its matrix products in the ways that are fastest; ``first`` if that fails."""
    before = recorder.part(aten.id)
    recorder.drop_part(aten.id)
    try:
        return _for_gpu(aten, device, options, recorder, search=True)
    except Exception as error:
        recorder.drop_part(aten.id)
        recorder.load_part(before)
        recorder.add(f"the products of {aten.id} stay as they were: {type(error).__name__}: {error}")
        return first


def _constants(
    aten: AtenGraph, source: KernelSource, options: Options, recorder: Recorder
) -> dict[str, torch.Tensor | Callable[..., Any]]:
    """What the graph holds and its code reads, by name: tensors, and functions of the graphs within it."""
    held = bind.graph_constants(aten, source.constants)
    bodies = {name: item for name, item in held.items() if isinstance(item, fx.GraphModule)}
    return held | nested.callables(aten, bodies, options, recorder, compile_graph)


def _portable(
    source: KernelSource, code: CodeType, library: str, constants: Mapping[str, Any]
) -> Portable | None:
    """What another process needs to call the code of a graph; None where it holds graphs."""
    if not all(isinstance(item, torch.Tensor) for item in constants.values()):
        return None
    return Portable(replace(source, head=(), kernels=()), marshal.dumps(code), library, constants)


def source_of(aten: AtenGraph, passes: Passes, setting: Setting, compiler: Sequence[object]) -> KernelSource:
    """The generated code of a graph, from the cache if it has been seen before. ``compiler`` is whatever
    tells the one that builds it from another."""
    name = _key(aten, setting, compiler)
    stored = graph_cache.find(DiskCache.shared(), name) if name else None
    if stored:
        try:
            return _recalled(stored, aten, passes, setting.recorder)
        except RecordError:  # its record is none that is known here: it is made anew
            DiskCache.shared().remove(name)
    source = generate(aten, passes, setting)
    _keep(name, aten, setting, source)
    return source


def _key(aten: AtenGraph, setting: Setting, compiler: Sequence[object]) -> str:
    """The key of a graph's code in the cache; empty if it is not to be kept there."""
    caching = setting.options.cache and not _made_outside(aten, setting.options)
    if not caching:
        return ""
    graph = aten.module.graph
    return graph_cache.graph_key(aten, setting.options, compiler, made_anew(graph), made_again(graph))


def _keep(name: str, aten: AtenGraph, setting: Setting, source: KernelSource) -> None:
    if name and (setting.products is None or setting.products.settled):
        graph_cache.keep(DiskCache.shared(), name, source, setting.recorder.part(aten.id))


def _made_outside(aten: AtenGraph, options: Options) -> bool:
    """Whether code from outside, which no key of the cache knows, decides what becomes of a graph, or graphs
    within it, which the key does not tell."""
    calls = (node.target for node in aten.module.graph.nodes if node.op == "call_function")
    return bool(options.rules) or any(
        from_outside(target) or isinstance(target, torch._ops.HigherOrderOperator) for target in set(calls)
    )


def generate(aten: AtenGraph, passes: Passes, setting: Setting) -> KernelSource:
    """All passes, one after the other, their graphs and kernels in the record. A kernel that fails is taken
    apart, and all is made anew (:mod:`nbcompile.compiler.taken_apart`)."""
    return _generate(aten, passes, setting)[0]


def _generate(aten: AtenGraph, passes: Passes, setting: Setting) -> tuple[KernelSource, Setting]:
    """:func:`generate`, with what it was made under in the end."""
    while True:
        try:
            return _generated(aten, passes, setting), setting
        except Exception as error:
            if setting.options.verify and not isinstance(error, CodegenError | SymbolicSizeError):
                raise
            # sizes made numbers may do: that is tried before a node is left to ATen
            symbolic = isinstance(error, SymbolicSizeError) and can_fix(aten.module)
            narrower = taken_apart(failed_kernels(error), aten, setting, splits_only=symbolic)
            if narrower is None:
                raise
            setting.recorder.drop_part(aten.id)
            setting = narrower


def _generated(aten: AtenGraph, passes: Passes, setting: Setting) -> KernelSource:
    """The passes once. What cannot be proved to read what it means is made anew with new values in memory of
    their own."""
    recorder, (down, up) = setting.recorder, passes
    fused = run(down, aten, aten.id, setting)[-1]
    try:
        *_, placed, source = run(up, fused, aten.id, setting, start="fused")
    except VerifyError as error:
        if setting.options.verify:
            raise
        recorder.add(f"inputs of {aten.id} are overwritten by copies: {error.message}")
        *_, placed, source = run(up, fused, aten.id, replace(setting, apart=True), start="fused")
    recorder.extend(parts(placed, source, aten))
    return cast(KernelSource, source)


def _recalled(
    stored: graph_cache.Stored, aten: AtenGraph, passes: Passes, recorder: Recorder
) -> KernelSource:
    """The same code and record from the cache, with passes that took no time."""
    recorder.load_part(stored.record, aten.id)
    for step, before, after in places([*passes[0], *passes[1]], aten.id):
        recorder.add(PassRecord(step.name, before, after, 0.0))
    return stored.source


def _chip(device: torch.device, options: Options) -> Target:
    """The target with the numbers of the device that is here, if it is one of that architecture."""
    here = targets.of_device(device.index or 0) if device.type == "cuda" else None
    return here if here is not None and here.name == options.target else options.chip
