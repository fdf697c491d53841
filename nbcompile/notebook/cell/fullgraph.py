"""What ``--fullgraph`` raises: a graph break as an error, at its line, with what to change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nbcompile.compiler.capture.graph_breaks import explain
from nbcompile.compiler.capture.graph_record import spans_of_frames
from nbcompile.errors import CellError
from nbcompile.record.compilation import Span


def first_line(error: BaseException) -> str:
    """What an error says, as far as one line takes it."""
    inner = getattr(error, "inner_exception", None)  # Dynamo wraps what a backend raises
    if isinstance(inner, BaseException):
        return f"{type(inner).__name__}: {first_line(inner)}"
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def explained(error: Exception) -> tuple[str, str]:
    """Why Dynamo had to break the graph, and what to change."""
    return explain(str(getattr(error, "gb_type", None) or first_line(error)), str(error))


def is_the_programs(error: Exception) -> bool:
    """Whether what Dynamo refused is an error of the program itself, which Python is to raise."""
    return first_line(error).startswith("Observed exception")


def place_of(error: Exception, cell_file: str) -> tuple[Span, ...]:
    """Where in the user's code Dynamo had to break the graph, outermost first."""
    return spans_of_frames(getattr(error, "real_stack", None) or (), cell_file)


def refusal(reason: str, hint: str, spans: Sequence[Span]) -> CellError:
    """The error: its line is the last one of the cell's own. Where the break is in another file, its message
    says where there."""
    own = [span.line for span in spans if not span.file]
    where = f" ({_elsewhere(spans[-1])})" if spans and spans[-1].file else ""
    told = f"the graph breaks here: {reason}{where}. {hint}".strip()
    return CellError(told, line=own[-1] if own else None)


def _elsewhere(span: Span) -> str:
    path = Path(span.file)
    return f"{path.name}:{span.line}" if path.is_file() else f"line {span.line} of the cell that defines it"
