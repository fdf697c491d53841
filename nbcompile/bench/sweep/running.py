"""A sweep: its points put through this process, one process each, or somebody's workers."""

from __future__ import annotations

import dataclasses
import os
import statistics
import sys
import time
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from typing import Any

from nbcompile.bench.executors import Capacity, capacity, is_loss, usable
from nbcompile.bench.measure.compare import Measuring
from nbcompile.bench.sweep.grid import Grid, Point, no_sense
from nbcompile.bench.sweep.point import Heap, Outcome, SweepProgram, check_keys, run_point
from nbcompile.bench.sweep.result import Sweep
from nbcompile.bench.sweep.store import PointStore, keys_of, outcome_from
from nbcompile.bench.sweep.workers import PointTask, packed, run_isolated, run_task
from nbcompile.errors import OptionError, in_one_line
from nbcompile.options import check_seconds
from nbcompile.settings import CompileSettings, keywords_of
from nbcompile.units import seconds_text

Progress = Callable[[str], None]
_UNFINISHED = ("lost", "not run")


@keywords_of(Measuring, without=("memory",))
def sweep(
    fn: Callable[..., Any] | None,
    make_inputs: Callable[..., Any],
    grid: Mapping[str, Any],
    *,
    fullgraph: bool = False,
    budget: float = 0.3,
    isolated: bool = False,
    timeout: float | None = None,
    executor: Executor | None = None,
    store: str | os.PathLike[str] | None = None,
    resume: Sweep | None = None,
    modules: Iterable[types.ModuleType] = (),
    compile: Callable[..., Any] | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Sweep:
    """Measure ``fn`` at every combination of what ``grid`` names, each beside eager.

    ``make_inputs``: makes the inputs of a point (a tuple, a mapping of keyword arguments, or one argument)
    from the grid's own keys, e.g. ``make_inputs(B=8)``. It also gets ``dtype`` and ``device`` if it has
    parameters of these names; else tensors and modules are converted. With ``fn=None`` it returns
    ``(fn, inputs)``.
    ``grid``: ``backend``, ``mode``, ``dtype``, ``dynamic``, ``options`` (``{name: options}``, or a list of
    options), ``device``, ``threads``, each with one value or several; any other key goes to ``make_inputs``.
    A mode or option that a backend does not have makes a row that says so; it is not run.

    ``budget``: seconds of steady-state samples a point, eager's among them. ``threads``: torch's, a point; by
    default as it is, and on an executor the machine's cores shared out among the workers on it.
    ``isolated``: each point in a process of its own, which has ``timeout`` seconds; a crash loses that point
    only, and memory is measured on the CPU too. ``executor``: any ``concurrent.futures.Executor`` (a pool of
    processes, Dask's ``client.get_executor()``, ipyparallel's ``client.executor()``). Functions travel by
    value, as do ``modules``. A point whose worker is lost is run once more; where the executor is gone too,
    the rest runs here, each in a process of its own. In one process, points run one after the other.

    ``store``: a file (JSON lines) of finished points: those it has are not run again, as long as code,
    options and versions are the same. ``resume``: the same from an earlier sweep. An interrupt does not
    raise: what is done comes back, with a note. ``progress``: called with one line a point, which says how
    long the rest will take; by default that line is on stderr, where this is a terminal or a notebook.

    Raises OptionError for a grid that cannot be meant, MeasureError where the program cannot be sent to
    another process, RecordError where ``store`` is another kind of file.
    """
    parsed = Grid.parse(grid)
    compiles = parsed.settings(fullgraph)
    elsewhere = isolated or executor is not None
    _check(elsewhere and compile is not None, timeout, isolated)
    measuring = Measuring(budget=budget, memory=isolated, **settings)
    program = _program(fn, make_inputs, compiles)
    keys, kept = keys_of(program, compiles, measuring, isolated), PointStore(store)
    run = _Run(compiles, keys, kept, _finished(compiles, keys, kept, resume), progress or _Line())
    try:
        if run.left() and elsewhere:
            _in_processes(run, packed(program, tuple(modules)), measuring, isolated, timeout, executor)
        _locally(run, program, measuring, compile)
    except KeyboardInterrupt:
        again = "the same store" if store is not None else "resume= this sweep"
        run.interrupted = True
        run.note(f"Interrupted: {run.progress()} are done; call it with {again} to go on.")
    return Sweep(parsed, run.outcomes(), keys, tuple(run.notes), run.interrupted)


def _program(
    fn: Callable[..., Any] | None, make_inputs: Callable[..., Any], points: Iterable[Point]
) -> SweepProgram:
    check_keys(make_inputs, (key for point in points for key in point.arguments))
    return SweepProgram(fn, make_inputs)


def _check(compile_elsewhere: bool, timeout: float | None, isolated: bool) -> None:
    if compile_elsewhere:
        raise OptionError("a compile function of one's own cannot be sent to another process.")
    if timeout is None:
        return
    check_seconds("timeout", timeout)
    if not isolated:
        raise OptionError("a time limit needs a process to end.", advice="Give isolated=True too.")


def _finished(
    settings: Mapping[Point, CompileSettings],
    keys: Mapping[Point, str],
    kept: PointStore,
    resume: Sweep | None,
) -> dict[Point, Outcome]:
    """The points that need not run: done before, or without sense."""
    known = {**(resume.by_key() if resume is not None else {}), **kept.read()}
    done = {point: known[key] for point, key in keys.items() if key in known}
    done = {point: outcome for point, outcome in done.items() if outcome.status not in _UNFINISHED}
    senseless = {point: why for point in settings if point not in done and (why := no_sense(point))}
    return done | {point: Outcome("skipped", why) for point, why in senseless.items()}


class _Run:
    """A sweep under way: what is done, and how long the rest takes."""

    def __init__(
        self,
        settings: Mapping[Point, CompileSettings],
        keys: Mapping[Point, str],
        store: PointStore,
        done: dict[Point, Outcome],
        tell: Progress,
    ) -> None:
        self.settings, self.keys, self.store = settings, keys, store
        self.done, self.tell = done, tell
        self.notes: list[str] = []
        self.interrupted = False
        self.together = 0  # points at a time, elsewhere
        self._spent: dict[str, list[float]] = {}

    def left(self) -> list[Point]:
        return [point for point in self.settings if point not in self.done]

    def outcomes(self) -> dict[Point, Outcome]:
        """Of all points, once no more are run."""
        if isinstance(self.tell, _Line):
            self.tell.close()
        missing = Outcome("not run", "the sweep was interrupted")
        return {point: self.done.get(point, missing) for point in self.settings}

    def progress(self) -> str:
        return f"{len(self.done)} of {len(self.settings)} points"

    def note(self, text: str) -> None:
        if text and text not in self.notes:
            self.notes.append(text)

    def starts(self, point: Point) -> None:
        self._say(point)

    def finish(self, point: Point, outcome: Outcome) -> None:
        if outcome.status not in _UNFINISHED:
            self.store.write(self.keys[point], point, outcome)
        self.done[point] = outcome
        self._spent.setdefault(point.backend, []).append(outcome.seconds)
        if self.together:
            self._say(point)

    def _say(self, point: Point) -> None:
        self.tell(f"{self.progress()}{self._time_left()}: {point}")

    def _time_left(self) -> str:
        """The points left, each as long as its backend's others took on average, else as all others."""
        spent = [seconds for several in self._spent.values() for seconds in several]
        if not spent:
            return ""
        usual = statistics.fmean(spent)
        left = self.left()
        known = {name: statistics.fmean(several) for name, several in self._spent.items()}
        total = sum(known.get(point.backend, usual) for point in left)
        total /= max(1, min(self.together, len(left)))
        return f", {seconds_text(float(round(total)))} left" if total >= 1 else ""


def _locally(
    run: _Run, program: SweepProgram, measuring: Measuring, compile: Callable[..., Any] | None
) -> None:
    heap = Heap()
    try:
        for point in run.left():
            run.starts(point)
            run.finish(point, run_point(program, point, run.settings[point], measuring, compile))
            heap.settle(point.backend)
    finally:
        heap.release()


def _in_processes(
    run: _Run,
    data: bytes,
    measuring: Measuring,
    isolated: bool,
    timeout: float | None,
    executor: Executor | None,
) -> None:
    """What is left, through an executor if there is one; what that leaves, each in a process of its own."""
    if executor is not None:
        executor = usable(executor)
        here = capacity(executor)
        if measuring.threads is None:
            measuring = dataclasses.replace(measuring, threads=here.threads)
        tasks = [PointTask(data, p, run.settings[p], measuring, isolated, timeout) for p in run.left()]
        _through(executor, here, deque(tasks), run)
        run.note(here.note)
    for point in run.left():
        run.starts(point)
        run.finish(point, run_isolated(data, point, run.settings[point], measuring, timeout))


def _through(executor: Executor, here: Capacity, queue: deque[PointTask], run: _Run) -> None:
    """Put tasks through an executor; those that it could not take are left undone, with a note."""
    run.together = here.points
    pending: dict[Future[dict[str, Any]], PointTask] = {}
    try:
        while queue or pending:
            # One waits for each that runs: enough to keep workers busy, and little is lost with a pool.
            while queue and len(pending) < 2 * here.points:
                try:
                    pending[executor.submit(run_task, queue[0])] = queue[0]
                except Exception as error:  # a broken pool, one shut down, no engines left
                    gone = in_one_line(error)
                    run.note(f"The executor is gone ({gone}): the rest ran here, each in a process.")
                    queue.clear()
                    break
                queue.popleft()
            if pending:
                finished, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    _collect(future, pending.pop(future), queue, run)
    except KeyboardInterrupt:
        for future, task in pending.items():
            if not future.cancel() and future.done() and future.exception() is None:
                run.finish(task.point, outcome_from(future.result()))
        raise
    finally:
        run.together = 0


def _collect(future: Future[dict[str, Any]], task: PointTask, queue: deque[PointTask], run: _Run) -> None:
    error: BaseException | None
    try:
        error = future.exception()  # handed over, so that an interrupt here is never one of a worker
    except CancelledError as cancelled:
        error = cancelled
    if error is None:
        run.finish(task.point, outcome_from(future.result()))
    elif not is_loss(error):
        run.finish(task.point, Outcome("failed", f"on the worker: {in_one_line(error)}"))
    elif isinstance(error, BrokenExecutor):
        queue.append(task)  # nobody knows which of those in the pool broke it; it takes none of them again
    elif task.attempt == 0 and type(error).__name__ != "KilledWorker":  # Dask has tried it on four workers
        queue.append(dataclasses.replace(task, attempt=1))
    else:
        run.finish(task.point, Outcome("lost", f"its workers were lost: {in_one_line(error)}"))


class _Line:
    """One line on stderr, written over; nothing where that is a file."""

    def __init__(self) -> None:
        stream = sys.stderr
        notebook = type(stream).__module__.startswith("ipykernel")
        self._stream = stream if notebook or stream.isatty() else None
        self._begun, self._width = time.monotonic(), 0

    def __call__(self, text: str) -> None:
        if self._stream is not None and time.monotonic() - self._begun > 1:
            self._stream.write("\r" + text.ljust(self._width))
            self._stream.flush()
            self._width = len(text)

    def close(self) -> None:
        if self._stream is not None and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
