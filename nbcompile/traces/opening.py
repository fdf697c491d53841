"""``nbcompile.open``: a trace file, or a folder of them."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from pathlib import Path

from nbcompile.errors import TraceError
from nbcompile.traces.ranks import Progress
from nbcompile.traces.trace import Trace
from nbcompile.traces.trace_set import TraceSet, trace_files


def open(
    path: str | os.PathLike[str], executor: Executor | None = None, progress: Progress | None = None
) -> Trace | TraceSet:
    """What ``TORCH_TRACE`` wrote, of one process or of thousands: a :class:`Trace` of one file (or a folder
    that holds one), a :class:`TraceSet` of a folder with several. Files may be gzip'd; torch is not needed.

    ``executor``: reads many files at a time, e.g. Dask's ``client.get_executor()``, where its workers see the
    folder; without it, processes of this machine do. ``progress``: called with one line a batch of files.

    TraceError where there is no trace. What cannot be read in one is counted and shown, not raised.
    """
    place = Path(path).expanduser()
    if place.is_file():
        return _one(place)
    if not place.is_dir():
        raise TraceError(f"{place}: there is no such file or folder.")
    files = trace_files(place)
    if not files:
        raise TraceError(
            f"{place} holds no trace: no file that ends in .log or .log.gz.",
            advice="Run the job with TORCH_TRACE=FOLDER in its environment; torch writes a file a process.",
        )
    return _one(files[0]) if len(files) == 1 else TraceSet(place, files, executor, progress)


def _one(path: Path) -> Trace:
    try:
        found = Trace(path)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not found.compilations and not found.index.outside:
        raise TraceError(
            f"{path} is no trace of torch: of {found.index.records} records none could be read.",
            advice="A saved record is read with nbcompile.Compilation.from_json(text).",
        )
    return found
