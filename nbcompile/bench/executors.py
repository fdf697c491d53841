"""Somebody's workers: how many an executor has, and what it says when one is gone. No torch is needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass

_LOSSES = frozenset({"KilledWorker", "EngineError", "CancelledError", "CommClosedError", "KeyboardInterrupt"})
"""What executors raise for a worker that is gone: Dask, ipyparallel, either."""


@dataclass(frozen=True)
class Capacity:
    """How many tasks (a sweep's points) an executor runs at a time, and how many of them share the cores of
    this machine."""

    points: int
    sharing: int

    @property
    def threads(self) -> int:
        """Torch's threads of each, so that all of them together have one a core."""
        return max(1, cores() // max(1, self.sharing))

    @property
    def note(self) -> str:
        count = cores()
        if self.sharing > count:
            return f"{self.sharing} workers shared {count} cores: steady times include waiting for one."
        if self.sharing > 1:
            return f"{self.sharing} workers shared one machine, {self.threads} of {count} cores each."
        return ""


def usable(executor: Executor) -> Executor:
    """``executor``; of ipyparallel's direct view, which runs a call on every engine, its balanced one."""
    view = getattr(executor, "view", None)
    if view is None or type(view).__name__ != "DirectView":
        return executor
    everyone = set(view.targets) == set(view.client.ids)  # then also without those that are lost on the way
    balanced: Executor = view.client.executor(None if everyone else view.targets)
    return balanced


def capacity(executor: Executor) -> Capacity:
    """Asked of the executor itself, where it is of a known kind; else two."""
    client = getattr(executor, "_client", None)
    if client is not None and hasattr(client, "scheduler_info"):  # Dask's
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        hosts = [worker["host"] for worker in workers]
        return Capacity(max(1, len(hosts)), max((hosts.count(host) for host in hosts), default=1))
    # A pool's, and ipyparallel's.
    count = getattr(executor, "_max_workers", None)
    return Capacity(count, count) if isinstance(count, int) and count > 0 else Capacity(2, 2)


def is_loss(error: BaseException) -> bool:
    """Whether an executor raised this because a worker went, rather than the task."""
    names = {kind.__name__ for kind in type(error).__mro__}
    remote = getattr(error, "ename", "")  # ipyparallel's RemoteError: the name of what an engine raised
    return isinstance(error, BrokenExecutor) or bool(names & _LOSSES) or remote in _LOSSES


def cores() -> int:
    """That this process may use."""
    counted: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(counted(0)) if counted is not None else os.cpu_count() or 1
