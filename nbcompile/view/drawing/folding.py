"""Equal modules one after the other, as the layers of a deep network are: drawn once, with how many they are.

Two modules are equal if they hold the same operations on the same shapes in the same modules, reading from
each other in the same way. What they read from outside is compared by the order in which it is read alone, so
that each may read from the one before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence

from nbcompile.view.drawing.tree import Box

LEAST = 3
"""Equal modules in a row that are folded."""
MOST = 200
"""Equal modules in a row that are one group when unfolded: more are cut into groups of that many."""

_NUMBER = re.compile(r"\d+")


def fold(group: Box, reads: Sequence[tuple[Box, Box]], kind_of: Callable[[Box], Hashable]) -> None:
    """Put equal modules that follow each other into groups of kind ``repeat``, in ``group`` and all in it.

    ``reads`` are pairs of boxes of which the second reads the first; ``kind_of`` says of a box that is no
    group what makes it equal to another.
    """
    sources: dict[int, list[Box]] = {}
    for source, target in reads:
        sources.setdefault(id(target), []).append(source)
    _fold(group, sources, kind_of)


def _fold(group: Box, sources: dict[int, list[Box]], kind_of: Callable[[Box], Hashable]) -> None:
    out: list[Box] = []
    run: list[Box] = []
    last: Hashable = None

    def close() -> None:
        for start in range(0, len(run), MOST):
            part = run[start : start + MOST]
            out.extend([_repeat(part, group)] if len(part) >= LEAST else part)
        run.clear()

    for box in group.inner:
        # Before what is in it is folded: a repeat says no more than what it holds.
        alike = _likeness(box, sources, kind_of) if box.kind == "module" else None
        if alike is None or alike != last:
            close()
        last = alike
        if alike is None:
            out.append(box)
        else:
            run.append(box)
    close()
    for box in group.inner:
        if box.kind == "module":
            _fold(box, sources, kind_of)
    group.inner = out


def _repeat(run: Sequence[Box], group: Box) -> Box:
    label = f"{run[0].label} – {run[-1].label} ×{len(run)}"
    return Box(
        kind="repeat", label=label, name=f"{run[0].name}–{run[-1].name}", path=group.path, inner=[*run]
    )


def _likeness(module: Box, sources: dict[int, list[Box]], kind_of: Callable[[Box], Hashable]) -> Hashable:
    """What equal modules have in common."""
    numbers: dict[int, int] = {}
    outside: dict[int, int] = {}
    out: list[Hashable] = []

    def walk(box: Box, depth: int) -> None:
        numbers[id(box)] = len(numbers)
        own = _NUMBER.sub("#", box.label) if box.kind == "module" and depth == 0 else box.label
        out.append(
            (depth, box.kind, own if box.kind == "module" else kind_of(box) if box.kind is None else "")
        )
        for each in box.inner:
            walk(each, depth + 1)

    walk(module, 0)

    def read(box: Box) -> None:
        for source in sources.get(id(box), ()):
            number = numbers.get(id(source))
            at = number if number is not None else -1 - outside.setdefault(id(source), len(outside))
            out.append((numbers[id(box)], at))
        for each in box.inner:
            read(each)

    read(module)
    return tuple(out)
