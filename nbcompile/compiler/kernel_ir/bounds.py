"""No kernel reads or writes outside its buffers: each index of each access is proved to lie inside.

An index that memory holds (a gathered one) cannot be proved: codegen keeps it inside and reports it, or masks
the access, unless it is :attr:`Gathered.sure`, and that is proved here. All is taken from the values that
kernels are printed from, so after inlining, the merging of axes, and under the guards that stand around.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from nbcompile.compiler.kernel_ir.group_to_values import kernel_values, resolver_of
from nbcompile.compiler.kernel_ir.integer_bounds import lies_within
from nbcompile.compiler.kernel_ir.values import Gathered, KernelValues, Value, gathered
from nbcompile.compiler.loop_ir.expr import Load
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.index import ONE, ZERO, Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Buffer, Loop
from nbcompile.compiler.loop_ir.proofs import (
    Facts,
    holds_everywhere,
    inside,
    outside,
    proves,
    quotients,
    well_defined,
    within_cases,
)
from nbcompile.compiler.passes import each_kernel
from nbcompile.errors import SymbolicSizeError, VerifyError

Cases = tuple[Facts, ...]
"""What may be known at a place: one of these, and it has to be right in each."""

Ways = Mapping[int, Iterable[tuple[IndexExpr, ...]]]
"""The indices that lead to the place of each load."""


@dataclass(frozen=True)
class CheckedAccess:
    """``buffer[index]`` is read or written wherever one of ``cases`` holds; ``place`` is its offset, and
    ``others`` are more indices that lead there."""

    verb: str
    buffer: Buffer
    index: tuple[IndexExpr, ...]
    place: IndexExpr
    cases: Cases
    loop: str
    others: tuple[tuple[IndexExpr, ...], ...] = ()

    def __str__(self) -> str:
        found = f"{self.verb} {self.buffer.name}[{', '.join(map(str, self.index))}]"
        known = " or ".join(" and ".join(f"{fact} >= 0" for fact in facts) for facts in self.cases if facts)
        return f"{found} of {self.buffer.describe()} in {self.loop}{f' where {known}' if known else ''}"


@dataclass(frozen=True)
class Counts:
    """How many accesses were ``proved`` to be inside, how many have a gathered index and are so as far as
    those are kept inside (``checked``), and what is ``wrong`` with the others."""

    proved: int = 0
    checked: int = 0
    wrong: tuple[str, ...] = ()

    def __add__(self, other: Counts) -> Counts:
        wrong = (*self.wrong, *other.wrong)
        return Counts(self.proved + other.proved, self.checked + other.checked, wrong)


def verify_bounds(program: FusedProgram, *, narrow: bool = False) -> Counts:
    """Check every kernel of a program; ``narrow`` as for the kernels (:func:`kernel_values`). VerifyError
    for an access that is neither proved to be inside its buffer nor kept there; SymbolicSizeError where
    sizes are symbols."""
    kind = SymbolicSizeError if program.program.is_symbolic else VerifyError
    buffers, facts = program.program.buffers(), program.program.facts

    def checked(place: int) -> Counts:
        group = program.groups[place]
        found = group_bounds(group, buffers, facts, narrow=narrow)
        if found.wrong:
            raise kind(f"kernel {group.name} may leave its memory: " + "\n".join(found.wrong))
        return found

    return sum(each_kernel([group.loops for group in program.groups], checked), Counts())


def group_bounds(
    group: Group, buffers: Mapping[str, Buffer], facts: Facts = (), *, narrow: bool = False
) -> Counts:
    """What can be said of the accesses of one kernel, where ``facts`` are known of its sizes."""
    walk = _Walk(buffers, facts)
    walk.kernel(kernel_values(group, buffers, narrow=narrow))
    for loop in group.loops:
        if loop.target is not None:
            _scatter(walk, group, loop, narrow=narrow)
    return walk.counts()


def values_bounds(values: KernelValues, buffers: Mapping[str, Buffer], facts: Facts = ()) -> Counts:
    """The same of what a kernel was resolved to, but for scatters."""
    walk = _Walk(buffers, facts)
    walk.kernel(values)
    return walk.counts()


def _axes_of(places: Iterable[IndexExpr]) -> set[Axis]:
    return {atom for place in places for atom in place.atoms() if isinstance(atom, Axis)}


def _scatter(walk: _Walk, group: Group, loop: Loop, *, narrow: bool) -> None:
    """The copy of a scatter's base, and what is put into it."""
    out, base = walk.buffers[loop.name], walk.buffers[loop.base or ""]
    resolver = resolver_of(group, group.nest, walk.buffers, narrow=narrow)
    resolver.origin = loop.id
    binding = group.bindings[loop.id]
    targets = tuple(resolver.resolved(place, binding) for place in loop.target or ())
    points = walk.running(group.nest.axes)
    roots = [resolver.value(loop.body, binding), *(v for at in targets for v in gathered(at))]
    walk.values(roots, points, resolver.ways)
    walk.access("writes", out, targets, out.offset(targets), points, loop.id)
    axes = tuple(Axis(f"c{n}", extent) for n, extent in enumerate(out.shape))
    kept = tuple(ZERO if axis.extent == ONE else index(axis) for axis in axes)
    around = walk.running(axes)
    copied = resolver_of(group, group.nest, walk.buffers, narrow=narrow)
    walk.values([copied.value(Load(base.name, kept, base.dtype), {})], around, copied.ways)
    walk.access("writes", out, kept, out.offset(kept), around, loop.id)


class _Walk:
    """Meets every access of a kernel with what is known around it."""

    def __init__(self, buffers: Mapping[str, Buffer], facts: Facts) -> None:
        self.buffers = buffers
        self.facts = facts
        self.found: list[CheckedAccess] = []
        self.wrong: dict[str, None] = {}
        self.seen: set[tuple[int, Cases]] = set()
        self.proofs: dict[tuple[IndexExpr, Cases], bool] = {}
        self.joined: dict[tuple[Cases, Cases], Cases] = {}

    def running(self, axes: Iterable[Axis]) -> Cases:
        """What is known where a nest over ``axes`` has points; no case where it never has."""
        points = tuple(axis.extent - 1 for axis in axes if axis.extent.constant in (None, 0))
        self.defined(points, (self.facts,), "an extent")
        points = tuple(fact for fact in well_defined((*self.facts, *points)) if fact in points)
        return within_cases([self.facts], [points])

    def kernel(self, values: KernelValues) -> None:
        nest = values.nest
        rows = self.running(nest.rows)
        points = self.running(nest.axes)
        for item in values.reductions:
            roots = [item.value, *([item.position] if item.position else [])]
            self.values(roots, points, values.ways)
            if item.output not in self.buffers:  # the sum of a matrix product stays in registers
                continue
            kept = self.buffers[item.output]
            around = (
                self.running(axis for axis in nest.axes if axis in _axes_of(item.index))
                if item.split
                else rows
            )
            self.access("writes", kept, item.index, item.place, around, item.loop.id)
        for store in values.stores:
            inner = nest.inner & (store.value.axes | _axes_of(store.index))
            around = self.running((*nest.rows, *(axis for axis in nest.inner_axes if axis in inner)))
            self.values([store.value], around, values.ways)
            memory = self.buffers[store.buffer]
            self.access("writes", memory, store.index, store.place, around, store.loop.id)

    def values(self, roots: Iterable[Value], cases: Cases, ways: Ways) -> None:
        """Whatever the roots need, where one of ``cases`` holds; ``ways`` to index each load."""
        self.seen = set()  # values are numbered anew by each resolver
        pending = [(value, cases) for value in roots]
        while pending:
            value, known = pending.pop()
            if (value.number, known) in self.seen or not known:
                continue
            self.seen.add((value.number, known))
            if value.kind == "load":
                buffer = self.buffers[value.buffer]
                others = tuple(way for way in ways.get(value.number, ()) if way != value.index)
                self.access("reads", buffer, value.index, value.place, known, value.origin, others)
            places = (value.place, *(item for bound in value.bounds for item in bound))
            self.defined(places, known, value.origin)
            pending += self.children(value, known)

    def children(self, value: Value, cases: Cases) -> Iterator[tuple[Value, Cases]]:
        """Each input of a value, and what is known where it is evaluated."""
        if value.kind != "guard":
            yield from ((child, cases) for child in value.inputs())
            return
        for child in replace(value, args=()).inputs():  # in the bounds
            yield child, cases
        inner, outer = value.args
        if inner.kind != "const":  # there is nothing to check in a constant
            yield inner, self.within(cases, (inside(value.bounds),))
        if outer.kind != "const":
            yield outer, self.within(cases, tuple(outside(value.bounds)))

    def within(self, cases: Cases, more: Cases) -> Cases:
        """Each of ``cases`` with each of ``more`` that can be: windows ask the same of many values."""
        key = cases, more
        if key not in self.joined:
            self.joined[key] = within_cases(cases, more)
        return self.joined[key]

    def access(
        self,
        verb: str,
        buffer: Buffer,
        index: tuple[IndexExpr, ...],
        place: IndexExpr,
        cases: Cases,
        loop: str,
        others: tuple[tuple[IndexExpr, ...], ...] = (),
    ) -> None:
        """Note an access; its indices' quotients have to be what they say."""
        self.found.append(CheckedAccess(verb, buffer, index, place, cases, loop, others))
        self.defined((place,) if others else (*index, place), cases, loop)

    def defined(self, places: Iterable[IndexExpr], cases: Cases, loop: str) -> None:
        """Note quotients that C would round otherwise, and indices that are wrongly held to be inside."""
        for place in places:
            for goal in quotients(place):
                if not self.proved(goal, cases):
                    self.wrong[f"in {loop}, {place} is computed, and {goal} may be negative"] = None
            for atom in place.atoms():
                if isinstance(atom, Gathered) and atom.sure:
                    for facts in cases:
                        if not lies_within(atom.value, atom.size, facts):
                            self.wrong[f"in {loop}, {atom} is not surely in [0, {atom.size})"] = None

    def proved(self, goal: IndexExpr, cases: Cases) -> bool:
        key = goal, cases
        if key not in self.proofs:
            self.proofs[key] = all(proves(goal, facts) or holds_everywhere(goal, facts) for facts in cases)
        return self.proofs[key]

    def counts(self) -> Counts:
        total = Counts(wrong=tuple(self.wrong))
        for item in dict.fromkeys(self.found):
            reason = self.reason(item)
            held = any(
                isinstance(atom, Gathered) and not atom.sure for each in item.index for atom in each.atoms()
            )
            one = Counts(int(not held), int(held)) if reason is None else Counts(wrong=(reason,))
            total = total + one
        return total

    def reason(self, item: CheckedAccess) -> str | None:
        """What is wrong with an access; None if it is inside."""
        if len(item.index) != len(item.buffer.shape):
            return f"{item} has {len(item.index)} indices"
        offset = item.buffer.offset(item.index)
        if offset != item.place and not all(
            self.proved(apart, item.cases) for apart in (offset - item.place, item.place - offset)
        ):
            return f"{item} is at offset {item.place}, not {offset}"
        reason = self.leaves(item.buffer, item.index, item.cases)
        if reason is None or self.led_inside(item):
            return None
        return f"{item}: {reason}"

    def leaves(self, buffer: Buffer, index: tuple[IndexExpr, ...], cases: Cases) -> str | None:
        """Which index may be outside of its dimension, and where; None if none is."""
        for each, extent, stride in zip(index, buffer.shape, buffer.strides, strict=True):
            if stride == ZERO:
                continue  # all lie at one place, and reads of any of them are one value
            if not self.proved(each, cases):
                return f"{each} may be negative"
            if not self.proved(extent - 1 - each, cases):
                return f"{each} may be {extent} or more"
        return None

    def led_inside(self, item: CheckedAccess) -> bool:
        """Whether in each case one of the indices that lead to the place does so within the buffer; or the
        place itself is within it, where the buffer's elements lie in a row without gaps."""
        ways = [way for way in (item.index, *item.others) if item.buffer.offset(way) == item.place]

        def inside(way: tuple[IndexExpr, ...], case: Cases) -> bool:
            whole = all(self.proved(goal, case) for goal in quotients(*way))
            return whole and self.leaves(item.buffer, way, case) is None

        def in_a_row() -> bool:
            step = ONE
            dims = zip(item.buffer.strides, item.buffer.shape, strict=True)
            # in the order of memory, whatever that of the dimensions is
            for stride, extent in sorted(dims, key=lambda dim: (dim[0].hint(), dim[1].hint())):
                if stride != step and extent != ONE:
                    return False
                step = step * extent
            return self.proved(item.place, item.cases) and self.proved(step - 1 - item.place, item.cases)

        if not item.others:
            return False
        return all(any(inside(way, (case,)) for way in ways) for case in item.cases) or in_a_row()
