"""All mends, in the order in which they are tried at a break."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from nbcompile.coach import branches, conditional, effects, values
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
    conditional.cond,
    values.without_numpy,
    values.keep_tensor,
)


def rewrites(text: str, starts: int, found: GraphBreak) -> Iterator[Rewrite]:
    """What might mend a break, the likeliest first: ``text`` is that in which its innermost span is."""
    if not found.spans:
        return
    try:
        source = Source(text, starts)
    except SyntaxError:  # shell lines, magics
        return
    statement = source.statement(found.spans[-1].line)
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
