"""The user's cell, line by line: what became of each line, which kernels serve it, its share of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nbcompile.record.compilation import Compilation, Span
from nbcompile.record.provenance import Links
from nbcompile.view.facts.facts import Call, Fate, line_shares, short_op, stage_graphs, working
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
    captured = _captured(compilation) if not calls else {}
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
            why = told.reason or ("nothing of it is computed" if fate == "compiled" else "")
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


def _captured(compilation: Compilation) -> dict[int, tuple[Chip, ...]]:
    """Lines and their ops, for backends whose record ends at the captured graph."""
    ops: dict[int, dict[str, int]] = {}
    for graph in stage_graphs(compilation, "fx"):
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
