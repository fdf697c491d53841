"""At which lines of the user's source an export failed, and why.

``torch.export`` stops at the first obstacle; ``torch.export.draft_export`` goes on past each and keeps a list
with the user's stack. Where that finds nothing either, the traceback names the line.
"""

from __future__ import annotations

import contextlib
import gc
import linecache
import logging
import os
import re
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from nbcompile.bench.export.program import ExportedFunction
from nbcompile.errors import ExportError, in_one_line
from nbcompile.guard_words import in_own_names
from nbcompile.record.compilation import GraphBreak, Span
from nbcompile.units import clip

_LOUD = (
    "torch.export._draft_export",
    "torch.fx.experimental.symbolic_shapes",
    "torch.fx.experimental.recording",
)
_VALUE = "Python decides by a value that only a run knows"
_HINTS = {
    "value": "Choose with torch.where or torch.cond, or state what holds with torch._check.",
    "size": "Name no dynamic dimension there, or write the line so that it takes every size.",
    "kernel": "Give the operator a fake kernel with torch.library.register_fake.",
}


@contextlib.contextmanager
def quiet_export() -> Iterator[None]:
    """Without what torch.export logs about the obstacles that we tell ourselves."""
    loggers = [logging.getLogger(name) for name in _LOUD]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


def export_error(program: ExportedFunction, error: BaseException) -> ExportError:
    """What is to be raised for an export that failed with ``error``: each obstacle at its line."""
    blockers = _drafted(program) or _of_traceback(error)
    if not blockers:
        return ExportError(f"the program cannot be exported: {clip(in_one_line(error), 300)}")
    first = blockers[0]
    span = first.spans[-1] if first.spans else None
    more = [f"{_where(item)}{item.reason}" for item in blockers[1:]]
    also = f" Also blocked: {'; '.join(more)}." if more else ""
    # A cell has a name, but no file.
    place = f" ({span.file})" if span is not None and os.path.exists(span.file) else ""
    return ExportError(
        f"this cannot be exported{place}: {first.reason}.{also}",
        blockers=blockers,
        line=span.line if span is not None else None,
        file=span.file if span is not None else "",
        advice=first.hint,
    )


def _drafted(program: ExportedFunction) -> tuple[GraphBreak, ...]:
    """What draft_export reports; nothing where this torch has none, or it fails in turn."""
    draft = getattr(torch.export, "draft_export", None)
    if draft is None:
        return ()
    shapes = program.dynamic_shapes()
    try:
        with _no_trace_file():
            made = draft(
                program.module, program.args, dict(program.kwargs), dynamic_shapes=shapes, strict=False
            )
    except Exception:  # the first error tells more than this one
        return ()
    report = getattr(made, "_report", None)
    files = {**_interned(), **getattr(report, "str_to_filename", {})}
    found: dict[object, GraphBreak] = {}
    for item in getattr(report, "failures", ()):
        # A guard on a value of the run is told as the decision that it comes from.
        if item.failure_type.name != "GUARD_ADDED" or item.data.get("symbol_to_sources"):
            blocker = _blocker(item, files)
            found.setdefault(blocker.spans[-1] if blocker.spans else blocker, blocker)
    return tuple(found.values())


@contextlib.contextmanager
def _no_trace_file() -> Iterator[None]:
    """draft_export listens to torch's structured trace, which writes a file as well and leaves it open."""
    with tempfile.TemporaryDirectory(prefix="nbcompile-draft-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        before = os.environ.get("TORCH_TRACE")
        os.environ["TORCH_TRACE"] = before or folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["TORCH_TRACE"]
            gc.collect()  # closes the file


def _interned() -> Mapping[int, str]:
    """File names by the numbers that torch's structured trace has for them: a draft's report knows only those
    that were given while it was made."""
    from torch._logging import structured

    table: Mapping[str, int] = getattr(structured, "INTERN_TABLE", {})
    return {number: name for name, number in table.items()}


def _blocker(failure: Any, files: Mapping[int, str]) -> GraphBreak:
    data: Mapping[str, Any] = failure.data
    kind = str(failure.failure_type.name)
    frames = [(files.get(frame["filename"], ""), int(frame["line"])) for frame in data.get("user_stack", ())]
    spans = _own(frames)
    code = f"`{clip(linecache.getline(spans[-1].file, spans[-1].line), 80)}`: " if spans else ""
    if kind == "DATA_DEPENDENT_ERROR":
        return GraphBreak(f"{code}{_VALUE}", _HINTS["value"], kind, spans=spans)
    if kind == "GUARD_ADDED":
        needs = _readable(str(data["expr"]), data.get("symbol_to_sources") or {})
        return GraphBreak(f"{code}only holds if {needs}", _HINTS["size"], kind, spans=spans)
    why = f"torch.ops.{data.get('op')} has no fake kernel, or a wrong one"
    return GraphBreak(f"{code}{why}", _HINTS["kernel"], kind, spans=spans)


def _of_traceback(error: BaseException) -> tuple[GraphBreak, ...]:
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    # torch.export writes the user's line into its message where Python's own frames are gone.
    frames += [(m[1], int(m[2])) for m in re.finditer(r'File "([^"]+)", line (\d+), in ', str(error))]
    spans = _own(frames)
    reason = clip(in_one_line(error), 300)
    return (GraphBreak(reason, kind=type(error).__name__, spans=spans),) if spans else ()


def _own(frames: list[tuple[str, int]]) -> tuple[Span, ...]:
    """The frames of the user's own files, outermost first."""
    ours = (torch.__path__[0], str(Path(__file__).resolve().parents[2]))
    return tuple(
        Span(line, file=file)
        for file, line in frames
        if file and line and not file.startswith(ours) and "site-packages" not in file
    )


def _readable(expr: str, sources: Mapping[str, str]) -> str:
    """A guard on symbols as one on sizes of inputs: ``Eq(Mod(x.size(0), 8), 0)``."""
    for symbol, source in sources.items():
        place = re.sub(r"\.size\(\)\[(\d+)\]", r".size(\1)", in_own_names(source))
        expr = re.sub(rf"\b{re.escape(symbol)}\b", place, expr)
    return clip(expr, 120)


def _where(item: GraphBreak) -> str:
    return f"line {item.spans[-1].line}: " if item.spans else ""
