"""What a kernel computes where it reads it: whether it can, how often it computes it again because it reads
it at several places, and whether that costs too much."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import groupby
from math import prod

from nbcompile.compiler.fuse.alignment import place_of
from nbcompile.compiler.fuse.cost import bytes_saved, evaluations, is_expensive, operations
from nbcompile.compiler.fuse.limits import Limits
from nbcompile.compiler.loop_ir.expr import GPU_WORK, MOST_CUT, Expr, Guarded, Load, walk_index
from nbcompile.compiler.loop_ir.fused import Binding, Group
from nbcompile.compiler.loop_ir.index import IndexExpr
from nbcompile.compiler.loop_ir.nodes import Loop, hint_product

Place = tuple[IndexExpr, ...]
NEARLY_ONCE = 1.1
"""A window's overlap at the edge of a tensor is no second time."""


def repeats(group: Group, maker: Loop, makers: Mapping[str, Loop], limits: Limits) -> float:
    """How often a placed pointwise loop computes each element, again for each step of the axes of the nest
    that are outside of its own, where that costs more than to keep it in memory; else 0."""
    if maker.kind != "pointwise":
        return 0.0
    own = {axis for place in group.bindings[maker.id].values() for axis in place.axes()}
    order = (*group.nest.rows, *group.nest.inner_axes)
    depth = max((n + 1 for n, axis in enumerate(order) if axis in own), default=0)
    points = max(hint_product(axis.extent for axis in own), 1)
    computed = hint_product(axis.extent for axis in order[:depth])
    if computed <= NEARLY_ONCE * points or not is_expensive(maker, makers):
        return 0.0
    launch = limits.launch_bytes * limits.operations_a_byte  # of a GPU: what is less is not worth a kernel
    again = (computed - points) * operations(maker, makers, GPU_WORK) if launch else math.inf
    return computed / points if again > launch else 0.0


def settled_reads(group: Group, kept: Iterable[Group], makers: Mapping[str, Loop]) -> dict[str, set[str]]:
    """For each loop (id) of the parts of a group that lie in it as before, the buffers whose reads need no
    second look: they were found good in the part, and nothing that they were judged by is other in the group.
    To look at all of them whenever a loop joins would take the square of a kernel's length."""
    found: dict[str, set[str]] = {}
    for part in kept:
        if len(part.loops) > 1:
            settled = _unchanged(group, part, makers)
            found |= {loop.id: settled for loop in part.loops}
    return found


def kept_parts(group: Group, parts: Iterable[Group]) -> tuple[Group, ...]:
    """Those of the groups that one was joined of whose loops are in its nest where they were in their own."""
    found = []
    for part in parts:
        ids = {loop.id for loop in part.loops}
        same = group.nest == part.nest and group.split & ids == part.split
        if same and all(group.bindings.get(name) == part.bindings.get(name) for name in ids):
            found.append(part)
    return tuple(found)


def _unchanged(group: Group, part: Group, makers: Mapping[str, Loop]) -> set[str]:
    """What the part makes out of the same as before, and at the same places as before."""
    own = {out.name: loop for loop in part.loops for out in loop.outputs}
    readers: dict[str, list[Loop]] = {}
    for loop in part.loops:
        for load in loop.reads():
            readers.setdefault(load.buffer, []).append(loop)
    changed: set[str] = set()  # made with values that the part had to load before
    pending = [name for name in readers if name in makers and name not in own]
    while pending:
        for loop in readers.get(pending.pop(), ()):
            new = {out.name for out in loop.outputs} - changed
            changed |= new
            pending += new
    return own.keys() - changed - _read_anew(group, part, own)


def _read_anew(group: Group, part: Group, own: Mapping[str, Loop]) -> set[str]:
    """What of the part's own values the group reads, or stores, where the part did not."""
    inside = {loop.id for loop in part.loops}
    seen = {name for name in part.stored ^ group.stored if name in own}
    computed: set[str] = set()  # away from their place in the nest: what they read is read there too
    for loop in group.loops:
        for load in loop.reads() if loop.id not in inside else ():
            if (maker := own.get(load.buffer)) is not None:
                seen.add(load.buffer)
                if _is_elsewhere(group, maker, load, loop):
                    computed.add(load.buffer)
    pending = [*computed, *(name for name in seen - computed if own[name].id not in group.bindings)]
    computed.update(pending)
    while pending:
        maker = own[pending.pop()]
        new = {load.buffer for load in maker.reads() if load.buffer in own} - computed
        seen |= new
        computed |= new
        pending += new
    return seen


def _is_elsewhere(group: Group, maker: Loop, load: Load, reader: Loop) -> bool:
    """Whether a pointwise loop is read away from where it is in the nest, and computed there again."""
    if maker.kind != "pointwise" or maker.id not in group.bindings:
        return False
    binding = group.bindings.get(reader.id)
    return binding is None or place_of(load, binding) != output_index(group, maker)


class Evaluations:
    """How often a kernel computes what it computes where it is read, through all that reads it there: two
    parts of a picture's pixels are each computed from every pixel of a smaller one."""

    def __init__(self, group: Group, makers: Mapping[str, Loop], limits: Limits) -> None:
        self.group, self.makers, self.limits = group, makers, limits
        self._readers: dict[str, list[tuple[Loop, Load]]] = {}
        for loop in group.loops:
            for load in loop.reads():
                self._readers.setdefault(load.buffer, []).append((loop, load))
        self._found: dict[str, dict[Place, float]] = {}
        self._order = (*group.nest.rows, *group.nest.inner_axes)

    def times_over(self, load: Load, reader: Loop, maker: Loop) -> float:
        """How often each element of the pointwise ``maker`` would be computed, where that costs more than to
        keep it in memory; 0 where it does not."""
        points, limits, makers = max(maker.points(), 1), self.limits, self.makers
        windows = sum(1 for other in reader.reads() if other.buffer == load.buffer)
        if not limits.split_alone:
            costly = is_expensive(maker, makers) or len(maker.reads()) > limits.cheap_loads
            times = evaluations(load, reader) / points
            if windows > 2:  # each of a window's loads counts, guarded or not
                times = max(times, windows * reader.points() / points)
            return times if costly and times > NEARLY_ONCE else 0.0
        computed = self._computed(maker, load.buffer)
        times = computed / points
        if times <= NEARLY_ONCE:
            return 0.0
        cut = windows > MOST_CUT and maker.is_guarded
        if is_expensive(maker, makers) or cut or (windows > 2 and _masked(reader, load)):
            return times
        saved = bytes_saved(maker.outputs[0], load.buffer in self.group.stored)
        again = (computed - points) * operations(maker, makers)
        return times if again > saved * limits.operations_a_byte else 0.0

    def _computed(self, maker: Loop, buffer: str) -> float:
        """How many elements of ``buffer`` the kernel computes for each place that it reads it at, or stores
        it."""
        total = sum(part * self._steps(place) for place, part in self._places(buffer).items())
        own = self.group.bindings.get(maker.id)
        if buffer in self.group.stored and own is not None:
            place = tuple(own[axis] for axis in maker.kept)
            if place not in self._places(buffer):
                total += maker.points()
        return total

    def _places(self, buffer: str) -> dict[Place, float]:
        """Where a buffer is read, in the axes of the nest, and at which part of its points. That hangs on
        where its readers are computed, through all that reads them: a chain longer than Python's stack."""
        pending = [buffer]
        while pending:
            name = pending[-1]
            if name in self._found:
                pending.pop()
                continue
            readers = [loop for loop, _ in self._readers.get(name, ()) if self._moves(loop)]
            unknown = [out.name for loop in readers for out in loop.outputs if out.name not in self._found]
            pending += unknown
            if not unknown:
                self._found[name] = self._read_at(name)
        return self._found[buffer]

    def _read_at(self, buffer: str) -> dict[Place, float]:
        found: dict[Place, float] = {}
        for _, reads in groupby(self._readers.get(buffer, ()), key=lambda each: each[0].id):
            read: dict[Place, float] = {}  # of what a loop reads twice there is one
            for loop, load in reads:
                part = _part(loop.body, load) if loop.is_guarded else 1.0
                for binding, share in self._bindings(loop):
                    place = place_of(load, binding)
                    read[place] = max(part * share, read.get(place, 0.0))
            for place, part in read.items():
                found[place] = min(1.0, part + found.get(place, 0.0))
        return found

    def _moves(self, loop: Loop) -> bool:
        """Whether a loop is computed wherever it is read."""
        return loop.kind == "pointwise" or loop.id not in self.group.bindings

    def _bindings(self, loop: Loop) -> list[tuple[Binding, float]]:
        """Where a loop is computed: at its own place in the nest, and wherever else it is read."""
        if not self._moves(loop):
            return [(self.group.bindings[loop.id], 1.0)]
        places = {place: part for out in loop.outputs for place, part in self._places(out.name).items()}
        if loop.id in self.group.bindings:
            places[output_index(self.group, loop)] = 1.0
        return [(dict(zip(loop.kept, place, strict=True)), part) for place, part in places.items()]

    def _steps(self, place: Place) -> float:
        """How often the nest comes by an element: once per point of the axes down to the innermost one that
        its index depends on."""
        axes = {axis for index in place for axis in index.axes()}
        depth = max((n + 1 for n, axis in enumerate(self._order) if axis in axes), default=0)
        return float(hint_product(axis.extent for axis in self._order[:depth]))


def output_index(group: Group, loop: Loop) -> tuple[IndexExpr, ...]:
    """Where a loop that is placed in the nest makes its output, in the axes of the nest."""
    binding = group.bindings[loop.id]
    return tuple(binding[axis] for axis in loop.kept)


class Computable:
    """Whether values of a group can be computed where they are read: every row result that one needs, through
    pointwise loops of the group, must be that of the present row. Each is asked for once at each place: what
    is read twice by each of many loops has more paths to it than there is time."""

    def __init__(self, group: Group, makers: Mapping[str, Loop]) -> None:
        self.group, self.makers = group, makers
        self._there: dict[tuple[str, tuple[IndexExpr, ...], bool], bool] = {}
        self._free: dict[str, bool] = {}

    def at(self, load: Load, binding: Binding | None) -> bool:
        """Whether the value of ``load`` can be, by a loop with this binding."""
        if self._reduction_free(load.buffer):
            return True  # at any place, so there is no need to know at which
        places = load.index if binding is None else place_of(load, binding)
        key = (load.buffer, places, binding is None)
        if key not in self._there:
            self._there[key] = self._ask(self.makers[load.buffer], places, binding is not None)
        return self._there[key]

    def _ask(self, maker: Loop, places: tuple[IndexExpr, ...], bound: bool) -> bool:
        if maker.kind == "scatter" or maker.id in self.group.split:
            return False
        if maker.reduction or maker.scan:
            return bound and maker.id in self.group.bindings and places == output_index(self.group, maker)
        reads = list(maker.reads())
        if not bound and any(inner.buffer in self.makers for inner in reads):
            return all(self._reduction_free(inner.buffer) for inner in reads)
        there = dict(zip(maker.kept, places, strict=True))
        return all(self.at(inner, there) for inner in reads)

    def _reduction_free(self, buffer: str) -> bool:
        """Whether a value depends on no reduction or scatter of the group."""
        maker = self.makers.get(buffer)
        if maker is None:
            return True
        if buffer not in self._free:
            parts = (self._reduction_free(inner.buffer) for inner in maker.reads())
            self._free[buffer] = maker.kind == "pointwise" and all(parts)
        return self._free[buffer]


def _part(expr: Expr, load: Load) -> float:
    """The part of the points of a loop at which its body reads this: what guards choose otherwise is not."""
    if expr == load or any(load == node for place in expr.indices() for node in walk_index(place)):
        return 1.0
    inside = [_part(child, load) for child in expr.children()]
    if isinstance(expr, Guarded):
        chosen = prod(_within(*bound) for bound in expr.bounds)
        return chosen * inside[0] + (1 - chosen) * inside[1]
    return max(inside, default=0.0)


def _within(value: IndexExpr, low: IndexExpr, high: IndexExpr) -> float:
    """The part of the points of an axis at which ``value``, a multiple of it and a shift, is in the range."""
    axis = next(iter(value.axes()), None)
    step = value.coefficient(axis) if axis is not None else None
    if axis is None or step is None or step.hint() < 1 or (value - step * axis).axes():
        return 1.0
    extent, shift = axis.extent.hint(), value.hint()
    first, last = (-(-(bound.hint() - shift) // step.hint()) for bound in (low, high))
    return max(0, min(last, extent) - max(first, 0)) / max(extent, 1)


def _masked(reader: Loop, load: Load) -> bool:
    """Whether this is read behind a guard that stays in the innermost loop: what is made for it is computed
    one element at a time. Guards on the innermost axis alone cut that loop into pieces instead."""
    last = reader.axes[-1]
    guards = (node for node in reader.body.walk() if isinstance(node, Guarded) and load in set(node.walk()))
    values = [value for guard in guards for value, _, _ in guard.bounds]
    return any(value.axes() != {last} for value in values) or bool(values and last.extent.constant is None)
