"""From a generated file to loaded functions, by way of the cache on disk.

The key is the file without its comments (so moving a cell's lines costs no compile), the flags, the
compiler and the processor. ``graph_cache`` keeps the graph's generated code and record beside it.
"""

from __future__ import annotations

import concurrent.futures
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nbcompile.compiler.runtime.bind import EXTRA_FLAGS, build
from nbcompile.compiler.runtime.c.calls import load
from nbcompile.compiler.runtime.c.toolchain import Toolchain
from nbcompile.compiler.runtime.cache import DiskCache, Entry, key
from nbcompile.compiler.stages import KernelSource
from nbcompile.errors import ToolchainError
from nbcompile.options import Options
from nbcompile.record.compilation import PassRecord
from nbcompile.record.recorder import Recorder

Functions = Mapping[str, Callable[..., None]]


@dataclass(frozen=True)
class Binary:
    """``functions()`` gives the kernels by symbol, waiting for the compiler if it is still at work. ``key``:
    of its entry in the cache; empty where it has no kernels."""

    functions: Callable[[], Functions]
    from_cache: bool
    key: str = ""


BUILT = "nbcompile-c-4"
"""How a text is built, beside the flags. Another number where the same text is to be built otherwise, as when
one more fault of a compiler is recognised: else what was made wrong would stay in every cache."""


def find_or_build(source: KernelSource, toolchain: Toolchain, options: Options, recorder: Recorder) -> Binary:
    """The binary of ``source``: from the cache, or built in the background from now on."""
    if not source.entry_points:
        return Binary(dict, from_cache=False)
    cache = DiskCache.shared()
    name = key(without_comments(source.source), toolchain.fingerprint, EXTRA_FLAGS, options.target, BUILT)
    entry = cache.get(name) if options.cache else None
    if entry is not None:
        try:
            found = load(entry.path("kernel.so"), source.entry_points)
        except (ToolchainError, KeyError):
            cache.remove(name)
        else:
            recorder.add(PassRecord("build", f"{source.graph}.source", source.graph, 0.0))
            return Binary(lambda: found, from_cache=True, key=name)
    start = time.perf_counter()
    process, future = os.getpid(), build(source, toolchain)
    done: list[Functions] = []
    locks = {process: threading.Lock()}  # a forked child's own: nobody opens the parent's there

    def finish() -> Functions:
        here = os.getpid()
        with locks.setdefault(here, threading.Lock()):
            if not done:  # the threads that build do not survive a fork
                built = future if here == process or future.done() else build(source, toolchain)
                done.append(_store(cache, name, built, source, recorder))
        return done[0]

    def note(finished: concurrent.futures.Future[bytes]) -> None:
        spent = (time.perf_counter() - start) * 1e3
        if finished.exception() is None:
            recorder.add(PassRecord("build", f"{source.graph}.source", source.graph, spent))

    future.add_done_callback(note)
    return Binary(finish, from_cache=False, key=name)


def _store(
    cache: DiskCache, name: str, future: concurrent.futures.Future[bytes], source: KernelSource,
    recorder: Recorder,
) -> Functions:  # fmt: skip
    library = future.result()
    files = {"kernel.so": library, "kernel.c": source.source.encode()}
    try:
        return _loaded(cache.put(name, files), source)
    except ToolchainError as error:  # another process removed it meanwhile, or nothing there may be executed
        found = _loaded(cache.put_aside(name, files), source)
        cache.note(f"A kernel was loaded from a temporary folder, not from {cache.root}: {error.message}")
        return found
    finally:
        for text in cache.take_notes():
            recorder.add(text)


def _loaded(entry: Entry | None, source: KernelSource) -> Functions:
    if entry is None:
        raise ToolchainError(
            "no folder to load a kernel from: neither the cache nor the temporary folder can be written.",
            advice="Set NBCOMPILE_CACHE_DIR to a folder that can be written.",
        )
    return load(entry.path("kernel.so"), source.entry_points)


def without_comments(text: str) -> str:
    """C text less its ``//`` comments (our files have no strings that hold one)."""
    return re.sub(r"[ \t]*//[^\n]*", "", text)
