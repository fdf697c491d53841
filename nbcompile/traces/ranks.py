"""Many files at a time: here, in processes of this machine, or on somebody's workers (Dask's, for one).

A worker sends back what ranks are compared by, not the whole index: a thousand of those would not be held.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass, field
from pathlib import Path

from nbcompile.bench.executors import capacity, cores, is_loss, usable
from nbcompile.bench.processes import ProcessEndedError, in_process
from nbcompile.errors import in_one_line
from nbcompile.traces.reading.digests import COMPARED
from nbcompile.traces.reading.index import index_of, rank_in
from nbcompile.traces.reading.values import CompileStatus, TracedCompile

_HERE_BYTES = 1 << 25
"""Less in all than this is read in this process: to start others takes as long."""
_BATCH_BYTES, _BATCH_FILES = 1 << 27, 64
Progress = Callable[[str], None]


@dataclass(frozen=True)
class RankCompile:
    """What of one compilation is held against other ranks: ``marks`` are what (a graph, guards, caches) and a
    hash or a word that is equal where that is."""

    id: str
    function: str
    status: CompileStatus
    seconds: float | None = None
    marks: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class RankSummary:
    """One file. ``error`` says why it could not be read at all."""

    path: str
    rank: int | None = None
    compiles: tuple[RankCompile, ...] = ()
    torch: str = ""
    records: int = 0
    size: int = 0
    damaged: int = 0
    unread: dict[str, int] = field(default_factory=dict)
    error: str = ""

    @property
    def seconds(self) -> float:
        """Of all its compilations that say."""
        return sum(each.seconds or 0.0 for each in self.compiles)


def summary_of(path: str) -> RankSummary:
    """Read one file. What cannot be opened is a summary that says so."""
    try:
        index = index_of(Path(path))
    except OSError as error:
        return RankSummary(path, rank_in(Path(path).name), error=in_one_line(error))
    return RankSummary(
        path,
        index.rank,
        tuple(_compared(each) for each in index.compiles),
        index.torch,
        index.records,
        index.size,
        index.damaged,
        index.unread,
    )


def summaries_of(paths: Sequence[str]) -> list[RankSummary]:
    """What a worker does."""
    return [summary_of(path) for path in paths]


def _compared(traced: TracedCompile) -> RankCompile:
    hashes: dict[str, list[str]] = {}
    for artifact in traced.artifacts:
        if artifact.digest:
            what = next((COMPARED[key] for key in COMPARED if artifact.name.startswith(key)), artifact.name)
            hashes.setdefault(what, []).append(artifact.digest)
    marks = {what: _one(several) for what, several in hashes.items()}
    if traced.caches:
        marks["caches"] = traced.cache_text
    if traced.recompiles:
        marks["recompile reason"] = _one([text.split("\n", 1)[0] for text in traced.recompiles])
    return RankCompile(traced.id, traced.function, traced.status, traced.seconds, tuple(marks.items()))


def _one(several: Iterable[str]) -> str:
    return hashlib.sha1("\n".join(several).encode("utf-8", "replace"), usedforsecurity=False).hexdigest()


# -- many ----------------------------------------------------------------------------------------------


def read_ranks(
    files: Sequence[Path], executor: Executor | None = None, progress: Progress | None = None
) -> tuple[list[RankSummary], list[str]]:
    """The summaries in the order of the files, and notes on what did not go as asked.

    A batch whose worker is lost, or that a worker cannot open, is read here.
    """
    batches = _batches(files)
    reading = _Reading(progress, len(files))
    if executor is not None:
        executor = usable(executor)
        _through(executor, 2 * capacity(executor).points, summaries_of, batches, reading)
    elif len(batches) > 1 and cores() > 1:
        with ThreadPoolExecutor(cores()) as threads:
            _through(threads, cores(), _in_process, batches, reading)
    for path in map(str, files):
        if path not in reading.done:
            reading.keep([summary_of(path)])
        elif executor is not None and reading.done[path].error:
            reading.keep([summary_of(path)])
            if not reading.done[path].error:
                reading.note("Files that workers could not open were read here: they do not see this folder.")
    return [reading.done[str(path)] for path in files], reading.notes


@dataclass
class _Reading:
    progress: Progress | None
    count: int
    done: dict[str, RankSummary] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def keep(self, summaries: Iterable[RankSummary]) -> None:
        self.done |= {each.path: each for each in summaries}
        if self.progress is not None:
            self.progress(f"{len(self.done)} of {self.count} files")

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _batches(files: Sequence[Path]) -> list[list[str]]:
    """Files that one task reads: few enough that all workers have some, and not one each, which would be
    mostly asking."""
    sizes = [path.stat().st_size if path.exists() else 0 for path in files]
    if sum(sizes) <= _HERE_BYTES:
        return [[str(path) for path in files]]
    most = min(_BATCH_BYTES, max(1 << 22, sum(sizes) // 32))
    found: list[list[str]] = []
    held = most
    for path, size in zip(files, sizes, strict=True):
        if held + size > most or len(found[-1]) >= _BATCH_FILES:
            found.append([])
            held = 0
        found[-1].append(str(path))
        held += size
    return found


def _in_process(paths: Sequence[str]) -> list[RankSummary]:
    return in_process(summaries_of, list(paths))


def _through(
    executor: Executor,
    most: int,
    read: Callable[[Sequence[str]], list[RankSummary]],
    batches: Sequence[Sequence[str]],
    reading: _Reading,
) -> None:
    """Put batches through an executor, a lost one twice; what it does not do is left."""
    queue = deque((batch, 0) for batch in batches)
    pending: dict[Future[list[RankSummary]], tuple[Sequence[str], int]] = {}
    try:
        while queue or pending:
            while queue and len(pending) < most:
                try:
                    pending[executor.submit(read, queue[0][0])] = queue[0]
                except Exception as error:  # a broken pool, one shut down, no engines left
                    reading.note(f"The executor is gone ({in_one_line(error)}): the rest was read here.")
                    queue.clear()
                    break
                queue.popleft()
            finished, _ = wait(pending, return_when=FIRST_COMPLETED) if pending else ((), ())
            for future in finished:
                again = _collect(future, *pending.pop(future), reading)
                queue.extend(again)
    finally:
        for future in pending:
            future.cancel()


def _collect(
    future: Future[list[RankSummary]], batch: Sequence[str], attempt: int, reading: _Reading
) -> list[tuple[Sequence[str], int]]:
    """Keep what a worker read; the batch again if its worker was lost for the first time."""
    try:
        reading.keep(future.result())
        return []
    except (CancelledError, Exception) as error:
        if is_loss(error) and attempt == 0 and type(error).__name__ != "KilledWorker":
            return [(batch, 1)]
        lost = is_loss(error) or isinstance(error, ProcessEndedError)
        why = "a worker was lost" if lost else "a worker failed"
        reading.note(f"{why} ({in_one_line(error)}): its files were read here.".capitalize())
        return []
