"""What other processes are sent, and what they answer: the program by value, all else as plain data."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import platform
import sys
import sysconfig
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nbcompile.bench.measure.compare import Measuring
from nbcompile.bench.processes import ProcessEndedError, in_process
from nbcompile.bench.sweep.grid import Point
from nbcompile.bench.sweep.point import Heap, Outcome, SweepProgram, run_point
from nbcompile.bench.sweep.store import outcome_to
from nbcompile.errors import MeasureError
from nbcompile.settings import CompileSettings

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


@dataclass(frozen=True)
class PointTask:
    """A point for another process. ``program`` is :func:`packed`, ``timeout`` (seconds) only holds where
    ``isolated``. ``attempt`` keeps engines that remember results from handing out the first one's; ``home``
    is the process that the task comes from."""

    program: bytes
    point: Point
    settings: CompileSettings
    measuring: Measuring
    isolated: bool = False
    timeout: float | None = None
    attempt: int = 0
    home: tuple[str, int] = field(default_factory=lambda: _here())


_HEAP = Heap()


def run_task(task: PointTask) -> dict[str, Any]:
    """What a worker does: the outcome of a point as JSON values."""
    if task.isolated:
        return outcome_to(run_isolated(task.program, task.point, task.settings, task.measuring, task.timeout))
    if task.home != _here():
        # Inductor's own processes are one a core by default, on every worker.
        threads = task.point.get("threads") or task.measuring.threads
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads or 1))
    found = outcome_to(run_point(unpacked(task.program), task.point, task.settings, task.measuring))
    if task.home != _here():  # a process that is there for this, not the user's own with a pool of threads
        _HEAP.settle(task.point.backend)
    return found


def run_isolated(
    program: bytes,
    point: Point,
    settings: CompileSettings,
    measuring: Measuring,
    timeout: float | None = None,
) -> Outcome:
    """Measure a point in a new Python, with this one's folders to import from: a crash, a time limit, or
    memory that runs out loses that point only. ``program`` is :func:`packed`."""
    begun = time.perf_counter()
    threads = point.get("threads") or measuring.threads
    variables = ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS") if threads is not None else ()
    try:
        found = in_process(
            _outcome_of,
            program,
            point,
            settings,
            measuring,
            timeout=timeout,
            environment=dict.fromkeys(variables, str(threads)),
            path=sys.path,
        )
    except ProcessEndedError as error:
        found = Outcome("timeout" if error.timed_out else "crashed", str(error))
    return dataclasses.replace(found, seconds=time.perf_counter() - begun)


def _outcome_of(program: bytes, point: Point, settings: CompileSettings, measuring: Measuring) -> Outcome:
    return run_point(unpacked(program), point, settings, measuring)


def _here() -> tuple[str, int]:
    return platform.node(), os.getpid()


def packed(program: SweepProgram, modules: tuple[types.ModuleType, ...] = ()) -> bytes:
    """A program as bytes. Functions and classes of the notebook, of the user's own modules that the two
    functions come from, and of ``modules`` travel by value. MeasureError for what cannot be pickled."""
    try:
        import cloudpickle
    except ImportError as error:
        raise MeasureError(
            "sending a program to another process needs cloudpickle, which is not installed.",
            advice="Run: pip install cloudpickle",
        ) from error
    homes = {sys.modules.get(getattr(f, "__module__", "") or "") for f in (program.fn, program.make_inputs)}
    if program.fn is not None:
        homes.add(sys.modules.get(type(program.fn).__module__))
    with _by_value(*modules, *(home for home in homes if home is not None and _is_users(home))):
        try:
            data: bytes = cloudpickle.dumps((program.fn, program.make_inputs))
        except Exception as error:
            raise MeasureError(
                f"the program cannot be sent to another process: {type(error).__name__}: {error}",
                advice="Make what cannot be pickled inside make_inputs.",
            ) from error
    return data


@functools.lru_cache(maxsize=1)
def unpacked(data: bytes) -> SweepProgram:
    """What :func:`packed` packed."""
    import cloudpickle

    return SweepProgram(*cloudpickle.loads(data))


def _is_users(module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if module.__name__.partition(".")[0] == "nbcompile" or file is None:
        return False
    return not os.path.abspath(file).startswith(_INSTALLED)


@contextlib.contextmanager
def _by_value(*modules: types.ModuleType) -> Iterator[None]:
    import cloudpickle

    before = cloudpickle.list_registry_pickle_by_value()
    new = {module.__name__: module for module in modules if module.__name__ not in before}
    for module in new.values():
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in new.values():
            cloudpickle.unregister_pickle_by_value(module)
