"""Triton functions → machine code, for the chip that is here or any other, by way of the cache on disk.

Each launch of a :class:`KernelSource` is compiled by itself, in a thread: Triton's passes, LLVM and
ptxas all let go of Python's lock. Measured for eight kernels with caches empty on two cores, to the last
result: one after another 0.62 s, two threads 0.39 s, two forked workers 0.36 s, four 0.63 s; starting a
worker that imports Triton afresh takes 0.5 s. Threads cost nothing to start and never meet CUDA's ban on
forking, so threads it is.
"""

from __future__ import annotations

import concurrent.futures
import functools
import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch

from nbcompile.compiler.runtime.cache import DiskCache, Entry, from_plain, key
from nbcompile.compiler.runtime.gpu.compile import (
    ASSUMED_DIVISOR,
    LEAST_DIVISOR,
    Assumed,
    Built,
    compile_function,
    read_function,
)
from nbcompile.compiler.runtime.gpu.grid import grid_of, is_pointer
from nbcompile.compiler.runtime.gpu.native import native_launcher
from nbcompile.compiler.runtime.gpu.text import canonical, kept
from nbcompile.compiler.runtime.gpu.tools import sass, triton_version
from nbcompile.compiler.stages import Argument, Config, KernelSource, Launch
from nbcompile.errors import CodegenError, NbcompileError, ToolchainError
from nbcompile.options import Options
from nbcompile.record.compilation import Launched, PassRecord
from nbcompile.record.recorder import Recorder
from nbcompile.targets import Target

_FORMAT = "nbcompile-triton-3"
_BINARY, _FACTS = "kernel.bin", "facts.json"
_ENVIRONMENT = ("TRITON_", "PTXAS_", "DISABLE_PTXAS", "AMDGCN_", "LLVM_", "MLIR_", "NVPTX_", "USE_IR_LOC")


Builds = Mapping[str, Built]
"""Compiled functions by name."""


@dataclass(frozen=True)
class TritonBinary:
    """``built()`` gives every function of a graph, waiting for the compiler if it is still at work."""

    built: Callable[[], Builds]
    from_cache: bool
    under_way: Sequence[tuple[str, concurrent.futures.Future[Built]]] = ()
    """Functions that are being built, each with the id of its kernel."""

    def refused(self, *, wait: bool) -> dict[str, NbcompileError]:
        """The kernels, by id, that Triton or ptxas refuses, and what it says: all of them, or without
        ``wait`` those of which that is known by now."""
        found: dict[str, NbcompileError] = {}
        for kernel, future in self.under_way:
            error = future.exception() if wait or future.done() else None
            if isinstance(error, CodegenError) or (isinstance(error, ToolchainError) and error.output):
                found.setdefault(kernel, error)
        return found


def find_or_build(
    source: KernelSource,
    target: Target,
    options: Options,
    recorder: Recorder,
    chosen: Mapping[str, Config] | None = None,
) -> TritonBinary:
    """The machine code of ``source`` for ``target``: from the cache, or compiled in the background from
    now on. ``chosen`` maps functions to configs other than their first.

    Raises at once where Triton is missing (ToolchainError) or the file is no Python (CodegenError); other
    errors come from ``built()``: CodegenError where Triton refuses a function, ToolchainError from ptxas.
    """
    configs = _configs(source, chosen)
    cache = DiskCache.shared()
    names = {
        item.function: cache_key(source, item, configs[item.function], target) for item in source.launches
    }
    found: dict[str, Built] = {}
    if options.cache:
        for function, name in names.items():
            stored = _load(cache, name)
            if stored is not None:
                found[function] = _named(stored, function)
    if len(found) == len(names):
        recorder.add(
            PassRecord("build", f"{source.graph}.source", source.graph, 0.0, "from cache" if names else "")
        )
        return TritonBinary(lambda: found, from_cache=bool(names))
    start = time.perf_counter()
    missing = [item for item in source.launches if item.function not in found]
    by_name: dict[str, concurrent.futures.Future[Built]] = {}
    for item in missing:  # equal functions are compiled once
        name = names[item.function]
        if name not in by_name:
            by_name[name] = _read_and_submit(source, item, configs[item.function], target, cache, name)
    _note_the_end(list(by_name.values()), source, recorder, start, cache)

    def finish() -> Builds:
        fresh = {
            item.function: _named(by_name[names[item.function]].result(), item.function) for item in missing
        }
        return {item.function: (found | fresh)[item.function] for item in source.launches}

    under_way = tuple((item.kernel, by_name[names[item.function]]) for item in missing)
    return TritonBinary(finish, False, under_way)


def _note_the_end(
    futures: Sequence[concurrent.futures.Future[Built]], source: KernelSource, recorder: Recorder,
    start: float, cache: DiskCache,
) -> None:  # fmt: skip
    """Once all is built, the record says how long it took."""
    left, lock = [len(futures)], threading.Lock()

    def note(_: concurrent.futures.Future[Built]) -> None:
        with lock:
            left[0] -= 1
            if left[0]:
                return
        spent = (time.perf_counter() - start) * 1e3
        recorder.add(PassRecord("build", f"{source.graph}.source", source.graph, spent))
        for text in cache.take_notes():
            recorder.add(text)

    for future in futures:
        future.add_done_callback(note)


def build(
    source: KernelSource, target: Target, chosen: Mapping[str, Config] | None = None
) -> dict[str, Built]:
    """Compile every launch of ``source`` now, in parallel, whatever the cache holds. Raises as
    :func:`find_or_build`."""
    configs = _configs(source, chosen)
    cache = DiskCache.shared()
    futures = {
        item.function: _submit(source, item, configs[item.function], target, None, cache, "")
        for item in source.launches
    }
    return {function: future.result() for function, future in futures.items()}


def begin(
    source: KernelSource,
    launch: Launch,
    config: Config,
    target: Target,
    assumed: Assumed | None = None,
) -> concurrent.futures.Future[Built]:
    """One launch with one config in the background: from the cache, or compiled and kept there. What a
    search over configs calls. ``assumed`` defaults to :func:`assumptions`."""
    cache = DiskCache.shared()
    name = cache_key(source, launch, config, target, assumed)
    stored = _load(cache, name)
    if stored is not None:
        stored = _named(stored, launch.function)
        done: concurrent.futures.Future[Built] = concurrent.futures.Future()
        done.set_result(stored)
        return done
    return _submit(source, launch, config, target, assumed, cache, name)


def assumptions(launch: Launch) -> Assumed:
    """What arguments are compiled as multiples of: all pointers of 16 (a launcher checks those that we did
    not allocate), and sizes of 16, 8 or 4, as they were when the graph was captured."""

    def divisor(item: Argument) -> int:
        if is_pointer(item.type):
            return ASSUMED_DIVISOR
        found = math.gcd(item.hint, ASSUMED_DIVISOR) if item.type[:1] in "iu" and item.hint > 0 else 1
        return found if found >= LEAST_DIVISOR else 1

    divisors = enumerate(map(divisor, launch.arguments))
    return tuple((n, each) for n, each in divisors if each > 1)


def artifacts(built: Built, target: Target) -> dict[str, str]:
    """Every text of a function by kind: ``ttir``, ``ttgir``, ``llir``, ``ptx`` and (where a disassembler
    is found) ``sass``, or ``amdgcn``; what :func:`kept` leaves of them. Disassembling takes 0.02 to 0.5 s,
    once: it is cached."""
    texts = dict(built.texts)
    if target.kind == "cuda":
        cache = DiskCache.shared()
        name = key("sass", built.binary, built.symbol)
        entry = cache.get(name)
        text = (entry.read("sass") or b"").decode() if entry is not None else ""
        if not text:
            text = sass(built.binary, built.symbol)
            if text:
                cache.put(name, {"sass": text.encode()})
        if text:
            texts["sass"] = text
    return {kind: kept(kind, text) for kind, text in texts.items()}


def launched(launch: Launch, built: Built, sizes: Mapping[str, int]) -> Launched:
    """What the record says of a launch whose integer arguments have these values."""
    return Launched(
        function=launch.function,
        grid=grid_of(launch, built.config, sizes),
        constants=dict(built.config.constants),
        warps=built.warps,
        stages=built.config.stages,
        registers=built.registers,
        shared_bytes=built.shared_bytes,
        spill_bytes=built.spill_bytes,
    )


def prestart(target: Target) -> None:
    """Import Triton and warm its passes for this kind of chip, in the background, once: some 0.15 s that
    capture can hide. Nothing happens where Triton is missing."""
    if target.is_gpu:
        _prestarted(target.kind, target.name)


@functools.cache
def _prestarted(kind: str, name: str) -> None:
    from nbcompile.targets import parse

    def warm() -> None:
        if kind == "cuda" and torch.cuda.is_available():
            native_launcher()  # 40 ms of a C compiler, once a machine
        try:
            chip = parse(name)
            compile_function(
                _WARM_UP,
                Launch("warm_up", "", (), (), (Config({}),)),
                Config({}, 1),
                chip,
                (),
                assemble=False,
            )
        except NbcompileError:
            return  # whoever builds a kernel is told

    # no daemon: Python ends such a thread inside of LLVM, which aborts the process
    threading.Thread(target=warm, name="nbcompile-triton", daemon=False).start()


_WARM_UP = """import triton
import triton.language as tl


@triton.jit
def warm_up():
    tl.device_assert(tl.program_id(0) >= 0)
"""


# -- the cache ------------------------------------------------------------------------------------


def cache_key(
    source: KernelSource,
    launch: Launch,
    config: Config,
    target: Target,
    assumed: Assumed | None = None,
) -> str:
    """The key of one compiled function: its own text and that of what it calls, without comments and with
    its variables renamed, so an edit elsewhere in the file costs nothing, nor does the same kernel in
    another layer."""
    return key(
        _FORMAT, canonical(source.source, launch), [item.type for item in launch.arguments],
        assumptions(launch) if assumed is None else assumed,
        config, target.name, triton_version(), _environment(),
    )  # fmt: skip


def _named(built: Built, function: str) -> Built:
    """What was compiled of an equal function, under this one's name (the symbol in the binary stays)."""
    if built.function == function:
        return built
    texts = {kind: text.replace(built.function, function) for kind, text in built.texts.items()}
    return replace(built, function=function, texts=texts)


def _environment() -> list[tuple[str, str]]:
    """What of the environment changes Triton's code."""
    return sorted(
        (name, value) for name, value in os.environ.items()
        if name.startswith(_ENVIRONMENT) and not name.endswith(("_DIR", "_CACHE", "_INTERPRET"))
    )  # fmt: skip


def _load(cache: DiskCache, name: str) -> Built | None:
    return cache.find(name, _from_entry)


def _from_entry(entry: Entry) -> Built:
    facts = json.loads(entry.text(_FACTS))
    facts["texts"] = {kind: entry.text(kind) for kind in entry.names if kind not in (_BINARY, _FACTS)}
    binary = entry.read(_BINARY)
    if binary is None:
        raise ValueError("the binary has gone")
    built: Built = from_plain(Built, {**facts, "binary": binary})
    return built


def _keep(cache: DiskCache, name: str, built: Built) -> None:
    facts = asdict(replace(built, binary=b"", texts={}))
    del facts["binary"]
    files = {kind: text.encode() for kind, text in built.texts.items()}
    cache.put(name, {_FACTS: json.dumps(facts).encode(), _BINARY: built.binary, **files})


# -- compiling ------------------------------------------------------------------------------------


@functools.cache
def _workers(process: int) -> concurrent.futures.ThreadPoolExecutor:
    """Threads that compile; those of a parent process do not survive a fork."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return concurrent.futures.ThreadPoolExecutor(
        max(2, min(cores, 32)), thread_name_prefix="nbcompile-triton"
    )


def _submit(
    source: KernelSource, launch: Launch, config: Config, target: Target, assumed: Assumed | None,
    cache: DiskCache, name: str,
) -> concurrent.futures.Future[Built]:  # fmt: skip
    """Compile in the background; the result is kept under ``name``, if it is not empty."""
    taken = assumptions(launch) if assumed is None else assumed
    return _finished(partial(compile_function, source.source, launch, config, target, taken), cache, name)


def _read_and_submit(
    source: KernelSource, launch: Launch, config: Config, target: Target, cache: DiskCache, name: str
) -> concurrent.futures.Future[Built]:
    """As :func:`_submit`, but Triton reads the function here. That is Python: in another thread it waited for
    this one, where Dynamo goes on (it times its guards with the lock held: 20 to 25 ms)."""
    try:
        compile_rest = read_function(source.source, launch, config, target, assumptions(launch))
    except NbcompileError as error:
        failed: concurrent.futures.Future[Built] = concurrent.futures.Future()
        failed.set_exception(error)
        return failed
    return _finished(compile_rest, cache, name)


def _finished(
    compile_it: Callable[[], Built], cache: DiskCache, name: str
) -> concurrent.futures.Future[Built]:
    def run() -> Built:
        built = compile_it()
        if name:
            _keep(cache, name, built)
        return built

    return _workers(os.getpid()).submit(run)


def _configs(source: KernelSource, chosen: Mapping[str, Config] | None) -> dict[str, Config]:
    return {item.function: (chosen or {}).get(item.function, item.configs[0]) for item in source.launches}
