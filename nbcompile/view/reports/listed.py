"""Guards, passes and graphs of a compilation as lists: what a text has of them where they are asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nbcompile.guard_words import IDENTITY, in_own_names
from nbcompile.record.compilation import Compilation, Guard
from nbcompile.units import clip, milliseconds_text
from nbcompile.view.reports.report import Section, table_text

_KINDS = {
    "TENSOR_MATCH": "a tensor like this",
    "ID_MATCH": "the same object",
    "TYPE_MATCH": "the same type",
    "EQUALS_MATCH": "the same value",
    "CONSTANT_MATCH": "the same value",
    "SEQUENCE_LENGTH": "the same length",
    "SHAPE_ENV": "what holds of sizes",
}
"""What Dynamo's kinds of guards ask for. Others are shown by their names."""
_ROWS, _LINES = 40, 200


def guard_row(guard: Guard) -> tuple[str, str, str, str]:
    """(graph, what is asked for, of what, the condition), in the names of the program."""
    code = "; ".join(IDENTITY.sub(_checked, each) for each in guard.code[:6])
    kind = _KINDS.get(guard.kind, guard.kind.lower().replace("_", " "))
    name, code = map(in_own_names, (guard.name, code))
    return clip(guard.graph, 24), clip(kind, 40), clip(name, 80), clip(code, 200)


def _checked(found: re.Match[str]) -> str:
    same = "has the type that it had" if found[1] == "type" else "is the object that it was"
    return f"{found[2]} {same}" + (f" ({found[3]})" if found[3] else "")


def listed(compilation: Compilation, show: Sequence[str], columns: int) -> list[str]:
    """The lines of those parts that a text has only where ``show`` names them."""
    out: list[str] = []
    if "guards" in show:
        rows = tuple(guard_row(guard) for guard in compilation.guards[:_ROWS])
        more = len(compilation.guards) - len(rows)
        section = Section(heads=("graph", "guard", "of", "condition"), rows=rows, more=more)
        what = "what must stay true for this code to be reused" if rows else "none recorded"
        out += ["", f"Guards: {what}"]
        out += table_text(section, columns) if rows else []
    if "passes" in show:
        steps = compilation.passes[:_ROWS]
        table = tuple((clip(p.name, 40), milliseconds_text(p.milliseconds), clip(p.note, 60)) for p in steps)
        more = len(compilation.passes) - len(steps)
        section = Section(heads=("pass", "time", ""), rows=table, right=(1,), more=more)
        out += ["", "Passes" if table else "Passes: none recorded"]
        out += table_text(section, columns) if table else []
    if "graph" in show:
        for graph in compilation.graphs:
            lines = graph.text.rstrip().split("\n")
            out += ["", f"Graph {graph.id}: {graph.title}", *(f"  {line}" for line in lines[:_LINES])]
            out += [f"  … {len(lines) - _LINES:,} more lines"] if len(lines) > _LINES else []
        out += [] if compilation.graphs else ["", "Graph: none recorded"]
    return out
