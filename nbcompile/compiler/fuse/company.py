"""Whether a loop should leave some of the loops that it was joined to, for a reader that cannot be joined to
all of them and saves far more.

Loops are joined in the order of the program, so that a small saving early on (a mask that is stored for the
backward pass beside what it masks) can bar a large one later (the softmax of what it masks).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from nbcompile.compiler.fuse.cost import bytes_saved
from nbcompile.compiler.fuse.legality import Refusal, Uses, merge, single
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.nodes import Loop

FAR_MORE = 8
"""Loops that share an eighth of what is to be saved stay together."""
RETHOUGHT = frozenset({"different-shape", "different-axes", "other-rows"})
"""Refusals that may be due to what a loop was joined to."""


def parted(
    group: Group, loop: Loop, saved: int, uses: Uses, wanted: Collection[tuple[str, str]] = ()
) -> list[Group]:
    """The groups that ``group`` comes apart into, the one that has ``loop`` first; none if it does not:
    nothing in it can be left for ``saved`` bytes, or what is left saved too much. Pairs that are ``wanted``,
    by their names, are not parted."""
    shared = [(one, two, size) for one, two, size in _shared(group, uses) if size]
    close = [
        (one, two, size) for one, two, size in shared
        if size * FAR_MORE >= saved or (one.name, two.name) in wanted
    ]  # fmt: skip
    stay = _together(loop, close, group.loops)
    stay = _with_own(stay, group, uses)
    rest = [item for item in group.loops if item not in stay]
    lost = sum(size for one, two, size in shared if (one in stay) != (two in stay))
    if not rest or lost * 2 > saved:
        return []
    first = _joined(stay, uses)
    if len(first) > 1:
        return []
    found = [*first]
    while rest:
        part = _together(rest[0], [pair for pair in shared if pair[0] in rest and pair[1] in rest], rest)
        rest = [item for item in rest if item not in part]
        found += _joined(part, uses)
    return found


def _with_own(stay: Sequence[Loop], group: Group, uses: Uses) -> list[Loop]:
    """The loops that stay with those that make something for them alone: a constant, say."""
    ids = {loop.id for loop in stay}
    for loop in reversed(group.loops):
        names = [out.name for out in loop.outputs]
        readers = frozenset[str]().union(*(uses.readers.get(name, frozenset()) for name in names))
        if readers and readers <= ids and uses.results.isdisjoint(names):
            ids.add(loop.id)
    return [loop for loop in group.loops if loop.id in ids]


def _shared(group: Group, uses: Uses) -> Iterator[tuple[Loop, Loop, int]]:
    """Pairs of loops with the bytes that are saved because they are in one kernel."""
    makers = {out.name: item for item in group.loops for out in item.outputs}
    before: dict[str, Loop] = {}  # who read this first, of what is made elsewhere
    for loop in group.loops:
        for name in dict.fromkeys(load.buffer for load in loop.reads()):
            if name in makers:
                yield makers[name], loop, bytes_saved(uses.buffers[name], name in group.stored)
            elif before.setdefault(name, loop) is not loop:
                yield before[name], loop, uses.buffers[name].bytes_hint()


def _together(loop: Loop, pairs: Sequence[tuple[Loop, Loop, int]], loops: Iterable[Loop]) -> list[Loop]:
    """The loops that a chain of these pairs leads to, in their order."""
    found, pending = {loop.id}, [loop.id]
    while pending:
        at = pending.pop()
        for one, two, _ in pairs:
            for here, there in ((one.id, two.id), (two.id, one.id)):
                if here == at and there not in found:
                    found.add(there)
                    pending.append(there)
    return [item for item in loops if item.id in found]


def _joined(loops: Iterable[Loop], uses: Uses) -> list[Group]:
    """Groups of these loops, as few as joining them one by one makes."""
    groups: list[Group] = []
    for loop in loops:
        present = single(loop, uses)
        for other in [*groups]:
            merged = merge(other, present, uses)
            if not isinstance(merged, Refusal):
                groups.remove(other)
                present = merged
        groups.append(present)
    return groups
