"""Under ``max-autotune``: which matrix products run in kernels of ours, chosen by measurement against ATen.

A step of the pipeline between fusion and code generation, and one that needs a GPU only to measure. Each
product that may be a kernel of ours is cut out of its graph with its epilogue and made in every way: ATen's
call and the epilogue's own kernel, and our templates with each of their configs. The fastest stays. What was
found is kept on disk for the same kernel in another layer, graph or process.
"""

from __future__ import annotations

import functools
import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

import torch

from nbcompile import tf32
from nbcompile.compiler.codegen.triton.groups_to_triton import groups_to_triton
from nbcompile.compiler.fuse import matmul_fusion as fusion
from nbcompile.compiler.fuse.legality import Refusal
from nbcompile.compiler.fuse.matmul_fusion import Precision, ProductCandidate
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.runtime.autotune.configs import config_text, misfit, spills
from nbcompile.compiler.runtime.autotune.measure import (
    CandidateTiming,
    GpuStopwatch,
    TuningStopwatch,
    faster,
    measure,
)
from nbcompile.compiler.runtime.autotune.store import search_key
from nbcompile.compiler.runtime.bind import bind
from nbcompile.compiler.runtime.cache import DiskCache, key
from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.compiler.runtime.gpu.compile import Built
from nbcompile.compiler.runtime.gpu_module import allocator
from nbcompile.compiler.schedule.products import templates
from nbcompile.compiler.stages import CompiledModule, Config, KernelSource
from nbcompile.errors import NbcompileError
from nbcompile.options import SEARCH_MODES, Options
from nbcompile.record.compilation import AutotuneChoice
from nbcompile.record.recorder import Recorder
from nbcompile.targets import Target

SHARE = 0.5
"""The part of ``options.autotune_seconds`` that the products of a graph may take."""
LEAST_SECONDS = 0.02
AGREEMENT = 0.02
"""The greatest relative difference (Frobenius) between a kernel's result and ATen's."""
OFFERED = frozenset({"tiles"})
"""Templates that may be chosen. ``persistent`` (tensor descriptors) is right in the interpreter, but on an
H200 with Triton 3.6 its results were off by 0.7 to 0.9 of ATen's: not offered until that is understood."""
COMPARED = 1 << 25
"""Elements compared at a time."""

_FORMAT = "nbcompile-products-1"
_FILE = "products.json"
_IN_ATEN = "ATen"

Call = Callable[[list[Any]], Sequence[Any]]


@dataclass(frozen=True)
class Found:
    """What is known of one product: the ``template`` and ``config`` to use (empty and None: ATen is
    faster), and every way that was tried, with its median seconds or a note why it has none."""

    template: str
    config: Config | None
    tried: tuple[tuple[str, float | None, str], ...] = ()

    @property
    def name(self) -> str:
        """The way chosen, as it is called in ``tried``."""
        return _IN_ATEN if self.config is None else _way(self.template, self.config)

    def seconds(self, name: str) -> float | None:
        return next((seconds for way, seconds, _ in self.tried if way == name), None)

    def best_of_ours(self) -> float | None:
        """The seconds of our fastest kernel."""
        times = [seconds for way, seconds, _ in self.tried if way != _IN_ATEN and seconds is not None]
        return min(times, default=None)


@dataclass(frozen=True)
class ProductBench:
    """What measuring needs of the machine. ``begin`` compiles the one launch of a source with a config,
    ``ours`` makes a call of a source and what that gave, ``library`` one of a source that is built at
    once; ``misfit`` tells why a compiled kernel cannot run here."""

    begin: Callable[[KernelSource, Config], Future[Built]]
    ours: Callable[[KernelSource, Built], Call]
    library: Callable[[KernelSource], Call]
    misfit: Callable[[KernelSource, Built], str]
    watch: TuningStopwatch
    device: torch.device


class Products:
    """The step for one graph. ``device`` is where it will run, None for a chip that is not here and for the
    interpreter: then nothing is measured, and whatever can have an epilogue has it. With ``search`` what is
    not known is measured; without, ATen does it and ``settled`` is false afterwards. Other modes than
    ``max-autotune`` change nothing."""

    def __init__(
        self, options: Options, chip: Target, recorder: Recorder, device: torch.device | None,
        *, search: bool = False, bench: ProductBench | None = None,
    ) -> None:  # fmt: skip
        self.options, self.chip, self.recorder, self.search = options, chip, recorder, search
        self.on = options.mode in SEARCH_MODES and chip.is_gpu
        self.bench = bench
        if self.on and bench is None and device is not None and device.type != "cpu":
            self.bench = gpu_bench(chip, device)
        self.settled = True

    @property
    def fingerprint(self) -> tuple[object, ...]:
        """What the choice depends on beside the graph, the options and the compiler."""
        return (precision_of(self.chip), self.chip.part, self.bench is None) if self.on else ()

    def choose(self, program: FusedProgram) -> FusedProgram:
        """The program with products of ours where they are faster."""
        if not self.on:
            return program
        found, pairs = fusion.candidates(program, self.options, precision_of(self.chip))
        program = fusion.refused(program, pairs)
        if self.bench is not None:
            program, self.settled = _decided(
                program, found, self.options, self.chip, self.recorder, self.bench, self.search
            )
            return program
        for candidate in found:
            if candidate.epilogue is not None:
                program = fusion.accepted(program, candidate, _default(program, candidate, self.chip))
        return program


def precision_of(chip: Target) -> Precision:
    """How torch is set to multiply float32 matrices: this is a setting of the whole process."""
    return "tf32" if chip.kind == "cuda" and tf32.products_on_cuda() else "ieee"


def gpu_bench(chip: Target, device: torch.device) -> ProductBench:
    """The bench of a GPU of this machine."""
    from nbcompile.compiler.runtime.gpu.launch import launchers

    empty = allocator(device)

    def made(source: KernelSource, built: Mapping[str, Built]) -> Call:
        functions = launchers(source, built, chip, device)
        return bind(source, lambda: functions, {}, False, empty).call

    return ProductBench(
        begin=lambda source, config: triton_build.begin(source, source.launches[0], config, chip),
        ours=lambda source, built: made(source, {source.launches[0].function: built}),
        library=lambda source: made(source, triton_build.build(source, chip)),
        misfit=lambda source, built: misfit(source.launches[0], built, chip, {}, lambda _: 0),
        watch=GpuStopwatch(device, chip.l2_bytes),
        device=device,
    )


# -- deciding -----------------------------------------------------------------------------------------


@dataclass
class _Search:
    """One product to decide: its candidates by template, each template's source."""

    candidate: ProductCandidate
    sources: dict[str, KernelSource]
    programs: dict[str, Group]
    key: str
    weight: float
    builds: dict[str, Future[Built]] | None = None

    def ways(self) -> list[tuple[str, str, Config]]:
        """(name, template, config) of everything that can be tried."""
        return [
            (_way(template, config), template, config)
            for template, source in self.sources.items()
            for config in source.launches[0].configs
        ]


def _decided(
    program: FusedProgram, found: Sequence[ProductCandidate], options: Options, chip: Target,
    recorder: Recorder, bench: ProductBench, search: bool,
) -> tuple[FusedProgram, bool]:  # fmt: skip
    cache = DiskCache.shared()
    searches = []
    for candidate in found:
        try:
            searches.append(_search_of(program, candidate, chip))
        except NbcompileError as error:
            recorder.add(f"{candidate.group.name} was not tried as a kernel of ours: {error.message}")
    known = {item.key: result for item in searches if (result := _stored(cache, item.key, options))}
    if search:
        waiting = {item.key: item for item in searches if item.key not in known}
        known |= _apart(_measured, program, list(waiting.values()), options, chip, recorder, bench)
    for item in searches:
        if item.key in known:
            program = _settled(program, item, known[item.key], recorder)
    return program, all(item.key in known for item in searches)


def _search_of(program: FusedProgram, candidate: ProductCandidate, chip: Target) -> _Search:
    buffers = program.program.buffers()
    groups, sources = {}, {}
    for template in _offered(candidate.group, buffers, chip):
        group = _with(candidate.group, template)
        groups[template] = group
        sources[template] = groups_to_triton(fusion.trial(program, candidate, (group,)), chip)
    keys = [search_key(source, source.launches[0], chip) for source in sources.values()]
    return _Search(
        candidate, sources, groups,
        key(_FORMAT, *keys, str(candidate.call.target), torch.__version__),
        float(sum(_multiplications(loop.axes) for loop in candidate.group.loops[:1])),
    )  # fmt: skip


def _multiplications(axes: Sequence[Any]) -> int:
    total = 1
    for axis in axes:
        total *= max(axis.extent.hint(), 1)
    return total


def _with(group: Group, template: str, configs: tuple[Config, ...] = ()) -> Group:
    assert group.product is not None
    return replace(group, product=replace(group.product, template=template, configs=configs))  # type: ignore[arg-type]


def _default(program: FusedProgram, candidate: ProductCandidate, chip: Target) -> Group:
    """The candidate's kernel where nothing can be measured: the last template, which asks the most of the
    chip, with the configs that suit its sizes."""
    return _with(candidate.group, _offered(candidate.group, program.program.buffers(), chip)[-1])


def _offered(group: Group, buffers: Mapping[str, Buffer], chip: Target) -> list[str]:
    return [template for template in templates(group, buffers, chip) if template in OFFERED]


def _settled(program: FusedProgram, item: _Search, found: Found, recorder: Recorder) -> FusedProgram:
    """The program as the measurement wants it, with the times in its decision and in the record."""
    candidate = item.candidate
    pair = "ATen and a separate kernel took" if candidate.epilogue is not None else "ATen took"
    aten, ours = found.seconds(_IN_ATEN), found.best_of_ours()
    kernel = candidate.call.id
    if found.config is not None:
        group = _with(candidate.group, found.template, (found.config,))
        why = f"{pair} {_time(aten)}, fused {_time(found.seconds(found.name))}"
        program = fusion.accepted(program, candidate, group, why)
        kernel = group.id
    elif candidate.epilogue is not None:
        refusal = Refusal("measured", f"{pair} {_time(aten)}, the fastest fused kernel {_time(ours)}")
        program = fusion.refused(program, [(candidate.call, candidate.epilogue, refusal)])
    for name, seconds, note in found.tried:
        named = _aten_name(candidate) if name == _IN_ATEN else name
        recorder.add(AutotuneChoice(kernel, named, seconds, name == found.name, note))
    return program


def _aten_name(candidate: ProductCandidate) -> str:
    after = f", then {candidate.epilogue.name}" if candidate.epilogue is not None else ""
    return f"{candidate.call.name}{after}"


def _way(template: str, config: Config) -> str:
    return f"{template}: {config_text(config)}"


def _time(seconds: float | None) -> str:
    return "no time" if seconds is None else f"{seconds * 1e6:,.0f} µs"


# -- measuring ----------------------------------------------------------------------------------------


def _measured(
    program: FusedProgram, searches: Sequence[_Search], options: Options, chip: Target, recorder: Recorder,
    bench: ProductBench,
) -> dict[str, Found]:  # fmt: skip
    """Search for each, the heaviest first, within the seconds that there are."""
    if not searches or options.autotune_seconds <= 0:
        return {}
    known: dict[str, Found] = {}
    searches = sorted(searches, key=lambda item: -item.weight)
    deadline = bench.watch.now() + SHARE * options.autotune_seconds
    for item in searches:
        item.builds = {
            name: bench.begin(item.sources[template], config) for name, template, config in item.ways()
        }
    left = sum(item.weight for item in searches)
    for number, item in enumerate(searches, start=1):
        recorder.progress(f"measuring {item.candidate.group.name}: {number} of {len(searches)}")
        now = bench.watch.now()
        until = now + max(deadline - now, LEAST_SECONDS) * item.weight / left
        left -= item.weight
        try:
            found = _one(program, item, chip, until, bench)
        except Exception as error:  # whatever goes wrong here, ATen's own way is there
            told = str(error).strip().partition("\n")[0]
            recorder.add(f"{item.candidate.group.name} was not measured: {type(error).__name__}: {told}")
            continue
        known[item.key] = found
        if options.cache:
            _keep(DiskCache.shared(), item.key, found, options)
    return known


def _one(program: FusedProgram, item: _Search, chip: Target, until: float, bench: ProductBench) -> Found:
    """Everything that can be tried of one product, timed on the same inputs."""
    candidate, watch = item.candidate, bench.watch
    library = fusion.trial(program, candidate, candidate.items())
    buffers, sizes = fusion.trial_inputs(library)
    inputs: list[Any] = [*(_random(buffer, bench.device) for buffer in buffers), *sizes]
    in_aten = bench.library(groups_to_triton(library, chip))
    expected = in_aten(list(inputs))
    calls: dict[str, Callable[[], object]] = {_IN_ATEN: functools.partial(_call, in_aten, inputs)}
    notes: dict[str, str] = {}
    builds = item.builds or {}
    wait(builds.values(), timeout=max((until - watch.now()) / 2, LEAST_SECONDS))
    for name, template, _ in item.ways():
        source, future = item.sources[template], builds[name]
        try:
            if not future.done():
                notes[name] = "not compiled in time"
                continue
            built = future.result()
            why = bench.misfit(source, built)
            if not why:
                call = bench.ours(source, built)
                why = _difference(call(list(inputs)), expected)
                calls |= {} if why else {name: functools.partial(_call, call, inputs)}
            notes[name] = why or spills(built)
        except NbcompileError as error:
            notes[name] = error.message
    timings = measure(
        calls, max(until - watch.now(), LEAST_SECONDS), watch=watch, reference=_IN_ATEN
    )  # fmt: skip
    winners = faster(timings, _IN_ATEN)
    tried = [(_IN_ATEN, timings[_IN_ATEN].seconds, timings[_IN_ATEN].note)]
    for name, _, _ in item.ways():
        timing = timings.get(name, CandidateTiming(None))
        tried.append((name, timing.seconds, "; ".join(filter(None, (notes[name], timing.note)))))
    for name, template, config in item.ways():
        if winners and name == winners[0]:
            return Found(template, config, tuple(tried))
    return Found("", None, tuple(tried))


def _call(call: Call, inputs: Sequence[Any]) -> None:
    call(list(inputs))


def _random(buffer: Buffer, device: torch.device) -> torch.Tensor:
    """A tensor like ``buffer`` at the hints of its sizes. Integers may be indices, so they are zero."""
    shape = [extent.hint() for extent in buffer.shape]
    strides = [stride.hint() for stride in buffer.strides]
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    flat = torch.zeros(max(span, 1), dtype=buffer.dtype, device=device)
    generator = torch.Generator(device)  # of our own: the user's random numbers stay as they are
    generator.manual_seed(0)
    if buffer.dtype.is_floating_point:
        flat.normal_(0.0, 0.25, generator=generator)
    elif buffer.dtype == torch.bool:
        flat.bernoulli_(0.5, generator=generator)
    return flat.as_strided(shape, strides)


def _difference(got: Sequence[Any], expected: Sequence[Any]) -> str:
    """What is wrong with the results of a kernel; empty if they are ATen's but for rounding."""
    for mine, theirs in zip(got, expected, strict=True):
        apart = whole = 0.0
        rows = max(1, COMPARED // max(1, theirs.numel() // max(1, theirs.shape[0])))
        for pair in zip(mine.split(rows), theirs.split(rows), strict=True):  # a whole copy may not fit
            a, b = (torch.nan_to_num(item.to(torch.float32)) for item in pair)
            apart += float((a - b).square().sum(dtype=torch.float64))
            whole += float(b.square().sum(dtype=torch.float64))
        error = math.sqrt(apart / max(whole, 1e-60))
        # a comparison may turn out the other way where its operands are all but equal
        if not error <= (AGREEMENT if theirs.is_floating_point() else 5 * AGREEMENT):
            return f"differs from ATen by {error:.1e}"
    return ""


def _apart(function: Callable[..., Any], *args: Any) -> Any:
    """``function`` in a thread of its own: capture's modes (fake tensors) belong to the present one."""
    with ThreadPoolExecutor(1, thread_name_prefix="nbcompile-products") as thread, torch.no_grad():
        return thread.submit(torch.no_grad()(function), *args).result()


# -- what is kept --------------------------------------------------------------------------------------


def _stored(cache: DiskCache, name: str, options: Options) -> Found | None:
    if not options.cache:
        return None
    for place in (name, key(name, options.autotune_seconds)):
        entry = cache.get(place)
        if entry is None:
            continue
        try:
            data = json.loads(entry.read(_FILE) or b"")
            config = Config(**data["config"]) if data["config"] else None
            tried = tuple((str(way), seconds, str(note)) for way, seconds, note in data["tried"])
            return Found(str(data["template"]), config, tried)
        except (KeyError, TypeError, ValueError):
            cache.remove(place)
    return None


def _keep(cache: DiskCache, name: str, found: Found, options: Options) -> None:
    """Store what was found; what the budget cut short is for the same budget only."""
    short = any(note.endswith("in time") for _, _, note in found.tried)
    config = found.config
    data = {
        "template": found.template,
        "config": config and {
            "constants": dict(config.constants), "warps": config.warps, "stages": config.stages,
        },
        "tried": found.tried,
    }  # fmt: skip
    place = key(name, options.autotune_seconds) if short else name
    cache.put(place, {_FILE: json.dumps(data).encode()})


# -- the first result before the best -------------------------------------------------------------------


def in_two_steps(
    first: CompiledModule, better: Callable[[], CompiledModule], capturing: Callable[[], bool]
) -> CompiledModule:
    """A module that runs ``first`` in its first call, and in its second makes ``better()`` (it may take
    seconds) and runs that from then on. While ``capturing()`` (a CUDA graph is recorded) nothing changes."""
    state: list[Call] = []
    lock = threading.Lock()

    def opening(args: list[Any]) -> Any:
        result = first.call(args)
        state[0] = measuring
        return result

    def measuring(args: list[Any]) -> Any:
        if capturing() or not lock.acquire(blocking=False):
            return first.call(args)
        try:
            if state[0] is measuring:
                state[0] = better().call
        finally:
            lock.release()
        return state[0](args)

    state.append(opening)
    return CompiledModule(first.graph, lambda args: state[0](args), first.from_cache)
