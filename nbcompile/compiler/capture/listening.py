"""Listening to Dynamo while it compiles for us: breaks, recompiles, guards, limits, and its profile.

Dynamo tells these things through process-wide hooks. A :class:`Session` belongs to one compiled
callable; while that runs, it is the active session of its thread, and what Dynamo says goes to it.
The hooks by which Dynamo calls us or is changed are in this file, but for those that ``nbcompile.api`` hands
to ``torch._dynamo.optimize`` (``guard_failed`` and ``guards_made`` below), and those of a walk
(``walk/dynamo.py``). Of the private ones, where an
expression ends and the profile are optional: a torch that has them no more compiles all the same, with less
in the record. The modules ``cache_size``, ``callback`` and ``utils`` of ``torch._dynamo`` have to be there.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any

import torch._dynamo
from torch._dynamo import cache_size, utils
from torch._dynamo import callback as dynamo_callback

from nbcompile.compiler.capture.graph_breaks import (
    IN_LOOP,
    break_of_exception,
    exception_being_logged,
    what_stops_a_step,
)
from nbcompile.compiler.capture.guards import guards_of
from nbcompile.compiler.capture.recompiles import recompile_of
from nbcompile.compiler.capture.walk import dynamo
from nbcompile.compiler.capture.walk.follow import Walker
from nbcompile.record.compilation import GraphBreak
from nbcompile.record.recorder import Recorder


class _Active(threading.local):
    session: Session | None = None  # a name that a thread lacks costs a microsecond to miss


active = _Active()
_lock = threading.Lock()

LIMIT = "Dynamo recompile limit exceeded"
STOPPED = "Dynamo stopped compiling"
PART = re.compile(r"(torch_dynamo_resume_in_)?cell_\d+_\d+")
"""What the functions that parts of a cell become are called."""
_LEFT = (
    "torch._dynamo.config.disable was set at an earlier call, after which Dynamo does not look at it again"
)


class Session:
    """What one compiled callable hears from Dynamo, and what ran in its last call."""

    def __init__(self, recorder: Recorder, watch: bool = False) -> None:
        self.recorder = recorder
        self.walker = Walker(recorder) if watch else None
        self.cell_file = recorder.cell.filename if recorder.cell is not None else ""
        self.ran: list[str] = []  # graph ids that ran in the last call, in order
        self.frames: dict[str, str] = {}  # graph id → id of the Dynamo frame it belongs to
        self.limits: dict[str, str] = {}  # frame id → why Dynamo will not compile it again
        self.suppressed = ""  # an error that Dynamo swallowed in the last call
        self.forbidden = ""  # the setting by which Dynamo compiled nothing in the last call
        self.turned_off = False  # in a call before any graph: Dynamo skips the function from then on
        self.stance = "default"  # what torch.compiler.set_stance asked of Dynamo in the last call
        self.listening = False
        self.breaks: list[GraphBreak] = []  # all of this callable's, in order
        self.optimizer = ""  # why torch has left to Python what an optimizer's step computes
        self._profile = _empty_profile()
        self._outer_profile: Any = None
        self._failures: list[tuple[str, CodeType | None]] = []
        self._refused = False  # in the last call Dynamo would not compile once more
        self._pending: list[tuple[str, GraphBreak]] = []  # (frame id, break), not yet tied to a graph
        self._seen: dict[tuple[Any, ...], GraphBreak] = {}

    # -- around one call ---------------------------------------------------------------------

    def begin(self) -> Session | None:
        """Make this the active session of the thread; returns the one before, for :meth:`end`."""
        if _on_start not in dynamo_callback.callback_handler.start_callbacks:
            _install()  # the first time, and after torch._dynamo.reset()
        previous = active.session
        active.session = self
        self.ran.clear()
        self.suppressed = ""
        self.stance = stance()
        self.forbidden = kept_from_compiling() or (_LEFT if self.turned_off else "")
        self.turned_off = self.turned_off or (not self.frames and torch._dynamo.config.disable)
        return previous

    def end(self, previous: Session | None) -> None:
        """The call is over, by return or by exception."""
        active.session = previous
        if self.listening:
            self._stop()
        if self.walker is not None:
            self.walker.finish()
        if self._refused:  # nothing was compiled again, and limit_hit() has told
            self._failures.clear()
        if self._failures:  # they led to no graph: an error
            self._flush_recompile("")
        self._refused = False
        if self._pending:
            self.flush_breaks("")

    def begin_again(self) -> None:
        """As :meth:`begin`, for a call like others before it that no stance, setting or limit concerns."""
        if _on_start not in dynamo_callback.callback_handler.start_callbacks:
            _install()
        active.session = self
        self.ran.clear()
        self.suppressed = self.forbidden = ""
        self.stance = "default"

    def end_again(self, previous: Session | None) -> None:
        """As :meth:`end`, after :meth:`begin_again`."""
        active.session = previous
        if self.listening or self._failures or self._pending:
            self.end(previous)
        if not self.ran:
            self.forbidden = kept_from_compiling()

    # -- what Dynamo says ----------------------------------------------------------------------

    def guard_failed(self, failure: Any) -> None:
        """Dynamo's ``guard_fail_fn``: once for each graph whose guards were tried and failed."""
        self._failures.append((str(failure.reason), getattr(failure, "orig_code", None)))

    def guards_made(self, guards: Iterable[Any]) -> None:
        """Dynamo's ``guard_export_fn``: the guards of the graph just compiled."""
        graph = f"g{self.recorder.graph_count - 1}"
        self.recorder.extend(guards_of(guards, graph, self.cell_file, self.recorder.sources.get(graph, {})))

    def graph_made(self, graph: str) -> None:
        """Our backend was called: ties what was heard before to this graph."""
        self.frames[graph] = _frame_id()
        if self.walker is not None:
            self.walker.graph_made(graph)
        self.flush_breaks(graph)
        if self._failures:
            self._flush_recompile(graph)

    def broke(self, error: BaseException) -> None:
        """Dynamo logs a graph break."""
        if getattr(error, "gb_type", "") == LIMIT:
            return  # not a break: limit_hit() tells it better
        found = break_of_exception(error, self.cell_file)
        if found is None:
            self.optimizer = self.optimizer or what_stops_a_step(error)
            return
        # A break inside a called function is met again when Dynamo traces that function by itself.
        # Its reason counts, too: torch 2.11 tells the line of a break but no columns.
        key = (found.kind, found.spans[-1:], found.reason.partition(IN_LOOP)[0])
        known = self._seen.setdefault(key, found)
        if known is found:
            self.breaks.append(found)
            self._pending.append((_frame_id(), found))
        else:  # the frame that compiles up to it is the one that met it last
            self._pending = [(_frame_id() if it is known else frame, it) for frame, it in self._pending]

    def limit_hit(self, limit: str, code: CodeType) -> None:
        """Dynamo gives up on a frame: from now on it runs old graphs or eagerly."""
        most = getattr(torch._dynamo.config, limit)
        where = f"by '{code.co_name}' ({code.co_filename}:{code.co_firstlineno})"
        if code.co_filename == self.cell_file and PART.match(code.co_name):
            where = f"at cell line {code.co_firstlineno}: what fits none of its graphs runs eagerly there"
        text = f"{limit} ({most}) reached {where}"
        self._refused = True
        self.limits[_frame_id()] = text
        self.recorder.add(f"{STOPPED}: {text}")

    def flush_breaks(self, graph: str) -> None:
        """Add the breaks heard so far. Those of the frame that ``graph`` is made for come after it; a
        frame that made no graph before it moved on had nothing to compile up to there."""
        for frame, found in self._pending:
            after = graph if graph and frame == self.frames.get(graph) else ""
            self.recorder.add(dataclasses.replace(found, after_graph=after))
        self._pending.clear()

    def _flush_recompile(self, graph: str) -> None:
        self.recorder.add(recompile_of(self._failures, graph, self.cell_file))
        self._failures.clear()

    # -- while Dynamo compiles -------------------------------------------------------------------

    def compile_started(self) -> None:
        self.recorder.capture_started = time.perf_counter()
        if not self.listening:
            self.listening = True
            _listen()
            if self.walker is not None:
                dynamo.install(_walker)
        self._outer_profile = _swap_profile(self._profile)

    def compile_ended(self) -> None:
        self._profile = _swap_profile(self._outer_profile)

    def _stop(self) -> None:
        self.listening = False
        _unlisten()
        if self.walker is not None:
            dynamo.remove()


def stance() -> str:
    """What ``torch.compiler.set_stance`` asks of Dynamo now: "default", "force_eager" ..."""
    return str(getattr(getattr(torch._dynamo.eval_frame, "_stance", None), "stance", "default"))


def kept_from_compiling() -> str:
    """Why Dynamo would compile nothing new now, where a setting forbids it; empty if none does."""
    if torch._dynamo.config.disable:
        return "torch._dynamo.config.disable is set"
    return f"torch.compiler.set_stance asks for {stance()}" if stance() == "fail_on_recompile" else ""


def active_session() -> Session | None:
    """The session whose callable is running in this thread, if any."""
    return active.session


def _walker() -> Walker | None:
    """Who follows Dynamo in this thread, if anybody watches."""
    session = active_session()
    walker = session.walker if session is not None and session.listening else None
    return walker if walker is not None and not walker.lost else None


# -- hook: compile start and end (torch._dynamo.callback, public) ---------------------------------


def _on_start(arguments: Any = None) -> None:
    session = active_session()
    if session is not None and _is_dynamo(arguments):
        session.compile_started()


def _on_end(arguments: Any = None) -> None:
    session = active_session()
    if session is not None and session.listening and _is_dynamo(arguments):
        session.compile_ended()


def _is_dynamo(arguments: Any) -> bool:
    # Others: a backward graph compiled late, autotuning, CUDA graphs being recorded.
    trigger = getattr(arguments, "callback_trigger", None)
    return trigger is None or trigger.name == "DYNAMO"


def _install() -> None:
    handler = dynamo_callback.callback_handler
    with _lock:
        if _on_start not in handler.start_callbacks:
            handler.register_start_callback(_on_start)
        if _on_end not in handler.end_callbacks:
            handler.register_end_callback(_on_end)
        if _on_attempt not in (utils.get_hook_for_recompile_user_context() or ()):
            utils.register_hook_for_recompile_user_context(_on_attempt)
        logger = logging.getLogger("torch._dynamo.convert_frame")
        if _SWALLOWED not in logger.handlers:
            logger.addHandler(_SWALLOWED)


def _frame_id() -> str:
    """Dynamo's number of the code object it compiles now, e.g. ``"0"``; empty where unknown."""
    from torch._guards import CompileContext

    try:
        compile_id = CompileContext.current_compile_id()
    except (AttributeError, AssertionError):
        return ""
    return str(getattr(compile_id, "frame_id", "")) if compile_id is not None else ""


# -- hook: a frame is about to be compiled (register_hook_for_recompile_user_context, public) -------


def _on_attempt() -> str:
    """Asks what Dynamo asks itself next: was this frame compiled too often? Dynamo tells the answer in a
    warning only, which a log level may keep from us. Returns nothing to note in Dynamo's own metrics."""
    session = active_session()
    if session is not None:
        about = _attempt()
        try:
            exceeded, limit = cache_size.exceeds_recompile_limit(about["cache_size"], about["compile_id"])
            if exceeded:
                session.limit_hit(limit, about["code"])
        except (KeyError, AttributeError, TypeError):
            pass  # another torch: what Dynamo asks there is not known here
    return ""


def _attempt() -> dict[str, Any]:
    """The arguments of Dynamo's ``_compile``, which is running the hook; empty where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_compile":
        frame = frame.f_back
    return frame.f_locals if frame is not None else {}


# -- hook: log records (the graph_breaks artifact and convert_frame's warnings) -------------------

_BREAK_LOGGERS = tuple(
    f"torch._dynamo.{module}.__graph_breaks" for module in ("symbolic_convert", "convert_frame", "exc")
)


class _Breaks(logging.Handler):
    """Hears each graph break. Prints nothing."""

    def emit(self, record: logging.LogRecord) -> None:
        session = active_session()
        error = exception_being_logged()
        if session is not None and error is not None:
            try:
                session.broke(error)
            except Exception:  # must not reach Dynamo: it would become an internal error of the compile
                self.handleError(record)


class _Swallowed(logging.Handler):
    """Hears that Dynamo swallowed an error. Prints nothing."""

    def emit(self, record: logging.LogRecord) -> None:
        session = active_session()
        if session is None or record.levelno < logging.WARNING:
            return
        if record.exc_info:
            error = record.exc_info[1]
            error = getattr(error, "inner_exception", None) or error  # Dynamo wraps a backend's own
            first = (str(error).strip() or "no message").splitlines()[0]
            session.suppressed = f"{type(error).__name__}: {first}"
            session.recorder.add(f"Dynamo swallowed an error and ran eagerly: {session.suppressed}")


class _Repeats(logging.Filter):
    """Drops the warning that says again, in 12 lines, what is recorded as a graph break."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("Graph break from")


_BREAKS = _Breaks(logging.DEBUG)
_SWALLOWED = _Swallowed(logging.WARNING)
_REPEATS = _Repeats()
_listeners = 0
_undo: list[tuple[logging.Logger, int, bool]] = []


def _listen() -> None:
    """Turn the graph_breaks artifact on for our handler only: what was silent stays silent."""
    global _listeners
    with _lock:
        _listeners += 1
        if _listeners > 1:
            return
        for name in _BREAK_LOGGERS:
            logger = logging.getLogger(name)
            _undo.append((logger, logger.level, logger.propagate))
            if not logger.isEnabledFor(logging.DEBUG):
                logger.propagate = False
                logger.setLevel(logging.DEBUG)
            logger.addHandler(_BREAKS)
        logging.getLogger("torch._dynamo.variables.tensor").addFilter(_REPEATS)
        _mark_ends(True)


def _unlisten() -> None:
    """Put the loggers back as they were, once nobody listens."""
    global _listeners
    with _lock:
        _listeners -= 1
        if _listeners:
            return
        for logger, level, propagate in _undo:
            logger.removeHandler(_BREAKS)
            logger.setLevel(level)
            logger.propagate = propagate
        _undo.clear()
        logging.getLogger("torch._dynamo.variables.tensor").removeFilter(_REPEATS)
        _mark_ends(False)


# -- hook: where an expression ends (InstructionTranslatorBase.frame_summary, private) -------------


def _mark_ends(on: bool) -> None:
    """Have Dynamo note where an expression begins and ends. Torch 2.11 notes the line only; 2.13 the
    columns but not the last line, so Python underlines up to the end of the line; 2.15 all of it."""
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase as Translator

    original = getattr(Translator, "frame_summary", None)
    if original is None:
        return
    known = getattr(original, "_nbcompile_original", None)
    if not on:
        if known is not None:
            Translator.frame_summary = known  # type: ignore[method-assign]
        return
    if known is not None:
        return

    def frame_summary(self: Any) -> Any:
        summary = original(self)
        positions = getattr(getattr(self, "current_instruction", None), "positions", None)
        if positions is not None and positions.lineno == summary.lineno:
            summary.end_lineno = positions.end_lineno
            summary.colno, summary.end_colno = positions.col_offset, positions.end_col_offset
        return summary

    frame_summary._nbcompile_original = original  # type: ignore[attr-defined]
    Translator.frame_summary = frame_summary  # type: ignore[method-assign]


# -- hook: profile-guided dynamic shapes (torch._dynamo.pgo, private) ------------------------------


def _swap_profile(profile: Any) -> Any:
    """Put an automatic-dynamic profile in place and return the one that was there.

    Torch keeps one for the process, by file name and first line: shapes seen by another callable, or by
    a cell before an edit, would make this one's shapes dynamic.
    """
    pgo = getattr(torch._dynamo, "pgo", None)
    if pgo is None or not hasattr(pgo, "_CODE_STATE") or not hasattr(pgo, "CodeState"):
        return profile
    previous = pgo._CODE_STATE
    pgo._CODE_STATE = profile
    return previous


def _empty_profile() -> Any:
    state = getattr(getattr(torch._dynamo, "pgo", None), "CodeState", None)
    return defaultdict(state) if state is not None else None
