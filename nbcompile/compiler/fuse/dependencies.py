"""Which statements of a program have to run before which."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from nbcompile.compiler.loop_ir.known_sizes import sizes_given, sizes_in
from nbcompile.compiler.loop_ir.nodes import (
    LibraryCall,
    LoopProgram,
    Statement,
    has_effect,
)


def dependencies(program: LoopProgram, readers: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """For each statement, by id, those that run before it: makers of what it reads; calls with effects
    (random numbers are drawn in the order of the program); of a size that depends on data the call that finds
    it and those that check it; and before a loop that makes an input's new value
    every reader of the old one, so that the new value may take its place. A reader that itself needs the new
    value cannot come before it: the new value then gets memory of its own.

    ``readers``: the ids of the statements that read each buffer.
    """
    makers = {out.name: item.id for item in program.statements for out in item.outputs if out is not None}
    before = {
        item.id: {makers[name] for name in reads(item) if name in makers} - {item.id}
        for item in program.statements
    }
    for earlier, later in itertools.pairwise(filter(has_effect, program.statements)):
        before[later.id].add(earlier.id)
    for item, needed in _sizes_of_data(program):
        before[item] |= needed
    order = {item.id: place for place, item in enumerate(program.statements)}
    wished = [
        (makers[new], reader)
        for name, new in program.updates.items()
        if new in makers
        for reader in readers.get(name, ())
        if reader != makers[new]
    ]
    # All edges so far lead backwards; so do the readers that stand before the write, and no ring closes.
    for write, reader in sorted(wished, key=lambda pair: (order[pair[1]] > order[pair[0]], order[pair[1]])):
        if order[reader] < order[write] or not _leads(before, reader, write):
            before[write].add(reader)
    return {name: frozenset(found) for name, found in before.items()}


def _sizes_of_data(program: LoopProgram) -> Iterator[tuple[str, set[str]]]:
    """Statements, by id, that need a size which a call finds, with that call, and with the checks of that
    size which come before them."""
    given = sizes_given(program)
    found: dict[str, set[str]] = {}
    for item in program.statements:
        needed = set() if not found else sizes_in(item) & found.keys()
        if needed:
            yield item.id, set().union(*(found[name] for name in needed))
        if isinstance(item, LibraryCall):
            for name in item.tells() - given - found.keys():
                found[name] = {item.id}
            if not any(item.outputs):
                for name in needed:
                    found[name].add(item.id)


def reads(item: Statement) -> list[str]:
    """The buffers that a statement reads."""
    if isinstance(item, LibraryCall):
        return [view.buffer.name for view in item.views()]
    return [load.buffer for load in item.reads()] + ([item.base] if item.base else [])


def _leads(before: Mapping[str, set[str]], start: str, to: str) -> bool:
    """Whether ``to`` runs before ``start``."""
    pending, seen = [start], {start}
    while pending:
        for each in before[pending.pop()]:
            if each == to:
                return True
            if each not in seen:
                seen.add(each)
                pending.append(each)
    return False
