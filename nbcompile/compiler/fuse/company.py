"""Whether loops should leave some of those that they were joined to.

Loops are joined in the order of the program, so that a small saving early on (a mask that is stored for the
backward pass beside what it masks) can bar a large one later (the softmax of what it masks): a loop leaves
them for a reader that cannot be joined to all of them and saves far more.

And when all is joined it can be told what a GPU's kernel has for its arithmetic while memory is read and
written: a table of few points (the sines of rotary embeddings) that takes longer than that, computed again by
every thread that reads it, is a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from nbcompile.compiler.fuse.cost import bytes_saved, is_expensive, operations, touched
from nbcompile.compiler.fuse.legality import Refusal, Uses, accesses, merge, single
from nbcompile.compiler.loop_ir.expr import GPU_WORK, Load
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Mod
from nbcompile.compiler.loop_ir.lanes import order_of
from nbcompile.compiler.loop_ir.nodes import Loop, hint_product

FAR_MORE = 8
"""Loops that share an eighth of what is to be saved stay together."""
RETHOUGHT = frozenset({"different-shape", "different-axes", "other-rows"})
"""Refusals that may be due to what a loop was joined to."""
TABLE = 4
"""A table has at most one point for so many of the kernel that reads it."""
BAND = 4
"""Rows of a band, at least, of which one is computed for all (``Bands`` in schedule/points.py)."""
SURELY = 1.25
"""How much longer than two kernels one must take before it is parted: operations are estimates."""


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


def tables_of(group: Group, uses: Uses, wanted: Collection[tuple[str, str]] = ()) -> list[Loop]:
    """The loops of a GPU's pointwise ``group`` that are better computed by a kernel of their own, once. Pairs
    that are ``wanted`` are not parted."""
    if len(group.loops) == 1 or any(loop.kind != "pointwise" for loop in group.loops):
        return []
    tables = _tables(group)
    ids = {loop.id for loop in tables}
    rest = {loop.name for loop in group.loops if loop.id not in ids}
    if any(one.name == first and second in rest for one in tables for first, second in wanted):
        return []
    apart = bool(tables) and _pays(group, tables, uses) and not _shared_by_rows(group, tables, uses)
    return tables if apart else []


def _tables(group: Group) -> list[Loop]:
    """The loops of few points that compute something dear, what they read, and what is made of it alone."""
    makers = {out.name: loop for loop in group.loops for out in loop.outputs}
    points = hint_product(axis.extent for axis in group.nest.axes)
    little = {loop.id for loop in group.loops if loop.points() * TABLE <= points}
    dear = {loop.id for loop in group.loops if loop.id in little and is_expensive(loop, {})}
    found: set[str] = set()
    for loop in group.loops:
        made = [makers[load.buffer].id for load in loop.reads() if load.buffer in makers]
        if loop.id in little and found.issuperset(made) and (made or loop.id in dear):
            found.add(loop.id)
        elif loop.id in dear:
            before = _needed(loop, makers)
            found |= before if before <= little else set()
    return [loop for loop in group.loops if loop.id in found]


def _shared_by_rows(group: Group, tables: Sequence[Loop], uses: Uses) -> bool:
    """Whether a kernel of rows, or of bands of several of them, computes the tables once for all points of a
    row, or for all the rows of a band: what it then computes again is little."""
    order = order_of(accesses(group, uses), group.nest.axes)
    dear = [loop for loop in tables if is_expensive(loop, {}) and loop.id in group.bindings]
    own = {axis for loop in dear for place in group.bindings[loop.id].values() for axis in place.axes()}
    if len(order) < 2 or order[-1] not in own:
        # Rolled about, the rows are pieces, and each program has many.
        return not any(_divided(load) for loop in group.loops if loop.is_guarded for load in loop.reads())
    return order[-2] not in own and order[-2].extent.hint() > BAND


def _divided(load: Load) -> bool:
    return any(isinstance(atom, Mod) for place in load.index for atom in place.atoms())


def _needed(loop: Loop, makers: Mapping[str, Loop]) -> set[str]:
    """A loop and all of the group that it needs."""
    pending, found = [loop], {loop.id}
    while pending:
        for load in pending.pop().reads():
            maker = makers.get(load.buffer)
            if maker is not None and maker.id not in found:
                found.add(maker.id)
                pending.append(maker)
    return found


def _pays(group: Group, tables: Sequence[Loop], uses: Uses) -> bool:
    """Whether a kernel more, and the tables' way through memory, take less than to compute the tables at
    every point: in bytes of memory traffic, beside which arithmetic goes on."""
    limits, inside = uses.limits, {loop.id for loop in tables}
    points = hint_product(axis.extent for axis in group.nest.axes)
    work = {loop.id: operations(loop, {}, GPU_WORK) / limits.operations_a_byte for loop in group.loops}
    moved = sum(uses.buffers[name].bytes_hint() for name in touched(group.loops, group.stored))
    read = {load.buffer for loop in group.loops if loop.id not in inside for load in loop.reads()}
    tabled = sum(
        bytes_saved(out, out.name in group.stored)
        for loop in tables for out in loop.outputs if out.name in read
    )  # fmt: skip
    together = max(moved, points * sum(work.values()))
    apart = max(moved, points * sum(each for name, each in work.items() if name not in inside))
    return together > SURELY * (apart + tabled + limits.launch_bytes)


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
