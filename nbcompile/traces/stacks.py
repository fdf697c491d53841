"""Where in a program compilations come from: their stacks as one tree, which parts where they do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nbcompile.traces.reading.values import TracedCompile, TraceFrame

MOST_LINES = 2_000


@dataclass
class _Branch:
    compiles: list[str] = field(default_factory=list)
    below: dict[TraceFrame, _Branch] = field(default_factory=dict)


def stack_tree(compiles: Iterable[TracedCompile]) -> list[str]:
    """A line a frame, the outermost first, and the compilations that ended at it; indented where it parts."""
    root = _Branch()
    for each in compiles:
        branch = root
        for frame in each.stack:
            branch = branch.below.setdefault(frame, _Branch())
        if each.stack:
            branch.compiles.append(f"[{each.id}] {each.status}" if each.status != "ok" else f"[{each.id}]")
    lines: list[str] = []
    # Deep stacks come from anyone: no recursion.
    todo = [(frame, below, 0) for frame, below in reversed(root.below.items())]
    while todo and len(lines) < MOST_LINES:
        frame, branch, depth = todo.pop()
        own = f"  ← {', '.join(branch.compiles)}" if branch.compiles else ""
        lines.append(f"{'  ' * min(depth, 60)}{frame}{own}")
        if frame.code:
            lines.append(f"{'  ' * min(depth, 60)}    {frame.code}")
        deeper = depth + (len(branch.below) > 1 or bool(branch.compiles))
        todo += [(frame, below, deeper) for frame, below in reversed(branch.below.items())]
    return lines + (["…"] if todo else [])
