"""Dynamo's walks in one line each."""

from __future__ import annotations

from nbcompile.record.compilation import Compilation
from nbcompile.record.watched.walk import DynamoWalk
from nbcompile.units import count_text
from nbcompile.view.reports.report import Section

HEADS = ("function", "attempt", "instructions", "inlined", "nodes", "then")
_ENDED = {
    "returned": "the function returned",
    "break": "graph break: ",
    "restart": "began again: ",
    "stopped": "gave up: ",
    "raised": "failed: ",
}


def walk_table(compilation: Compilation, limit: int) -> Section:
    """A row an attempt: how many instructions were followed, in how many inlined functions, the nodes that
    came of it, how it ended."""
    rows = tuple(_row(walk) for walk in compilation.walks[:limit])
    return Section("", HEADS, rows, right=(1, 2, 3, 4), more=len(compilation.walks) - limit)


def walk_title(compilation: Compilation) -> str:
    """``Capture: 61 instructions followed in 2 walks, 5 nodes made``; empty where nothing was watched."""
    walks = compilation.walks
    if not walks:
        return ""
    steps = sum(len(walk.steps) for walk in walks)
    followed = f"{count_text(steps, 'instruction')} followed in {count_text(len(walks), 'walk')}"
    return f"Capture: {followed}, {count_text(sum(map(_made, walks)), 'node')} made"


def _made(walk: DynamoWalk) -> int:
    return sum(len(step.made) for step in walk.steps)


def _row(walk: DynamoWalk) -> tuple[str, ...]:
    name = walk.codes[0].name if walk.codes else "?"
    then = _ENDED[walk.ended] + walk.reason if walk.reason else _ENDED[walk.ended].removesuffix(": ")
    then += f" ({walk.cut})" if walk.cut else ""
    lost = any(step.dropped for step in walk.steps) and not walk.graph
    made = "thrown away" if lost else f"{_made(walk):,}"
    return name, f"{walk.attempt}", f"{len(walk.steps):,}", f"{max(0, len(walk.codes) - 1)}", made, then
