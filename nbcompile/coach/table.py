"""All mends, in the order in which they are tried at a break."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from nbcompile.coach import branches, effects, values
from nbcompile.coach.source import Rewrite, Source
from nbcompile.record.compilation import GraphBreak

MENDS: tuple[Callable[[Source, ast.stmt], Rewrite | None], ...] = (
    effects.drop_graph_break,
    effects.drop_clock,
    effects.drop_effect,
    effects.drop_disable,
    branches.check,
    branches.choose,
    branches.choose_expression,
    values.without_numpy,
    values.keep_tensor,
)


def rewrites(text: str, starts: int, found: GraphBreak) -> Iterator[Rewrite]:
    """What might mend a break of this cell, the likeliest first. Nothing where the break is in other text."""
    line = _line(found)
    if line is None:
        return
    try:
        source = Source(text, starts)
    except SyntaxError:  # shell lines, magics
        return
    statement = source.statement(line)
    if statement is None:
        return
    known = (effects.allow_rnn,) if "RNN" in f"{found.kind} {found.reason}" else MENDS
    for mend in known:
        made = mend(source, statement)
        if made is not None and made.text != text and _parses(made.text, starts):
            yield made


def _parses(text: str, starts: int) -> bool:
    try:
        Source(text, starts)
    except SyntaxError:
        return False
    return True


def _line(found: GraphBreak) -> int | None:
    """The line of the cell where it breaks; None where that is in a function of another text."""
    if not found.spans or found.spans[-1].file:
        return None
    return found.spans[-1].line
