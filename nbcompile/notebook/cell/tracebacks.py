"""Tracebacks as they are without us: the user's own frames, one for a function that Dynamo split."""

from __future__ import annotations

from types import CodeType, TracebackType

from torch._dynamo.exc import Unsupported, UserError

from nbcompile.compiler.capture.graph_record import is_user_file
from nbcompile.errors import CellError, ExportError, OptionError

_RESUME = "torch_dynamo_resume_in_"
CALL_FILE = "<%compile {}>"
"""The file of a ``%compile`` line's call, which is no frame of the user's: the cell's own shows the line."""
_MACHINERY = ("nbcompile.", "torch._dynamo.")
_TRACING = ("torch.export.", "torch._export.", "torch.fx.", "torch._inductor.")
"""More of it, for interrupts: a program may call these itself, and errors there are its own."""
_TOLD = (KeyboardInterrupt, CellError, ExportError, OptionError, Unsupported, UserError)
"""What is told without a place of ours: where it came up in here says nothing of the program."""


def show_only_the_users(error: BaseException, filename: str = "", part: str = "") -> None:
    """Give ``error`` the traceback that it would have without us: our frames and Dynamo's go, and what they
    call, up to the next frame of the user's (of ``filename``, or of a file that is). ``part`` is a function
    that was made of one statement: its own frames go too, for the frame that runs it says the same line.

    An error in which the user has no frame is a fault of ours, and keeps all of them.
    """
    kept: list[TracebackType] = []
    hidden, seen, trace = True, False, error.__traceback__
    machinery = (*_MACHINERY, *_TRACING) if isinstance(error, KeyboardInterrupt) else _MACHINERY
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(CALL_FILE.partition("{")[0]):
            hidden, seen = True, True
        elif code.co_filename == filename or is_user_file(code.co_filename):
            hidden, seen = False, True
        elif str(trace.tb_frame.f_globals.get("__name__", "")).startswith(machinery):
            hidden = True
        if not hidden and not (part and part in code.co_name and code.co_filename == filename):
            kept.append(trace)
        trace = trace.tb_next
    if not seen and not isinstance(error, _TOLD):
        return
    for each, following in zip(kept, [*kept[1:], None]):
        each.tb_next = following
    error.__traceback__ = _without_resumes(kept[0] if kept else None)


def _without_resumes(trace: TracebackType | None) -> TracebackType | None:
    """``trace`` with one entry for each function and its continuations: the last, where the error is.

    (Dynamo makes a continuation after each graph break. It cannot stand under the function's own frame:
    that runs Dynamo's version of the code, which has lost the lines after the break.)
    """
    if trace is None:
        return None
    name = trace.tb_frame.f_code.co_name
    last = trace
    while last.tb_next is not None and _continues(last.tb_next.tb_frame.f_code, trace.tb_frame.f_code, name):
        last = last.tb_next
    last.tb_next = _without_resumes(last.tb_next)
    return last


def _continues(code: CodeType, start: CodeType, name: str) -> bool:
    return code.co_filename == start.co_filename and code.co_name.startswith(f"{_RESUME}{name}_at_")
