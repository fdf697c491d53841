"""LoopProgram → FusedProgram: greedily merge groups, biggest saving first, and record every decision.

Each loop, in program order, is offered to the groups that make what it reads (a fused pair never
stores what passes between them), then to groups that read what it reads. Each pair leaves a
:class:`~nbcompile.record.compilation.Decision`.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from nbcompile.compiler.fuse.company import RETHOUGHT, parted, tables_of
from nbcompile.compiler.fuse.cost import bytes_saved
from nbcompile.compiler.fuse.dependencies import dependencies, reads
from nbcompile.compiler.fuse.halves import read_as_stored
from nbcompile.compiler.fuse.legality import COST, Refusal, Uses, merge, single
from nbcompile.compiler.fuse.limits import limits_of
from nbcompile.compiler.fuse.naming import numbered
from nbcompile.compiler.fuse.rules import Candidate, refused, rules
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.nodes import Buffer, LibraryCall, Loop, LoopProgram, hint_product
from nbcompile.compiler.passes import each_kernel
from nbcompile.errors import FusionError
from nbcompile.options import Options
from nbcompile.record.compilation import Decision

MIN_SIBLING_BYTES = 1 << 12


def loops_to_groups(
    program: LoopProgram, options: Options, alone: Mapping[str, str] = MappingProxyType({})
) -> FusedProgram:
    """Fuse. With ``options.fuse`` off, one group a loop; so are the loops ``alone``: names, each with what
    was wrong with the kernel that it was in."""
    fuser = _Fuser(program, options, alone)
    fuser.join()
    tables = fuser.tables()
    if tables:  # now that they are known to be apart, all else is joined anew
        fuser = _Fuser(program, options, alone, tables)
        fuser.join()
    return read_as_stored(fuser.finish())


class _Fuser:
    def __init__(
        self, program: LoopProgram, options: Options, alone: Mapping[str, str],
        apart: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.program = program
        self.alone = alone
        self.apart = apart  # ids of loops that are in kernels of their own, each with the reason
        self.options = options
        self.rules = rules(options.rules)
        self.statements = {item.id: item for item in program.statements}
        self.order = {item.id: place for place, item in enumerate(program.statements)}
        self.loops = [item for item in program.statements if isinstance(item, Loop)]
        self.uses = replace(_uses(program), limits=limits_of(options.chip))
        self.makers: dict[str, str] = {
            out.name: item.id for item in program.statements for out in item.outputs if out is not None
        }
        self.before = dependencies(program, self.uses.readers)
        self.group_of: dict[str, int] = {}
        self.groups: dict[int, Group | LibraryCall] = {}
        each = [(loop,) for loop in self.loops]
        singles = iter(each_kernel(each, lambda place: single(self.loops[place], self.uses)))
        for number, item in enumerate(program.statements):
            self.groups[number] = next(singles) if isinstance(item, Loop) else item
            self.group_of[item.id] = number
        self.after: dict[str, list[str]] = {name: [] for name in self.before}
        for name, earlier in self.before.items():
            for one in earlier:
                self.after[one].append(name)
        # The latest statement, by its place, of a group and of all that run before it.
        self.latest = dict(enumerate(range(len(self.groups))))
        for number in self.groups:
            self._raise_after(number)
        self.decisions: list[Decision] = []
        self.decided: set[tuple[str, str]] = set()
        self.readers: dict[str, list[Loop]] = {}  # of a buffer, in order

    def join(self) -> None:
        """Offer every loop to those that it may be joined to."""
        # a kernel of rows may sum up columns beside them, but not if what is made of the sums is in it
        for loop in sorted(self.loops, key=self.ends_columns):
            self.offer_to_producers(loop)
        for loop in self.loops:
            self.offer_to_siblings(loop)
        for loop in self.loops:
            self.offer_to_small(loop)

    def tables(self) -> dict[str, str]:
        """The loops (ids) that a GPU's threads would each compute again, for longer than a kernel more takes,
        each with that reason."""
        found: dict[str, str] = {}
        for group in self.groups.values() if not self.uses.limits.split_alone else ():
            if isinstance(group, Group):
                loops = tables_of(group, self.uses, self.options.force_fuse)
                points = hint_product(axis.extent for axis in group.nest.axes)
                times = points / max([1, *(loop.points() for loop in loops)])
                names = ", ".join(loop.name for loop in loops)
                why = f"{names}: computed {times:,.0f} times over, which takes longer than a kernel more"
                found |= dict.fromkeys((loop.id for loop in loops), why)
        return found

    def offer_to_producers(self, loop: Loop) -> None:
        producers = []
        for name in dict.fromkeys(reads(loop)):
            maker = self.makers.get(name)
            if maker is not None:
                buffer = self.uses.buffers[name]
                others = self.uses.readers.get(name, frozenset()) - {loop.id}
                kept = name in self.uses.results or any(
                    self.group_of[other] != self.group_of[maker] for other in others
                )
                producers.append((bytes_saved(buffer, kept), self.order[maker], maker, buffer))
        # what lies between a producer and the loop may be joined to it: then there is no cycle any more
        offers = sorted(
            producers,
            key=lambda item: (len(producers) > 1 and self._between(item[2], loop), -item[0], item[1]),
        )
        for saved, _, maker, buffer in offers:
            producer = self.statements[maker]
            if isinstance(producer, LibraryCall):
                word = "has no lowering" if producer.fallback else "is a library call here"
                refusal = Refusal("library-call", f"{producer.name} {word}")
                self._record(maker, loop.id, "producer-consumer", refusal, saved)
                continue
            self._try(producer, loop, "producer-consumer", saved, buffer)

    def _between(self, maker: str, loop: Loop) -> bool:
        a, b = self.group_of[maker], self.group_of[loop.id]
        return a != b and self._cycle(a, b)

    def ends_columns(self, loop: Loop) -> bool:
        """Whether all that a loop does is to make a result of sums over the rows: to round them, say."""
        if self.uses.limits.split_alone or loop.kind != "pointwise":
            return False
        if any(self.uses.readers.get(out.name) for out in loop.outputs):
            return False
        made = [self.statements[self.makers[name]] for name in reads(loop) if name in self.makers]
        return bool(made) and all(
            isinstance(item, Loop) and item.reduction == "sum" and item.kept and item.axes[0] in item.reduced
            and item.axes[-1] not in item.reduced and self.uses.readers[item.name] == {loop.id}
            for item in made
        )  # fmt: skip

    def offer_to_siblings(self, loop: Loop) -> None:
        for load in loop.reads():
            buffer = self.uses.buffers[load.buffer]
            little = buffer.bytes_hint() < MIN_SIBLING_BYTES
            if little and not self._small(loop):
                continue
            for other in self._last_before(load.buffer, loop):
                if little and not (self._small(other) and _shape_of(other) == _shape_of(loop)):
                    continue
                if self.group_of[other.id] != self.group_of[loop.id]:
                    self._try(other, loop, "siblings", buffer.bytes_hint(), buffer)

    def _last_before(self, buffer: str, loop: Loop) -> list[Loop]:
        """The last three loops before this one that read a buffer."""
        if buffer not in self.readers:
            read_by = (self.statements[name] for name in self.uses.readers.get(buffer, frozenset()))
            loops = (item for item in read_by if isinstance(item, Loop))
            self.readers[buffer] = sorted(loops, key=lambda item: self.order[item.id])
        found = self.readers[buffer]
        place = bisect_left(found, self.order[loop.id], key=lambda item: self.order[item.id])
        return found[max(place - 3, 0) : place]

    def offer_to_small(self, loop: Loop) -> None:
        """Join small loops of one shape that read what the same kernel makes, though they share no read."""
        sources = self._sources(loop)
        if not sources or not self._small(loop):
            return
        shape = _shape_of(loop)
        behind = {name for made in sources for name in self._readers_of(made)}
        before = (name for name in behind if self.order[name] < self.order[loop.id])
        found = (self.statements[name] for name in sorted(before, key=self.order.__getitem__, reverse=True))
        alike = (
            item for item in found
            if isinstance(item, Loop) and _shape_of(item) == shape and self._small(item)
        )  # fmt: skip
        for other in reversed(list(itertools.islice(alike, 3))):
            if self.group_of[other.id] != self.group_of[loop.id]:
                self._try(other, loop, "siblings", 0, self.uses.buffers[next(iter(reads(loop)))])

    def _sources(self, loop: Loop) -> set[int]:
        """The groups, other than its own, that make what a loop reads."""
        found = {self.group_of[self.makers[name]] for name in reads(loop) if name in self.makers}
        return found - {self.group_of[loop.id]}

    def _readers_of(self, number: int) -> set[str]:
        group = self.groups[number]
        if not isinstance(group, Group):
            return set()
        outputs = [out.name for loop in group.loops for out in loop.outputs]
        return {reader for name in outputs for reader in self.uses.readers.get(name, frozenset())}

    def _small(self, loop: Loop) -> bool:
        group = self.groups[self.group_of[loop.id]]
        most = self.uses.limits.launch_points
        return isinstance(group, Group) and all(item.points() <= most for item in group.loops)

    def _try(self, first: Loop, second: Loop, kind: str, saved: int, buffer: Buffer) -> None:
        if (first.id, second.id) in self.decided:
            return
        a, b = self.group_of[first.id], self.group_of[second.id]
        if a == b:
            self._record(first.id, second.id, kind, None, saved, self._how(first, second, buffer, kind))
            return
        one, two = self.groups[a], self.groups[b]
        assert isinstance(one, Group) and isinstance(two, Group)
        wanted = (first.name, second.name) in self.options.force_fuse
        merged: Group | Refusal | None = self._failed(one, two)
        if merged is None and not wanted:
            merged = self._asked_not_to(one, two, first, second)
        if merged is None and not wanted:
            merged = self._kept_apart(one, two)
        if merged is None and self._cycle(a, b):
            merged = Refusal("cycle", "another kernel between them needs one and makes the other")
        if merged is None:
            merged = merge(one, two, self.uses)
            may_leave = kind != "siblings" and not self.rules
            if isinstance(merged, Refusal) and merged.code in RETHOUGHT and may_leave:
                merged = self._leaving(first, second, saved) or merged
        by_user = isinstance(merged, Refusal) and merged.code == "user"
        forceable = False
        if isinstance(merged, Group) and self.rules and not wanted:
            which: Literal["producer-consumer", "siblings"]
            which = "siblings" if kind == "siblings" else "producer-consumer"
            objection = refused(self.rules, Candidate(first, second, which, one, two, merged, saved))
            merged, forceable = objection or merged, objection is not None
        if isinstance(merged, Refusal) and merged.code in COST:
            ids = frozenset(loop.id for loop in one.loops + two.loops)
            uses = replace(self.uses, forced=(*self.uses.forced, ids))
            forced = merge(one, two, uses)
            forceable = isinstance(forced, Group)
            if wanted and forceable:
                merged, self.uses, by_user = forced, uses, True
        if isinstance(merged, Refusal):
            self._record(first.id, second.id, kind, merged, saved, by_user=by_user, forceable=forceable)
            return
        loops = sorted(merged.loops, key=lambda loop: self.order[loop.id])
        self.groups[a] = replace(merged, loops=tuple(loops))
        del self.groups[b]
        for loop in loops:
            self.group_of[loop.id] = a
        self.latest[a] = max(self.latest[a], self.latest.pop(b))
        self._raise_after(a)
        by_user = by_user or (wanted and not self.options.fuse)
        how = self._how(first, second, buffer, kind)
        self._record(first.id, second.id, kind, None, saved, how, by_user=by_user)

    def _leaving(self, first: Loop, second: Loop, saved: int) -> Group | None:
        """The group of a reader with what makes what it reads, after that has left those that it was joined
        to for far less; None, and all is as before, if that does not help."""
        a, b = self.group_of[first.id], self.group_of[second.id]
        whole, reader = self.groups[a], self.groups[b]
        assert isinstance(whole, Group) and isinstance(reader, Group)
        groups = parted(whole, first, saved, self.uses, self.options.force_fuse)
        merged = merge(groups[0], reader, self.uses) if groups else None
        if not isinstance(merged, Group):
            return None
        before = dict(self.groups), dict(self.group_of), dict(self.latest)
        numbers = [a, *itertools.islice(itertools.count(max(self.groups) + 1), len(groups) - 1)]
        for number, group in zip(numbers, groups, strict=True):
            loops = sorted(group.loops, key=lambda loop: self.order[loop.id])
            self.groups[number] = replace(group, loops=tuple(loops))
            self.latest[number] = self.latest[a]
            self.group_of |= dict.fromkeys((loop.id for loop in group.loops), number)
        if self._cycle(a, b) or any(map(self._needs_itself, numbers)):
            self.groups, self.group_of, self.latest = before
            return None
        left = {loop.id for loop in groups[0].loops}
        why = f"{first.name} joined {second.name} instead, which saves more"
        for place, item in enumerate(self.decisions):
            inside = {item.producer, item.consumer} <= {loop.id for loop in whole.loops}
            if item.accepted and inside and (item.producer in left) != (item.consumer in left):
                self.decisions[place] = replace(item, accepted=False, code="left", reason=why)
        return merged

    def _needs_itself(self, number: int) -> bool:
        pending, seen = [*self._predecessors(number)], set[int]()
        while pending:
            before = pending.pop()
            if before == number:
                return True
            if before not in seen:
                seen.add(before)
                pending += self._predecessors(before)
        return False

    def _failed(self, one: Group, two: Group) -> Refusal | None:
        for loop in one.loops + two.loops if self.alone else ():
            if loop.name in self.alone:
                why = self.alone[loop.name]
                return Refusal("taken-apart", f"{loop.name} was in a kernel that could not be made: {why}")
        return None

    def _kept_apart(self, one: Group, two: Group) -> Refusal | None:
        if not self.apart:
            return None
        first, second = (
            next((self.apart[loop.id] for loop in group.loops if loop.id in self.apart), "")
            for group in (one, two)
        )
        return Refusal("recompute", first or second) if bool(first) != bool(second) else None

    def _asked_not_to(self, one: Group, two: Group, first: Loop, second: Loop) -> Refusal | None:
        if not self.options.fuse:
            return Refusal("fusion-off", "fusion is switched off")
        apart = self.options.no_fuse
        if (first.name, second.name) in apart:
            return Refusal("user", "you asked not to fuse this pair")
        for a in one.loops if apart else ():
            for b in two.loops:
                if (a.name, b.name) in apart or (b.name, a.name) in apart:
                    return Refusal("user", f"{a.name} and {b.name} would meet, which you asked to keep apart")
        return None

    def _how(self, first: Loop, second: Loop, buffer: Buffer, kind: str) -> tuple[str, str]:
        group = self.groups[self.group_of[first.id]]
        assert isinstance(group, Group)
        if kind == "siblings" and buffer.name not in {load.buffer for load in first.reads()}:
            return "same-launch", f"{first.name} and {second.name} are small: one kernel instead of two"
        if kind == "siblings":
            return "shared-read", f"both read {buffer.name}: one read instead of two"
        if first.id not in group.bindings:
            return "inlined", f"{first.name} is computed where it is read"
        if first.reduction or second.reduction:
            return "same-rows", f"same rows: {buffer.name} never leaves the core"
        return "same-points", f"same points: {buffer.name} stays in a register"

    def _record(
        self, first: str, second: str, kind: str, refusal: Refusal | None, saved: int,
        how: tuple[str, str] = ("", ""), *, by_user: bool = False, forceable: bool = False,
    ) -> None:  # fmt: skip
        if (first, second) in self.decided:
            return
        self.decided.add((first, second))
        if refusal is not None and kind == "siblings" and not saved:
            return  # they share nothing: nobody asks why they are apart
        code, reason = (refusal.code, refusal.reason) if refusal else how
        self.decisions.append(
            Decision(
                id=f"{self.program.graph}.d{len(self.decisions)}",
                graph=f"{self.program.graph}.fused",
                producer=first,
                consumer=second,
                kind="siblings" if kind == "siblings" else "producer-consumer",
                accepted=refusal is None,
                code=code,
                reason=reason,
                bytes_saved=saved,
                overruled=by_user,
                forceable=forceable,
            )
        )

    def _predecessors(self, number: int) -> set[int]:
        found = {self.group_of[name] for one in self._names(number) for name in self.before[one]}
        found.discard(number)
        return found

    def _raise_after(self, number: int) -> None:
        """Tell the groups that run after this one what runs before them."""
        pending = [number]
        while pending:
            current = pending.pop()
            for name in self._names(current):
                for later in map(self.group_of.__getitem__, self.after[name]):
                    if self.latest[later] < self.latest[current]:
                        self.latest[later] = self.latest[current]
                        pending.append(later)

    def _names(self, number: int) -> list[str]:
        item = self.groups[number]
        return [loop.id for loop in item.loops] if isinstance(item, Group) else [item.id]

    def _cycle(self, a: int, b: int) -> bool:
        """Whether a path from one group to the other leads through a third."""
        return self._reaches(a, b) or self._reaches(b, a)

    def _reaches(self, target: int, start: int) -> bool:
        lowest = self._first(target)
        pending = [number for number in self._predecessors(start) if number != target]
        seen = set(pending)
        while pending:
            number = pending.pop()
            if self.latest[number] < lowest:  # the target is not before it
                continue
            for before in self._predecessors(number):
                if before == target:
                    return True
                if before not in seen:
                    seen.add(before)
                    pending.append(before)
        return False

    def _first(self, number: int) -> int:
        item = self.groups[number]
        return self.order[item.loops[0].id if isinstance(item, Group) else item.id]

    def _last(self, number: int) -> int:
        item = self.groups[number]
        return self.order[item.loops[-1].id if isinstance(item, Group) else item.id]

    def finish(self) -> FusedProgram:
        items = [
            replace(item, stored=self.uses.stored(item.loops)) if isinstance(item, Group) else item
            for item in self._sorted()
        ]
        decisions = tuple(self.decisions) + tuple(self._library_readers())
        return FusedProgram(self.program, numbered(self.program.graph, items), decisions)

    def _library_readers(self) -> Iterable[Decision]:
        """Pairs whose consumer is a library call are refused by nature; recorded all the same."""
        count = len(self.decisions)
        for item in self.program.statements:
            if not isinstance(item, LibraryCall):
                continue
            for name in dict.fromkeys(view.buffer.name for view in item.views()):
                maker = self.makers.get(name)
                if maker is None or isinstance(self.statements[maker], LibraryCall):
                    continue
                word = "has no lowering" if item.fallback else "is a library call: it has no prologue here"
                yield Decision(
                    f"{self.program.graph}.d{count}", f"{self.program.graph}.fused", maker, item.id,
                    "producer-consumer", False, "library-call", f"{item.name} {word}",
                    bytes_saved(self.uses.buffers[name], False),
                )  # fmt: skip
                count += 1

    def _sorted(self) -> list[Group | LibraryCall]:
        """Groups in an order that respects dependencies, as near to program order as possible."""
        done: set[int] = set()
        waiting: set[int] = set()
        result: list[Group | LibraryCall] = []

        def visit(number: int) -> None:
            stack = [(number, False)]
            while stack:
                current, ready = stack.pop()
                if current in done:
                    continue
                if ready:
                    done.add(current)
                    result.append(self.groups[current])
                    continue
                stack.append((current, True))
                waiting.add(current)
                for before in sorted(self._predecessors(current), key=self._first, reverse=True):
                    if before in waiting and before not in done:
                        raise FusionError("two kernels each need what the other makes")
                    if before not in done:
                        stack.append((before, False))

        for number in sorted(self.groups, key=self._last):
            visit(number)
        return result


def _shape_of(loop: Loop) -> tuple[object, ...]:
    """What two loops must have in common to be walked as one: their kind, and their axes in order."""
    return (
        loop.kind,
        tuple(axis.extent for axis in loop.axes),
        tuple(axis in loop.reduced for axis in loop.axes),
    )


def _uses(program: LoopProgram) -> Uses:
    readers: dict[str, set[str]] = {}
    makers: dict[str, Loop] = {}
    for item in program.statements:
        for name in reads(item):
            readers.setdefault(name, set()).add(item.id)
        if isinstance(item, Loop):
            makers |= {out.name: item for out in item.outputs}
    return Uses(
        makers,
        {name: frozenset(ids) for name, ids in readers.items()},
        program.results,
        program.buffers(),
        updates=program.updates,
    )
