"""Tracebacks as they are without us: one frame for a function that Dynamo split at its graph breaks."""

from __future__ import annotations

from types import CodeType, TracebackType

_RESUME = "torch_dynamo_resume_in_"


def without_resumes(trace: TracebackType | None) -> TracebackType | None:
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
    last.tb_next = without_resumes(last.tb_next)
    return last


def _continues(code: CodeType, start: CodeType, name: str) -> bool:
    return code.co_filename == start.co_filename and code.co_name.startswith(f"{_RESUME}{name}_at_")
