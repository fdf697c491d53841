"""The user's cell, line by line: what became of each line, which kernels serve it, its share of bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nbcompile.record.compilation import Compilation, Graph, Kernel, LineFate, Span
from nbcompile.record.provenance import Links
from nbcompile.view.facts.facts import Call, Fate, lines_of, short_op, stage_graphs, working
from nbcompile.view.facts.outside import line_why

FATE_WORD = {
    "fused": "fused", "library": "library", "fallback": "fallback", "break": "graph break",
    "captured": "captured", "compiled": "compiled away", "eager": "ran eagerly", "python": "Python",
    "unrun": "not run",
}  # fmt: skip

Became = Literal[
    "fused", "library", "fallback", "break", "captured", "compiled", "eager", "python", "unrun"
]  # fmt: skip
"""What became of a line: what became of the ops that it holds, or else of the statement."""


@dataclass(frozen=True)
class Chip:
    """One kernel or call that serves a line."""

    label: str
    fate: Fate
    count: int = 1


@dataclass(frozen=True)
class CellLine:
    """One line as typed (1-based, the magic line counts). ``fate`` is None where there is no statement,
    ``why`` the reason where nothing was compiled of it, and whether it is outside of what was timed."""

    number: int
    text: str
    fate: Became | None = None
    chips: tuple[Chip, ...] = ()
    share: float = 0.0
    why: str = ""


_ENDED = re.compile(
    r"raised \w+$|was to be compiled with line \d+, which raised |never reached: line \d+ raised "
)
"""The reason of a line at which the cell ended, that was to run with such a line, or that comes after it."""
MAX_CELL = 20_000
"""Lines of a cell, beyond which it is not told what became of them."""


def cell_lines(compilation: Compilation, calls: tuple[Call, ...], links: Links) -> tuple[CellLine, ...]:
    """Every line of the cell; empty if the record has no cell (the Python API was used)."""
    if compilation.cell is None:
        return ()
    by_line: dict[int, list[Call]] = {}
    for call in calls:
        for line in call.lines:
            by_line.setdefault(line, []).append(call)
    shares = line_shares(compilation, calls, links)
    broken = {line for item in compilation.breaks for line in _innermost(item.spans)}
    statements = {fate.line: fate for fate in compilation.lines}
    captured = _captured(compilation, calls)
    out = []
    for number, text in enumerate(compilation.cell.source.split("\n", MAX_CELL)[:MAX_CELL], start=1):
        here = by_line.get(number, [])
        chips: tuple[Chip, ...] = _chips(here) or captured.get(number, ())
        fate: Became | None = None
        why = ""
        if number in broken:
            fate = "break"
            chips = (Chip("break", "break"), *chips)
        elif any(call.fate == "fallback" for call in here):
            fate = "fallback"
        elif here:
            fate = max(here, key=lambda call: (call.bytes, call.fate == "fused")).fate
        elif chips:
            fate = "captured"
        if number in statements and fate in (None, "captured"):
            told = statements[number]
            fate = fate if fate and told.fate == "compiled" else told.fate
            why = told.reason
            if fate == "compiled":
                below = _below(told, by_line)
                why = why or (f"computed at {below[0]}" if below else "nothing of it is computed")
                fate = below[1] if below else fate
        if number in statements and _ENDED.match(statements[number].reason):
            # Its kernels may be there: the cell has not come past it all the same, so it has no share.
            fate, why = statements[number].fate, statements[number].reason
            shares.pop(number, None)
        why = line_why(compilation, number, why)
        out.append(CellLine(number, text, fate, chips, min(1.0, shares.get(number, 0.0)), why))
    while out and not out[-1].text.strip():
        out.pop()
    return tuple(out)


def _chips(calls: list[Call]) -> tuple[Chip, ...]:
    """One chip a distinct label, in order, so that eight calls of one op read ``mm ×8``."""
    counts: dict[tuple[str, Fate], int] = {}
    for call in calls:
        counts[call.label, call.fate] = counts.get((call.label, call.fate), 0) + 1
    return tuple(Chip(label, fate, count) for (label, fate), count in counts.items())


def _below(statement: LineFate, by_line: Mapping[int, list[Call]]) -> tuple[str, Fate] | None:
    """Where the rest of a statement over several lines is computed, and how; None where it is nowhere."""
    lines = [line for line in range(statement.line + 1, statement.end_line + 1) if line in by_line]
    if not lines:
        return None
    fate = max((call for line in lines for call in by_line[line]), key=lambda call: call.bytes).fate
    return (f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]} to {lines[-1]}"), fate


def line_shares(compilation: Compilation, calls: tuple[Call, ...], links: Links) -> dict[int, float]:
    """Each cell line's part (0 to 1) of what :func:`nbcompile.view.facts.facts.share_of` says. A kernel's is
    divided among its loops by what each would read and write by itself, and a loop's evenly among the lines
    it came from."""
    moved: dict[str, float] = {}
    for graph in stage_graphs(compilation, "loops"):
        moved |= _moved(graph)
    held = {kernel.id: kernel for kernel in compilation.kernels}
    out: dict[int, float] = {}
    for call in calls:
        parts = _loop_parts(held.get(call.id), moved)
        placed = [(weight, lines_of(links, loop)) for loop, weight in parts] or [(1.0, call.lines)]
        total = sum(weight for weight, lines in placed if lines) or 1.0
        for weight, lines in placed:
            for line in lines:
                out[line] = out.get(line, 0.0) + call.share * weight / total / len(lines)
    return out


def _moved(graph: Graph) -> dict[str, float]:
    sizes = {node.id: max(0, node.bytes) for node in graph.nodes}
    read = {node.id: sum(sizes.get(each, 0) for each in set(node.inputs)) for node in graph.nodes}
    return {id: float(size + read[id]) for id, size in sizes.items()}


def _loop_parts(kernel: Kernel | None, moved: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(id, max(1.0, moved[id])) for id in kernel.loops if id in moved] if kernel else []


def _captured(compilation: Compilation, calls: tuple[Call, ...]) -> dict[int, tuple[Chip, ...]]:
    """Lines and their ops, of graphs whose record ends there or whose calls tell no lines: a compiler of
    others' that takes a graph as one."""
    told = {call.graph.partition(".")[0] for call in calls if call.lines}
    called = {call.graph.partition(".")[0] for call in calls} or None
    ops: dict[int, dict[str, int]] = {}
    for graph in stage_graphs(compilation, "fx"):
        name = graph.id.partition(".")[0]
        if name in told or (called is not None and name not in called):
            continue
        for node in working(graph):
            for line in _lines(node.spans):
                named = ops.setdefault(line, {})
                named[short_op(node.op)] = named.get(short_op(node.op), 0) + 1
    return {
        line: tuple(Chip(label, "captured", count) for label, count in named.items())
        for line, named in ops.items()
    }


def _lines(spans: tuple[Span, ...]) -> tuple[int, ...]:
    """The cell line of the outermost frame that lies in the cell itself."""
    return next(((span.line,) for span in spans if not span.file), ())


def _innermost(spans: tuple[Span, ...]) -> tuple[int, ...]:
    """The line of the cell where a break is: of a function that the cell defines, the one within it."""
    return tuple(span.line for span in spans if not span.file)[-1:]


def break_line(spans: tuple[Span, ...]) -> str:
    """``cell line 4``, or ``module.py:12`` where the break is outside the cell."""
    if line := _innermost(spans):
        return f"cell line {line[0]}"
    if spans:
        return f"{spans[-1].file.rsplit('/', 1)[-1]}:{spans[-1].line}"
    return ""
