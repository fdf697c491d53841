"""Placing a loop in a nest: which axis of the loop is which axis of the nest.

Any one-to-one placement is correct; a good one makes loops that hand each other values meet at the
same point. It is found by equating the index at which a value is read with the index at which it is
made (or read by another loop), and solving for the axes; axes of the nest are split where one loop
sees as two dimensions what another sees as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nbcompile.compiler.loop_ir.expr import Expr, Guarded, Load
from nbcompile.compiler.loop_ir.fused import Binding, Nest
from nbcompile.compiler.loop_ir.index import ONE, ZERO, Axis, FloorDiv, IndexExpr, Mod, floordiv, index
from nbcompile.compiler.loop_ir.nodes import Loop
from nbcompile.compiler.loop_ir.pins import Pins, by_pins, pins_of
from nbcompile.compiler.loop_ir.substitution import substitute

Equation = tuple[IndexExpr, IndexExpr]
"""(index in the loop's own axes, the same index in the nest's axes)."""


@dataclass(frozen=True)
class Placement:
    """A nest (perhaps with axes split: ``splits`` maps old axes to the new) and a binding into it."""

    nest: Nest
    splits: Binding
    binding: Binding

    def apply(self, binding: Binding) -> Binding:
        """A binding into the old nest as one into the new."""
        if not self.splits:
            return binding
        return {axis: substitute(place, self.splits) for axis, place in binding.items()}


def place_of(load: Load, binding: Binding) -> tuple[IndexExpr, ...]:
    """Where a load of a loop with this binding reads, in the axes of the nest."""
    return tuple(substitute(place, binding) for place in load.index)


def places_read(
    loops: Iterable[Loop], bindings: Mapping[str, Binding], name: str, written: Sequence[IndexExpr] = ()
) -> Iterator[tuple[IndexExpr, ...]]:
    """Every index at which a kernel of ``loops`` reads the buffer ``name``, in the axes that ``bindings``
    lead to: what is computed where it is read, reads there. What is read under a guard that leaves a point
    alone is read where it is ``written``, if that is there.

    They come as they are found: of a stencil's steps, one within another, there may be more than anyone can
    wait for, and who asks for one that is elsewhere has it soon."""
    loops = tuple(loops)
    makers = _on_the_way(loops, name)
    found: set[tuple[IndexExpr, ...]] = set()
    pending: list[tuple[Loop, Binding, Pins]] = [
        (loop, bindings[loop.id], ()) for loop in loops if loop.id in bindings
    ]
    seen: set[tuple[str, tuple[IndexExpr, ...], Pins]] = set()
    while pending:
        loop, binding, around = pending.pop()
        for load, own in _reads_with_pins(loop) if written else ((load, ()) for load in loop.reads()):
            here = [(substitute(item, binding), substitute(low, binding)) for item, low in own]
            apart = [(item - low).constant for item, low in here]
            if any(apart):
                continue  # no point is within that guard
            pins = tuple(pin for pin, always in zip(here, apart, strict=True) if always is None) or around
            places = by_pins(place_of(load, binding), written, pins)
            if places == written:
                pins = ()  # each guard above in turn would be a way of its own to the same place
            if load.buffer == name and places not in found:
                found.add(places)
                yield places
            maker = makers.get(load.buffer)
            if maker is not None and (maker.id, places, pins) not in seen:
                seen.add((maker.id, places, pins))
                pending.append((maker, dict(zip(maker.kept, places, strict=True)), pins))


def _on_the_way(loops: Iterable[Loop], name: str) -> dict[str, Loop]:
    """Buffer → the pointwise loop that makes it, of those that lead to a reading of ``name``: no other loop
    need be looked at, at however many places it is read."""
    readers: dict[str, list[Loop]] = {}
    for loop in loops:
        for buffer in {load.buffer for load in loop.reads()} if loop.kind == "pointwise" else ():
            readers.setdefault(buffer, []).append(loop)
    found: dict[str, Loop] = {}
    pending = [name]
    while pending:
        for loop in readers.pop(pending.pop(), ()):
            found |= {out.name: loop for out in loop.outputs}
            pending += [out.name for out in loop.outputs]
    return found


def _reads_with_pins(loop: Loop) -> Iterator[tuple[Load, Pins]]:
    """Every load of a loop, with what the guards around it make equal, in its axes."""
    if not loop.is_guarded:
        yield from ((load, ()) for load in loop.reads())
        return
    pending: list[tuple[Expr, Pins]] = [(loop.body, ())]
    within = set()
    while pending:
        expr, pins = pending.pop()
        if isinstance(expr, Load):
            within.add(expr)
            yield expr, pins
        if isinstance(expr, Guarded):
            pending += [(expr.inside, pins_of(expr.bounds) or pins), (expr.outside, pins)]
        else:
            pending += [(child, pins) for child in expr.children()]
    yield from ((load, ()) for load in loop.reads() if load not in within)


def nest_of(axes: Iterable[Axis]) -> tuple[Nest, Binding]:
    """A nest of a loop's own axes (those of extent 1 left out) and the binding into it."""
    binding: dict[Axis, IndexExpr] = {}
    kept: list[Axis] = []
    for axis in axes:
        if axis.extent == ONE:
            binding[axis] = ZERO
        else:
            place = Axis(f"d{len(kept)}", axis.extent)
            kept.append(place)
            binding[axis] = index(place)
    return Nest(tuple(kept)), binding


def place_by_equations(nest: Nest, axes: Sequence[Axis], equations: Sequence[Equation]) -> Placement | None:
    """Solve ``equations`` for ``axes``; axes they leave open are matched, in order, with the axes of
    the nest that are still free. None if they contradict each other or cannot be solved."""
    state = _Solver(nest)
    known: dict[Axis, IndexExpr] = {axis: ZERO for axis in axes if axis.extent == ONE}
    if not state.solve(known, equations):
        return None
    used = set().union(*(place.axes() for place in known.values())) if known else set()
    left = [axis for axis in axes if axis not in known]
    free = [axis for axis in state.axes if axis not in used]
    if left:
        matched = match_extents([axis.extent for axis in free], [axis.extent for axis in left])
        if matched is None:
            return None
        for axis, extents in zip(free, matched.left, strict=True):
            state.split(axis, extents, known)
        # after splitting, the free axes are exactly the common factors, in order
        used = set().union(*(place.axes() for place in known.values())) if known else set()
        factors = [axis for axis in state.axes if axis not in used]
        position = 0
        for axis, extents in zip(left, matched.right, strict=True):
            known[axis] = _join(factors[position : position + len(extents)])
            position += len(extents)
    return Placement(Nest(tuple(state.axes), frozenset(state.inner)), state.splits, known)


def place_by_shape(nest: Nest, axes: Sequence[Axis], onto: Sequence[Axis]) -> Placement | None:
    """Match ``axes`` in order with the axes ``onto`` of the nest; None if their extents differ."""
    wide = [axis for axis in axes if axis.extent != ONE]
    matched = match_extents([axis.extent for axis in onto], [axis.extent for axis in wide])
    if matched is None:
        return None
    state = _Solver(nest)
    known: dict[Axis, IndexExpr] = {axis: ZERO for axis in axes if axis.extent == ONE}
    factors: list[Axis] = []
    for axis, extents in zip(onto, matched.left, strict=True):
        factors += state.split(axis, extents, known)
    position = 0
    for axis, extents in zip(wide, matched.right, strict=True):
        known[axis] = _join(factors[position : position + len(extents)])
        position += len(extents)
    return Placement(Nest(tuple(state.axes), frozenset(state.inner)), state.splits, known)


@dataclass(frozen=True)
class CommonFactors:
    """Common factors of two lists of extents: for each axis of either side, its factors."""

    left: tuple[tuple[IndexExpr, ...], ...]
    right: tuple[tuple[IndexExpr, ...], ...]


def match_extents(left: Sequence[IndexExpr], right: Sequence[IndexExpr]) -> CommonFactors | None:
    """Factor both lists, outermost first, into one common list of extents; None if impossible."""
    a, b = list(left), list(right)
    factors_a: list[list[IndexExpr]] = [[] for _ in a]
    factors_b: list[list[IndexExpr]] = [[] for _ in b]
    i = j = 0
    rest_a, rest_b = (a[0] if a else ONE), (b[0] if b else ONE)
    while i < len(a) and j < len(b):
        if rest_a == rest_b:
            factor, rest_a, rest_b = rest_a, ONE, ONE
        elif (quotient := _exact(rest_b, rest_a)) is not None:
            factor, rest_a, rest_b = rest_a, ONE, quotient
        elif (quotient := _exact(rest_a, rest_b)) is not None:
            factor, rest_a, rest_b = rest_b, quotient, ONE
        else:
            return None
        factors_a[i].append(factor)
        factors_b[j].append(factor)
        if rest_a == ONE:
            i += 1
            rest_a = a[i] if i < len(a) else ONE
        if rest_b == ONE:
            j += 1
            rest_b = b[j] if j < len(b) else ONE
    if i < len(a) or j < len(b):
        return None
    return CommonFactors(tuple(map(tuple, factors_a)), tuple(map(tuple, factors_b)))


def _exact(whole: IndexExpr, part: IndexExpr) -> IndexExpr | None:
    if part in (ZERO, ONE) or whole == ZERO:
        return None
    quotient = floordiv(whole, part)
    return quotient if quotient * part == whole else None


def _join(factors: Sequence[Axis]) -> IndexExpr:
    """One index that counts through ``factors`` in row-major order."""
    total = ZERO
    for axis in factors:
        total = total * axis.extent + axis
    return total


class _Solver:
    """Working state: the nest's axes as they get split, and what the old ones became."""

    def __init__(self, nest: Nest) -> None:
        self.axes = list(nest.axes)
        self.inner = set(nest.inner)
        self.splits: dict[Axis, IndexExpr] = {}

    def split(self, axis: Axis, extents: Sequence[IndexExpr], known: dict[Axis, IndexExpr]) -> list[Axis]:
        """Replace ``axis`` by axes of these extents (row-major); returns them."""
        if len(extents) <= 1:
            return [axis]
        parts = [Axis(f"{axis.name}_{n}", extent) for n, extent in enumerate(extents)]
        place = self.axes.index(axis)
        self.axes[place : place + 1] = parts
        if axis in self.inner:
            self.inner.remove(axis)
            self.inner |= set(parts)
        mapping = {axis: _join(parts)}
        self.splits = {old: substitute(new, mapping) for old, new in self.splits.items()} | mapping
        for name in known:
            known[name] = substitute(known[name], mapping)
        return parts

    def solve(self, known: dict[Axis, IndexExpr], equations: Sequence[Equation]) -> bool:
        halves: dict[tuple[Axis, IndexExpr], dict[str, IndexExpr]] = {}
        for mine, place in equations:
            place = substitute(place, self.splits)
            bare = mine.axis
            if mine.constant is not None:
                if mine != place:
                    return False
            elif bare is not None:
                if known.setdefault(bare, place) != place:
                    return False
            elif (half := _half(mine)) is not None:
                kind, axis, divisor = half
                halves.setdefault((axis, divisor), {})[kind] = place
            elif not self._mixed_radix(known, mine, place):
                return False
        for (axis, divisor), parts in halves.items():
            if len(parts) != 2:
                return False
            whole = parts["quotient"] * divisor + parts["rest"]
            if known.setdefault(axis, whole) != whole:
                return False
        # a placement must be one to one: no two axes may share an axis of the nest
        seen: set[Axis] = set()
        for axis, place in known.items():
            if axis.extent == ONE:
                continue
            touched = place.axes()
            if not touched or touched & seen or not _counts_through(place, axis.extent):
                return False
            seen |= touched
        return True

    def _mixed_radix(self, known: dict[Axis, IndexExpr], mine: IndexExpr, place: IndexExpr) -> bool:
        """``n*a + b = d`` for an axis d of the nest: split d into (extent of a, extent of b = n)."""
        target = place.axis
        axes = [axis for axis in mine.axes() if axis.extent != ONE]
        if target is None or target not in self.axes or any(axis in known for axis in axes):
            return False
        parts = []
        for axis in axes:
            step = mine.coefficient(axis)
            if step is None:
                return False
            parts.append((axis, step))
        parts.sort(key=lambda part: -part[1].hint())
        expected = ONE
        for axis, step in reversed(parts):
            if step != expected:
                return False
            expected = expected * axis.extent
        if expected != target.extent or sum((index(a) * s for a, s in parts), ZERO) != mine:
            return False
        for (axis, _), part in zip(
            parts, self.split(target, [axis.extent for axis, _ in parts], known), strict=True
        ):
            known[axis] = index(part)
        return True


def _counts_through(place: IndexExpr, extent: IndexExpr) -> bool:
    """Whether ``place`` takes each value below ``extent`` exactly once: each axis steps by what those
    within it count, forwards or backwards. (A shifted index, as in a roll, does not.)"""
    steps = [(axis, place.coefficient(axis)) for axis in place.axes()]
    expected, rest = ONE, place
    for axis, step in sorted(steps, key=lambda item: abs(item[1].hint()) if item[1] is not None else 0):
        if step is None or step not in (expected, -expected):
            return False
        rest = rest - step * axis
        if step != expected:
            rest = rest - expected * (axis.extent - 1)
        expected = expected * axis.extent
    return rest == ZERO and expected == extent


def _half(expr: IndexExpr) -> tuple[str, Axis, IndexExpr] | None:
    """("quotient" or "rest", axis, divisor) if ``expr`` is ``axis // divisor`` or ``axis % divisor``."""
    if len(expr.terms) != 1 or expr.terms[0][1] != 1 or len(expr.terms[0][0]) != 1:
        return None
    atom = expr.terms[0][0][0]
    if isinstance(atom, FloorDiv | Mod):
        axis = atom.numerator.axis
        if axis is not None:
            return ("quotient" if isinstance(atom, FloorDiv) else "rest"), axis, atom.denominator
    return None
