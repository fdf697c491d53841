"""On a rank: one cell, from the names that came in to the record that goes back."""

from __future__ import annotations

import ast
import contextlib
import faulthandler
import functools
import gc
import io
import linecache
import time
import traceback
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from nbcompile.api import Compiled
from nbcompile.bench.ranks.buckets import MISSING, buckets_of, reducer_bytes, watched
from nbcompile.bench.ranks.parallel import CellCall, compile_names, hooks_told
from nbcompile.bench.ranks.rank_lines import with_lines
from nbcompile.bench.ranks.steps import Measured, measure
from nbcompile.bench.ranks.task import Failure, RankTask, Reply
from nbcompile.bench.ranks.transfer import Sent, unpack_names
from nbcompile.errors import RanksError
from nbcompile.record.compilation import Cell
from nbcompile.record.ranks import Bucket, RankRecord
from nbcompile.record.recorder import Recorder

RESERVED = frozenset({"rank", "world_size", "device", "mesh"})
"""Names that a cell finds on every rank; the session's own of these names are not sent."""

_DONE, _FAILED = "done", "failed"
_group = ""
_mesh: Any = None


def run(task: RankTask, rank: int) -> Reply:
    """Run the cell. What it raises is the reply's ``failure``, and ends the process group: the other ranks
    would wait for this one."""
    output = io.StringIO()
    notes: list[str] = []
    with open(f"{task.traces}{rank}", "w", encoding="utf-8") as traces:
        # Written if a collective never comes back: then nobody can ask this process any more.
        faulthandler.dump_traceback_later(max(task.timeout - 1.0, 0.5), file=traces)
        try:
            device = _join(task, rank)
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                record, values, sums = _run(task, rank, device, notes)
            return Reply(rank, record, values, output=output.getvalue(), notes=tuple(notes), sums=sums)
        except Exception as error:
            failure = _failure(error, task.cell.filename)
            if not ended_file(task, rank).exists():
                _end(task, rank, _FAILED)
            if task.device == "cpu":  # NCCL may wait here for what it began: the session ends these ranks
                _abort()
            return Reply(rank, failure=failure, output=output.getvalue(), notes=tuple(notes))
        finally:
            faulthandler.cancel_dump_traceback_later()


def ended_file(task: RankTask, rank: int) -> Path:
    """Where a rank tells the others how the cell ended on it. (A collective would wait for a rank that has
    left the group.)"""
    return Path(f"{task.traces}.{task.number}.{rank}")


def _end(task: RankTask, rank: int, how: str) -> None:
    new = Path(f"{ended_file(task, rank)}.new")
    new.write_text(how)
    new.rename(ended_file(task, rank))


def await_others(task: RankTask) -> None:
    """Wait until the cell has ended on every rank. RanksError if it failed on one: what follows is
    collective."""
    for rank in range(task.world_size):
        while not ended_file(task, rank).exists():
            time.sleep(0.002)
        if ended_file(task, rank).read_text() == _FAILED:
            raise RanksError(f"rank {rank} failed")


def _join(task: RankTask, rank: int) -> torch.device:
    """The process group of this task; kept from one task to the next."""
    global _group, _mesh
    # CUDA_VISIBLE_DEVICES leaves each rank one GPU.
    device = torch.device("cuda", 0) if task.device == "cuda" else torch.device("cpu")
    if _group != task.group or not dist.is_initialized():
        _leave()
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            init_method=f"file://{task.store}",
            rank=rank,
            world_size=task.world_size,
            timeout=timedelta(seconds=task.timeout),
        )
        _group = task.group
        _mesh = init_device_mesh(device.type, (task.world_size,))
    return device


def _leave() -> None:
    global _group, _mesh
    _group, _mesh = "", None
    if dist.is_initialized():
        dist.destroy_process_group()


def _abort() -> None:
    """Leave the group so that ranks that wait for this one hear of it. A module under DDP, of this cell or an
    earlier one, keeps its connections open; after FSDP2 torch's caches do, and the session ends the ranks."""
    gc.collect()
    _leave()


def _run(
    task: RankTask, rank: int, device: torch.device, notes: list[str]
) -> tuple[RankRecord, bytes, dict[str, float]]:
    for filename, text in task.lines.items():
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    names = unpack_names(task.names, device)
    for name in task.split:
        names[name] = _part(name, names[name], rank, task.world_size)
    sent = Sent(names, task.split)
    tree = ast.parse(task.source, task.cell.filename)
    recorder = _recorder(task)
    make = functools.partial(Compiled, settings=task.settings, recorder=recorder)
    calls, wrappers, units = compile_names(names, _called(tree), task, device, _mesh, make, notes)
    own = {"rank": rank, "world_size": task.world_size, "device": device, "mesh": _mesh}
    scope: dict[str, Any] = {"__name__": "__main__", **names, **own}
    cuts: list[tuple[str, tuple[str, ...], int]] = []
    with watched(recorder, cuts) as told:
        start = time.perf_counter()
        shown = _execute(tree, task.cell.filename, scope)
        _end(task, rank, _DONE)
        await_others(task)
        seconds = time.perf_counter() - start
        if wrappers and not told:
            notes.append(MISSING)
    compilation = recorder.compilation()
    buckets: tuple[Bucket, ...] = units or buckets_of(cuts, compilation)
    # What the session sent under a name that is now a compiled function is no change of the cell's.
    sent.names.update({call.name: names[call.name] for call in calls})
    spread = task.parallel == "fsdp2"
    compilation = with_lines(hooks_told(compilation) if spread else compilation, tree, calls)
    values = b""
    if rank == 0 or spread:
        values, left = sent.pack(scope, _names_back(scope, task, spread), shown)
        notes += left if rank == 0 else []
    sums = {} if spread else {n: _sum(v) for n, v in names.items() if isinstance(v, torch.nn.Module)}
    found = _measured(calls, device) if task.measure else Measured()
    reducer = tuple(size for wrapper in wrappers.values() for size in reducer_bytes(wrapper))
    record = RankRecord(
        rank, str(device), found.into(compilation), seconds, found.steady, found.eager, found.reason, buckets,
        reducer, found.communication, lines={g: line for call in calls for g, line in call.lines.items()},
    )  # fmt: skip
    return record, values if rank == 0 else b"", sums


def _sum(module: torch.nn.Module) -> float:
    return sum(float(parameter.detach().double().sum()) for parameter in module.parameters())


def _measured(calls: list[CellCall], device: torch.device) -> Measured:
    try:
        return measure(calls, device)
    except Exception as error:
        # The cell itself is done. The group is not to be trusted: another rank may still wait in it.
        _leave()
        return Measured(reason=f"measuring failed: {type(error).__name__}: {error}")


def _part(name: str, value: Any, rank: int, world_size: int) -> Any:
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        raise RanksError(f"{name} is no tensor with rows, so it cannot be split.")
    rows = value.shape[0]
    if rows % world_size:
        raise RanksError(
            f"{name} has {rows} rows, which {world_size} ranks cannot share evenly.",
            advice="A mean over unequal parts is not the mean over all.",
        )
    part = value.detach()[rank * rows // world_size : (rank + 1) * rows // world_size].clone()
    return part.requires_grad_(value.requires_grad)


def _recorder(task: RankTask) -> Recorder:
    source = task.lines.get(task.cell.filename, task.source)
    return task.settings.recorder(Cell(source, task.cell.filename, task.cell.execution_count))


def _called(tree: ast.Module) -> frozenset[str]:
    """Names that the cell calls as functions."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return frozenset(call.id for call in calls if isinstance(call, ast.Name))


def _execute(tree: ast.Module, filename: str, scope: dict[str, Any]) -> Any:
    """Run the cell; returns the value of its last expression, if it ends in one."""
    last = tree.body[-1] if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    before = ast.Module(tree.body[:-1] if last is not None else tree.body, tree.type_ignores)
    exec(compile(before, filename, "exec"), scope)
    return eval(compile(ast.Expression(last.value), filename, "eval"), scope) if last is not None else None


def _names_back(scope: dict[str, Any], task: RankTask, spread: bool) -> list[str]:
    """What may go back. Where parameters are spread over the ranks, packing them is collective, so all
    ranks must pack the same names."""
    names = sorted(scope.keys() - RESERVED - set(task.cell.defined))
    if spread:
        everyone: list[Any] = [None] * task.world_size
        dist.all_gather_object(everyone, names)
        names = sorted(set(everyone[0]).intersection(*everyone[1:]))
    return names


def _failure(error: Exception, filename: str) -> Failure:
    line, first = None, error.__traceback__
    for trace in _frames(error.__traceback__):
        if trace.tb_frame.f_code.co_filename == filename:
            first = first if line is not None else trace
            line = trace.tb_lineno
    if line is None and isinstance(error, SyntaxError) and error.filename == filename:
        line = error.lineno
    text = "".join(traceback.format_exception(type(error), error, first))
    return Failure(type(error).__name__, str(error), line, text, time.time())


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next
