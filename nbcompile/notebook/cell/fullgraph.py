"""What Dynamo's refusals say of a cell: why Python runs a statement, and what ``--fullgraph`` raises."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch._dynamo.exc import FailOnRecompileLimitHit

from nbcompile.compiler.capture.cell_to_function import SWITCHBOARD, PythonStatement
from nbcompile.compiler.capture.graph_breaks import (
    LOOP_BY_VALUES,
    depends_on_values,
    explain,
    of_a_loop,
    without_addresses,
)
from nbcompile.compiler.capture.graph_record import spans_of_frames
from nbcompile.compiler.capture.python_reasons import ANNOTATED, CALLS_BACKWARD, FILLS_CONTAINER, is_in_block
from nbcompile.errors import CellError
from nbcompile.record.compilation import BY_FULLGRAPH, GraphBreak, Span
from nbcompile.syntax import names_read, names_stored

_MOVED = "Move it {} the tensor statements to have one graph."
_BETWEEN = (
    "What is after it needs it, and it needs what is before: only as torch operations are all one graph."
)
_KEPT = "Keep it a tensor to have one graph: without .{}() what is after it is compiled too."
_VALUE_READ = re.compile(r"\.(\w+)\(\) reads a tensor's value into Python")
_MOVABLE = frozenset(
    ("imports a module", "defines a function", "defines a class", "deletes a name", "names a value", "text")
)
"""What Python does as well above or below the lines that compute."""
_TOLD = 4
RAISES = "it, or what was to be compiled with it, raises"
RAISES_THERE = f"to Dynamo, {RAISES}"
"""Of an exception that Dynamo met as it followed the program; Python need not raise it."""
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
    return without_addresses(text.splitlines()[0]) if text else type(error).__name__


def explained(error: Exception) -> tuple[str, str]:
    """Why Dynamo had to break the graph, and what to change."""
    told = explain(str(getattr(error, "gb_type", None) or first_line(error)), str(error))
    return of_a_loop(told, getattr(error, "real_stack", None) or ())


def why_left(error: BaseException, nodes: Sequence[ast.stmt]) -> str:
    """Why these statements are left to Python, which could not be compiled for ``error``."""
    if isinstance(error, FailOnRecompileLimitHit):
        return "its recompile limit is reached, and what comes fits none of its graphs"
    said = first_line(error)
    if found := _OF_THE_PROGRAM.search(said):
        return f"{RAISES} {found[1]}"
    if said.startswith(_OBSERVED) and (found := _OBSERVED_KIND.search(str(error))):
        return _lost_gradient(nodes) or f"{RAISES_THERE} {found[1]}"
    return said


_IN_PLACE: Mapping[type[ast.operator], str] = {
    ast.Add: "add_", ast.Sub: "sub_", ast.Mult: "mul_", ast.Div: "div_",
}  # fmt: skip


def _lost_gradient(nodes: Sequence[ast.stmt]) -> str:
    """What to write for ``w -= 0.1 * w.grad``, which binds a name anew: Dynamo has no ``w.grad`` then."""
    parts = [part for node in nodes for part in ast.walk(node)]
    asked = [part for part in parts if isinstance(part, ast.Attribute) and part.attr == "grad"]
    for part in parts:
        if not isinstance(part, ast.AugAssign) or not isinstance(part.target, ast.Name):
            continue
        name, method = part.target.id, _IN_PLACE.get(type(part.op))
        later = [each for each in asked if each.lineno > part.lineno and ast.unparse(each) == f"{name}.grad"]
        if method and later:
            wanted = f"{name}.{method}({ast.unparse(part.value)})"
            return f"Dynamo has no {name}.grad after {ast.unparse(part)}: {wanted} in its place compiles"
    return ""


def how_to_join(left: PythonStatement, tree: ast.Module, compiled: Collection[int]) -> str:
    """What to change where Python runs a statement of ``tree`` between two graphs, of lines that are
    ``compiled``; empty where its reason says it, or where there is nothing to change: gradients are computed
    where they are asked for."""
    reason = left.reason
    if reason == LOOP_BY_VALUES[0]:
        return LOOP_BY_VALUES[1]
    if reason == CALLS_BACKWARD or reason.startswith((FILLS_CONTAINER, ANNOTATED)):
        return "Leave the annotation out to have one graph." if reason == ANNOTATED else ""
    where = _free_to_go(left.line, tree, compiled)
    if not where and (read := _VALUE_READ.match(reason)):
        return _KEPT.format(read[1])
    return _MOVED.format(" or ".join(where)) if where else _BETWEEN


def _free_to_go(line: int, tree: ast.Module, compiled: Collection[int]) -> list[str]:
    """Where in its block a statement may stand as well: before what is compiled, after the rest."""
    for owner in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block: Any = getattr(owner, name, None)
            lines = [each.lineno for each in block] if isinstance(block, list) else []
            if line not in lines:
                continue
            at = max(place for place, each in enumerate(lines) if each == line)  # its question is before it
            here, own = block[at], {SWITCHBOARD}
            reads, stores = names_read(here) - own, names_stored(here)
            above = [each for each in block[:at] if each.lineno in compiled]
            below = block[at + 1 :]
            before = not any(names_stored(each) & reads for each in above)
            after = not any((names_read(each) | names_stored(each)) & stores for each in below)
            return [word for word, free in (("before", before), ("after", after)) if free]
    return ["before", "after"]


def parted_by(lines: Sequence[PythonStatement]) -> str:
    """That statements in which there is nothing to compile stand between two graphs, and why Python runs
    them: nothing is fused across; empty where there are none."""
    if not lines:
        return ""
    numbers = sorted({each.line for each in lines})
    several = len(numbers) > 1
    places = ", ".join(map(str, numbers[:_TOLD])) + (", …" if len(numbers) > _TOLD else "")
    parting = "part the graphs before and after them" if several else "parts the graphs before and after it"
    reasons = list(dict.fromkeys(each.reason for each in lines if each.reason))
    movable = all(reason in _MOVABLE for reason in reasons)
    hint = f"; above or below the tensor lines {'they' if several else 'it'} would not" if movable else ""
    return f"line{'s' if several else ''} {places} {parting}: {', '.join(reasons[:_TOLD])}{hint}"


def is_the_programs(error: Exception) -> bool:
    """Whether what Dynamo refused is an error of the program itself, which Python is to raise."""
    return first_line(error).startswith(_OBSERVED)


def place_of(error: Exception, cell_file: str) -> tuple[Span, ...]:
    """Where in the user's code Dynamo had to break the graph, outermost first."""
    return spans_of_frames(getattr(error, "real_stack", None) or (), cell_file)


def break_at(node: ast.stmt, reason: str, hint: str, spans: tuple[Span, ...]) -> tuple[GraphBreak, bool]:
    """The break at a statement, with where in it or in what it calls as far as ``spans`` tell, and whether
    that is in another statement, of a block of its own."""
    whole = Span(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
    inside = bool(spans) and is_in_block(node, (spans[0].line, spans[0].column or 0))
    within = spans if len(spans) > 1 or inside else (whole,)
    return GraphBreak(reason=reason, hint=hint, kind="cell", spans=within), inside


def refusal(reason: str, hint: str, spans: Sequence[Span], line: int | None = None) -> CellError:
    """The error that is raised at ``line``, by which it goes; by default the last line of the cell's own.
    Where the break is at another one, or in another file, its message says where."""
    own = [span.line for span in spans if not span.file]
    line = line if line is not None or not own else own[-1]
    where = ""
    if spans and spans[-1].file:
        where = f" ({_elsewhere(spans[-1])})"
    elif own and own[-1] != line:
        where = f" (at line {own[-1]})"
    before = bool(own) and line is not None and own[-1] < line and len(own) == 1
    what = "this does not go into the graph before it" if before else "the graph breaks here"
    told = f"{what}: {reason}{where}. {hint}".strip()
    return CellError(told, at=own[-1] if own else None, line=line)


def what_it_did(error: BaseException | None, line: int) -> str:
    """What a line did at which the cell ended."""
    if not isinstance(error, CellError):
        return f"raised {type(error).__name__}"
    of_another = f"does not go into one graph, for line {error.at}"
    return f"{'breaks the graph' if error.at in (line, None) else of_another}: {BY_FULLGRAPH}"


def _elsewhere(span: Span) -> str:
    path = Path(span.file)
    return f"{path.name}:{span.line}" if path.is_file() else f"line {span.line} of the cell that defines it"
