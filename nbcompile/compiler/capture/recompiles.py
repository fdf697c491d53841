"""Recompiles: the guard that failed, in one line."""

from __future__ import annotations

import re
from types import CodeType

from nbcompile.compiler.capture.graph_record import is_user_file, span_file
from nbcompile.guard_words import IDENTITY
from nbcompile.record.compilation import Recompile, Span


def recompile_of(reasons: list[tuple[str, CodeType | None]], graph: str, cell_file: str) -> Recompile:
    """One recompile from what ``guard_fail_fn`` was told: one (reason, code) for each graph that Dynamo
    tried before, the most recent first. ``graph`` is the graph made because of it, or empty."""
    reason, code = reasons[0]
    spans: tuple[Span, ...] = ()
    name = ""
    if code is not None:
        name = re.sub(r"^torch_dynamo_resume_in_(.*)_at_\d+$", r"\1", code.co_name)
        if is_user_file(code.co_filename):
            spans = (Span(code.co_firstlineno, file=span_file(code.co_filename, cell_file)),)
    return Recompile(reason=clean_reason(reason), function=name, graph=graph, spans=spans)


def clean_reason(reason: str) -> str:
    """``0/0: tensor 'x' size mismatch at index 0. expected 32, actual 64`` without the compile id and
    what torch's checker adds for itself."""
    lines = reason.strip().splitlines()
    if not lines:
        return "a guard failed"
    line = re.sub(r"^\d+(?:/\d+)?(?:_\d+)?: ", "", lines[0])
    line = re.sub(r"\s*# .*$", "", line)
    line = re.sub(r"\.? Guard failed on .*", "", line)  # what to set in torch for that
    line = re.sub(r"(?<!\.)\b\d{9,}\b|0x[0-9a-f]{6,}", "…", line)
    line = IDENTITY.sub(_of_identity, line)
    return line.strip() or "a guard failed"


def _of_identity(found: re.Match[str]) -> str:
    _, name, kind = found.groups()
    of = f" ({kind})" if kind else ""
    if found[1] == "obj":
        return f"{name} is another object than before{of}"
    return f"{name} is of another type than before{of}"
