"""Candidates compiled ahead of the search, on half of the compiler's threads: other graphs of the same
program, whose first call somebody waits for, have the rest."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from nbcompile.compiler.runtime.autotune.configs import config_text
from nbcompile.compiler.runtime.gpu.compile import Built
from nbcompile.compiler.stages import Config, Launch

Begin = Callable[[Launch, Config], Future[Built]]
Job = tuple[Launch, Config]


class Ahead:
    """Compiles ``jobs`` in order from now on. Whoever drops it stops it."""

    def __init__(self, begin: Begin, jobs: Sequence[Job]) -> None:
        self._begin = begin
        self._futures: dict[tuple[str, str], Future[Built]] = {}
        work = []
        for launch, config in jobs:
            future: Future[Built] = Future()
            self._futures[_name(launch, config)] = future
            work.append((launch, config, future))
        self._gate = threading.Semaphore(max(1, (os.cpu_count() or 2) // 2))
        self._count = len(work)
        arguments = (begin, work, self._gate, weakref.ref(self))
        threading.Thread(target=_pump, args=arguments, name="nbcompile-autotune", daemon=True).start()

    def hurry(self) -> None:
        """Somebody waits now: no more holding back."""
        self._gate.release(self._count + 1)

    def get(self, launch: Launch, config: Config) -> Future[Built]:
        """The future of a job, also of one that is new."""
        name = _name(launch, config)
        if name not in self._futures:
            self._futures[name] = self._begin(launch, config)
        return self._futures[name]


def _name(launch: Launch, config: Config) -> tuple[str, str]:
    return launch.function, config_text(config)


def _pump(
    begin: Begin, work: Sequence[tuple[Launch, Config, Future[Built]]], gate: threading.Semaphore,
    owner: weakref.ref[Ahead],
) -> None:  # fmt: skip
    for launch, config, future in work:
        gate.acquire()
        if owner() is None:
            return
        try:
            begun = begin(launch, config)
        except Exception as error:
            future.set_exception(error)
            gate.release()
        else:
            begun.add_done_callback(_handing_over(future, gate))


def _handing_over(future: Future[Built], gate: threading.Semaphore) -> Callable[[Future[Built]], None]:
    def done(begun: Future[Built]) -> None:
        error = begun.exception()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(begun.result())
        gate.release()

    return done
