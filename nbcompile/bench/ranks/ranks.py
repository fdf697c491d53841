"""``Ranks``: several processes on this machine that run a cell, or a function, together."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import itertools
import linecache
import os
import re
import socket
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack

from nbcompile.bench.ranks.differences import differences
from nbcompile.bench.ranks.engines import Cluster, Engines, Processes
from nbcompile.bench.ranks.task import SHOWN, Device, RankCell, RankTask, Reply
from nbcompile.errors import RanksError
from nbcompile.options import check_seconds
from nbcompile.record.ranks import PARALLELS, Parallel, RankRecord, RanksResult
from nbcompile.settings import CompileKeywords, CompileSettings, keywords_of

EngineKind = Literal["ipyparallel", "processes"]
MOST_A_CORE = 4
_RESERVED = ("rank", "world_size", "device", "mesh")
_POLL = 0.02
_GRACE = 3.0
_numbers = itertools.count(1)


class Ranks:
    """``size`` ranks, started with the first :meth:`run` and kept until :meth:`stop`.

    device:  where they work, ``"cpu"`` (gloo) or ``"cuda"`` (NCCL, one GPU a rank); by default ``"cuda"`` if
             anything that the first run sends is on a GPU.
    engines: ``"processes"``, or ``"ipyparallel"``: a cluster of its own, as ``%%compile --ranks`` uses.
    timeout: seconds a run may take before its ranks are ended, e.g. because one waits for a collective that
             another never calls.

    A context manager. RanksError for a size below 1, for more ranks than GPUs, or for more than
    :data:`MOST_A_CORE` a core (at least 16), each of which is a process with a torch of its own.
    """

    def __init__(
        self,
        size: int,
        *,
        device: Device | None = None,
        engines: EngineKind = "processes",
        timeout: float = 600.0,
    ) -> None:
        if size < 1:
            raise RanksError(f"ranks are at least 1, not {size}.")
        check_seconds("timeout", timeout, error=RanksError)
        most = max(16, MOST_A_CORE * (os.cpu_count() or 1))
        if size > most:
            raise RanksError(
                f"{size} ranks are {size} processes with a torch each, and this machine bears {most}.",
                advice="Two or four show what ranks exchange; nbcompile.open() reads traces of thousands.",
            )
        self.size = size
        self.device = device
        self.kind = engines
        self.timeout = timeout
        self._engines: Engines | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._group = ""

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the processes. The next run starts others."""
        engines, self._engines = self._engines, None
        if engines is not None:
            engines.stop()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._group = ""

    @property
    def running(self) -> bool:
        """Whether the processes are there."""
        return self._engines is not None

    @keywords_of(CompileSettings)
    def run(
        self,
        program: str | Callable[..., Any],
        names: Mapping[str, Any],
        *,
        parallel: Parallel = "ddp",
        split: Sequence[str] = (),
        bucket_mb: float | None = None,
        measure: bool = True,
        cell: RankCell | None = None,
        progress: Callable[[str], None] | None = None,
        **settings: Unpack[CompileKeywords],
    ) -> RanksResult:
        """Run a program on every rank, its modules compiled through ``backend``.

        program:  Python source, which reads ``names``, or a function with parameters of these names.
        names:    what it may read. A copy goes to each rank; ``rank``, ``world_size``, ``device`` and
                  ``mesh`` are there besides.
        parallel: ``"ddp"`` or ``"fsdp2"`` for every ``nn.Module`` that the program names and that has
                  parameters to train, or ``"none"``.
        split:    names of tensors of which each rank gets its share of the rows (dimension 0).
        bucket_mb: DDP's ``bucket_cap_mb``. cell: of a notebook, that the program is.
        backend, mode, ...: as for :func:`nbcompile.compile`.

        After it, the objects in ``names`` are as rank 0 left them (parameters, buffers, gradients, optimizer
        state, tensors and containers changed in place), and ``values`` of the result holds the names it
        bound, ``shown`` the value of its last expression or what the function returned.

        Gradients under DDP and FSDP2 are averaged over the ranks: with ``split`` inputs and a loss that is a
        mean over rows, that is the gradient of the whole batch, to rounding.

        RanksError with the rank and the line if a rank raises, dies, or is not done in time.
        """
        if parallel not in PARALLELS:
            raise RanksError(f"parallel is one of {', '.join(PARALLELS)}, not {parallel!r}.")
        tell = progress or (lambda text: None)
        source, read = _program(program, names, split)
        cell = cell or RankCell(f"<ranks {next(_numbers)}>")
        if cell.filename not in linecache.cache:
            lines = source.splitlines(keepends=True)
            linecache.cache[cell.filename] = (len(source), None, lines, cell.filename)
        from nbcompile.bench.ranks.transfer import cut_off, pack_names, take_back

        sent = {name: value for name, value in read.items() if name not in _RESERVED}
        packed, apart_from = pack_names(sent), cut_off(sent)
        engines = self._ready(read, tell)
        task = self._task(
            settings=CompileSettings(**settings), source=source, cell=cell, names=packed, parallel=parallel,
            split=tuple(split), bucket_mb=bucket_mb, measure=measure, lines=_unsaved_files(),
            path=tuple(path or os.getcwd() for path in sys.path),
        )  # fmt: skip
        tell(f"{self.size} ranks run the program")
        try:
            replies = self._wait(engines, task)
        except BaseException:  # an interrupt too: a rank that waits in a collective hears nothing else
            self.stop()
            raise
        self._raise_failure(replies)
        result = self._result(engines, task, replies, take_back(replies[0].values, read))
        return dataclasses.replace(result, notes=(*result.notes, *apart_from))

    def _result(
        self,
        engines: Engines,
        task: RankTask,
        replies: Sequence[Reply],
        returned: tuple[dict[str, Any], list[str]],
    ) -> RanksResult:
        """What the ranks answered, with the names that the program bound and deleted."""
        records = [_record(reply) for reply in replies]
        values, deleted = returned
        shown = values.pop(SHOWN, None)
        if any(record.reason.startswith("measuring failed") for record in records):
            self._group = ""  # a rank has left it
        return RanksResult(
            world_size=self.size,
            parallel=task.parallel,
            engines=engines.kind,
            collectives="nccl" if task.device == "cuda" else "gloo",
            ranks=tuple(records),
            split=task.split,
            differences=differences(records),
            notes=(*dict.fromkeys(note for reply in replies for note in reply.notes), *_apart(replies)),
            values=values,
            deleted=tuple(deleted),
            shown=shown,
        )

    # -- the processes --------------------------------------------------------------------------------

    def _ready(self, names: Mapping[str, Any], tell: Callable[[str], None]) -> Engines:
        if self.device is None:
            self.device = "cuda" if _on_gpu(names) else "cpu"
        if self._engines is None:
            import torch

            if self.device == "cuda" and self.size > torch.cuda.device_count():
                raise RanksError(
                    f"{self.size} ranks want a GPU each, and there are {torch.cuda.device_count()}."
                )
            tell(f"starting {self.size} ranks")
            kind = Cluster if self.kind == "ipyparallel" else Processes
            self._engines = kind(self.size, self.device, _free_port())
            self._folder = tempfile.TemporaryDirectory(prefix="nbcompile-group-")
            self._group = ""
        return self._engines

    def _task(self, **fields: Any) -> RankTask:
        assert self._folder is not None and self.device is not None
        if not self._group:
            self._group = f"group{next(_numbers)}"
        folder = Path(self._folder.name)
        return RankTask(
            group=self._group,
            store=str(folder / self._group),
            world_size=self.size,
            device=self.device,
            timeout=self.timeout,
            traces=str(folder / "trace"),
            number=next(_numbers),
            **fields,
        )

    def _wait(self, engines: Engines, task: RankTask) -> list[Reply]:
        engines.start(task)
        replies: dict[int, Reply] = {}
        end = time.monotonic() + self.timeout
        failed = False
        while len(replies) < self.size:
            for rank in range(self.size):
                if rank not in replies:
                    reply = engines.reply(rank)
                    if reply is not None:
                        replies[rank] = reply
            if not failed and any(reply.failure for reply in replies.values()):
                # Its process group is closed, so the others hear of it soon, or never.
                failed, end = True, min(end, time.monotonic() + _GRACE)
            if time.monotonic() > end:
                if failed:
                    self.stop()
                    break
                raise self._hung(task, replies)
            time.sleep(_POLL)
        return [replies[rank] for rank in sorted(replies)]

    def _hung(self, task: RankTask, replies: Mapping[int, Reply]) -> RanksError:
        traces = {
            rank: _read(Path(f"{task.traces}{rank}")) for rank in range(self.size) if rank not in replies
        }
        lines = {rank: _traced_line(trace, task.cell.filename) for rank, trace in traces.items()}
        stuck = [rank for rank, line in lines.items() if line is not None] or list(lines)
        where = [
            f"rank {rank} {f'is at line {lines[rank]}' if rank in stuck and lines[rank] else 'waits for it'}"
            for rank in lines
        ]
        return RanksError(
            f"not done in {self.timeout:g} s: {', '.join(where)}.",
            rank=stuck[0],
            line=lines[stuck[0]],
            advice="Every rank must call the same collectives in the same order. The ranks were ended.",
        )

    def _raise_failure(self, replies: Sequence[Reply]) -> None:
        failures = [(reply.failure.time, reply) for reply in replies if reply.failure is not None]
        if not failures:
            return
        self._group = ""
        if self.device == "cuda":
            self.stop()
        reply = min(failures, key=lambda pair: pair[0])[1]
        failure = reply.failure
        assert failure is not None
        text = failure.message.strip().splitlines() or [""]
        kind = "" if failure.kind == "RanksError" else f"{failure.kind}: "
        error = RanksError(f"rank {reply.rank}: {kind}{text[0]}", rank=reply.rank, line=failure.line)
        error.add_note(f"On rank {reply.rank}:\n{failure.traceback.rstrip()}")
        for each in replies:
            if each.output.strip():
                error.add_note(f"Rank {each.rank} printed:\n{each.output.rstrip()}")
        raise error


def names_read(source: str, filename: str = "<cell>") -> tuple[str, ...]:
    """Names that a program reads, deletes or changes. SyntaxError if it is not Python."""
    found: dict[str, None] = {}
    for node in ast.walk(ast.parse(source, filename)):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = None
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            found[node.id] = None
    return tuple(found)


def _program(
    program: str | Callable[..., Any], names: Mapping[str, Any], split: Sequence[str]
) -> tuple[str, dict[str, Any]]:
    """The source to run, and what it reads: all that is to be split, too."""
    if isinstance(program, str):
        source, read = program, {name: names[name] for name in names_read(program) if name in names}
    elif isinstance(program, types.FunctionType):
        code = program.__code__
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = [name for name in parameters if name in names or name in _RESERVED]
        source = f"__program__({', '.join(f'{name}={name}' for name in given)})"
        read = {**{name: names[name] for name in given if name in names}, "__program__": program}
    else:
        raise RanksError(f"a program is source or a function, not {type(program).__name__}.")
    for name in split:
        if name not in read:
            raise RanksError(f"{name} is to be split, and the program does not read it.")
    return source, read


def _record(reply: Reply) -> RankRecord:
    assert reply.record is not None
    return dataclasses.replace(reply.record, output=reply.output, notes=reply.notes)


def _apart(replies: Sequence[Reply]) -> Iterator[str]:
    """A sentence for each module whose parameters are not the same on all ranks."""
    for name, mine in replies[0].sums.items():
        others = [reply.rank for reply in replies if reply.sums.get(name) != mine and mine == mine]
        if others:
            ranks = ", ".join(map(str, others))
            yield f"{name} has other parameters on rank {ranks} now than on rank 0, whose are kept"


def _on_gpu(names: Mapping[str, Any]) -> bool:
    import torch

    for value in names.values():
        tensors = [value] if isinstance(value, torch.Tensor) else []
        if isinstance(value, torch.nn.Module):
            tensors = list(value.parameters())
        if any(tensor.is_cuda for tensor in tensors):
            return True
    return False


def _unsaved_files() -> dict[str, str]:
    """Source that is in no file (notebook cells), which a rank needs to name the lines of a graph."""
    found = {}
    for name, entry in list(linecache.cache.items()):
        if len(entry) == 4 and entry[1] is None and entry[2] and not os.path.exists(name):
            found[name] = "".join(entry[2])
    return found


def _read(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text("utf-8", "replace")
    return ""


def _traced_line(trace: str, filename: str) -> int | None:
    """The innermost line of the cell in a dump of faulthandler (innermost frames come first)."""
    found = re.search(rf'File "{re.escape(filename)}", line (\d+)', trace)
    return int(found[1]) if found else None


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
