"""A process that is forked while another of its threads builds or allocates: the child has only the thread
that forked, and must not wait for the others."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.compiler.runtime import native
from nbcompile.compiler.runtime.c import binary, calls
from nbcompile.compiler.runtime.pool import POOL

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning"),
]


def in_child(work: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether ``work`` in a forked child ends in time, and is true."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(seconds))
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def held(lock: threading.Lock, work: Callable[[], bool]) -> bool:
    """The same while another thread holds ``lock``."""
    inside, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            inside.set()
            over.wait(120.0)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(10.0)
    try:
        return in_child(work)
    finally:
        over.set()
        thread.join()


def test_a_built_in_function_is_loaded_in_a_child() -> None:
    source = Path(calls.__file__).with_name("call.c")
    there = native.loaded(source, "nbcompile_call") is not None
    assert held(native._building, lambda: (native.loaded(source, "nbcompile_call") is not None) == there)


def test_memory_is_handed_out_in_a_child() -> None:
    shape = (1 << 20,)
    assert held(POOL._lock, lambda: POOL.empty_strided(shape, (1,), torch.float32).shape == shape)


def test_a_kernel_that_is_still_being_built_is_built_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forked as another thread waits for the compiler, with the lock of that kernel."""
    given: list[tuple[Any, ...]] = []
    find, begin, parent, over = binary.find_or_build, binary.build, os.getpid(), threading.Event()

    def noted(*args: Any) -> binary.Binary:
        given.append(args)
        return find(*args)

    def slowly(*args: Any) -> Any:
        if os.getpid() != parent:
            return begin(*args)
        return ThreadPoolExecutor(1).submit(lambda: (over.wait(120.0), begin(*args).result())[1])

    torch._dynamo.reset()
    with monkeypatch.context() as patched:
        patched.setattr(binary, "find_or_build", noted)
        nbcompile.compile(lambda x: x.sin() * 2 + 1, options={"cache": False})(torch.randn(7))
    monkeypatch.setattr(binary, "build", slowly)
    library = find(*given[0])
    waiting = threading.Thread(target=library.functions)
    waiting.start()
    try:
        assert in_child(lambda: len(library.functions()) == 1)
    finally:
        over.set()
        waiting.join()
    assert len(library.functions()) == 1
