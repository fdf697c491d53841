"""What Dynamo's refusals say of a cell: why Python runs a statement, and what ``--fullgraph`` raises."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from torch._dynamo.exc import FailOnRecompileLimitHit

from nbcompile.compiler.capture.graph_breaks import depends_on_values, explain
from nbcompile.compiler.capture.graph_record import spans_of_frames
from nbcompile.errors import CellError
from nbcompile.record.compilation import BY_FULLGRAPH, Span

RAISES = "it, or what was to be compiled with it, raises"
_OBSERVED = "Observed exception"
_OBSERVED_KIND = re.compile(r"raised exception (\w+)")
_OF_THE_PROGRAM = re.compile(r"^(\w+) when making fake tensor call")


def first_line(error: BaseException) -> str:
    """What an error says, as far as one line takes it."""
    if of_values := depends_on_values(str(error)[:400]):
        return of_values[0]
    inner = getattr(error, "inner_exception", None)  # Dynamo wraps what a backend raises
    if isinstance(inner, BaseException):
        return f"{type(inner).__name__}: {first_line(inner)}"
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def explained(error: Exception) -> tuple[str, str]:
    """Why Dynamo had to break the graph, and what to change."""
    return explain(str(getattr(error, "gb_type", None) or first_line(error)), str(error))


def why_left(error: BaseException) -> str:
    """Why a statement is left to Python that could not be compiled for ``error``."""
    if isinstance(error, FailOnRecompileLimitHit):
        return "its recompile limit is reached, and what comes fits none of its graphs"
    said = first_line(error)
    found = _OF_THE_PROGRAM.search(said) or (said.startswith(_OBSERVED) and _OBSERVED_KIND.search(str(error)))
    return f"{RAISES} {found[1]}" if found else said


def is_the_programs(error: Exception) -> bool:
    """Whether what Dynamo refused is an error of the program itself, which Python is to raise."""
    return first_line(error).startswith(_OBSERVED)


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


def what_it_did(error: BaseException | None, line: int) -> str:
    """What a line did at which the cell ended."""
    if not isinstance(error, CellError):
        return f"raised {type(error).__name__}"
    of_another = f"does not go into one graph, for line {error.line}"
    return f"{'breaks the graph' if error.line in (line, None) else of_another}: {BY_FULLGRAPH}"


def _elsewhere(span: Span) -> str:
    path = Path(span.file)
    return f"{path.name}:{span.line}" if path.is_file() else f"line {span.line} of the cell that defines it"
