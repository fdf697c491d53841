"""Proofs that an index is not negative, from the ranges of its axes, of sizes, and of what is known there.

This is for checking, where :func:`nbcompile.loop_ir.index.at_least` is for simplifying: it may search, it
knows of facts (the guards around an access), and it reasons in another way, so that neither covers a mistake
of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from nbcompile.loop_ir.index import ONE, ZERO, Atom, Axis, FloorDiv, IndexExpr, Mod, Size, index

Facts = tuple[IndexExpr, ...]
"""Expressions that are not negative."""

Bounds = tuple[tuple[IndexExpr, IndexExpr, IndexExpr], ...]
"""What a guard asks: ``low <= value < high`` of each ``(value, low, high)``."""

MOST_STEPS = 400
MOST_CASES = 48


def proves(goal: IndexExpr, facts: Facts = ()) -> bool:
    """Whether ``goal >= 0`` follows, for every value of the axes, sizes and gathered numbers in it, from
    ``facts``. Quotients in it have numerators that are not negative, and positive denominators: that has to
    be proved on its own (:func:`quotients`)."""
    return _Search().holds(goal, tuple(map(_tight, facts)))


def impossible(facts: Facts) -> bool:
    """Whether no point has all of ``facts``, as far as can be shown."""
    tight = tuple(map(_tight, facts))
    return any(
        _Search().holds(-fact - 1, (*tight[:place], *tight[place + 1 :])) for place, fact in enumerate(tight)
    )


def quotients(*places: IndexExpr) -> Iterator[IndexExpr]:
    """What must not be negative for the quotients and remainders in ``places`` to be what C makes of
    them: their numerators, and their denominators less 1."""
    for place in places:
        for atom in place.atoms():
            if isinstance(atom, FloorDiv | Mod):
                yield atom.numerator
                yield atom.denominator - 1


def inside(bounds: Bounds) -> Facts:
    """What is known where every bound of a guard holds."""
    return tuple(fact for value, low, high in bounds for fact in (value - low, high - 1 - value))


def outside(bounds: Bounds) -> list[Facts]:
    """What is known where some bound of a guard fails: one of these."""
    return [(-fact - 1,) for fact in inside(bounds)]


def within_cases(cases: Iterable[Facts], more: Iterable[Facts]) -> tuple[Facts, ...]:
    """Each of ``cases`` with each of ``more``, less those that cannot be. Too many of them: ``cases`` alone,
    which know less."""
    known = tuple(cases)
    joined = tuple(dict.fromkeys((*case, *facts) for case in known for facts in more))
    possible = tuple(case for case in joined if not case or not impossible(case))
    return possible if len(possible) <= MOST_CASES else known


class _Search:
    """A proof by elimination: an atom after the other is replaced by its worst value, or cancelled by a fact,
    until a polynomial of sizes is left."""

    def __init__(self) -> None:
        self.steps = 0

    def holds(self, goal: IndexExpr, facts: Facts) -> bool:
        goal = _tight(goal)
        if goal.constant is not None:
            return goal.constant >= 0
        self.steps += 1
        if self.steps > MOST_STEPS:
            return False
        if _sizes_only(goal) and _polynomial_holds(goal):
            return True
        return any(self.holds(*step) for step in self._steps(goal, facts))

    def _steps(self, goal: IndexExpr, facts: Facts) -> Iterator[tuple[IndexExpr, Facts]]:
        """Goals that each imply this one, and the facts that are left to prove it with."""
        for atom in _outermost(goal):
            factor, rest = _taken_out(goal, atom)
            if self._positive(factor, facts):
                yield from ((each, facts) for each in _at_least(atom, factor, rest))
                sign = 1
            elif self._positive(-factor, facts):
                yield from ((each, facts) for each in _at_most(atom, -factor, rest))
                sign = -1
            else:
                continue
            for place, fact in enumerate(facts):
                share, _ = _taken_out(fact, atom)
                if share != ZERO and self.holds(share * sign - 1, ()):
                    left = (*facts[:place], *facts[place + 1 :])
                    yield goal * (share * sign) - fact * (factor * sign), left

    def _positive(self, factor: IndexExpr, facts: Facts) -> bool:
        if factor.constant is not None:
            return factor.constant > 0
        return self.holds(factor, facts)


def _at_least(atom: Atom, factor: IndexExpr, rest: IndexExpr) -> Iterator[IndexExpr]:
    """Goals that imply ``factor * atom + rest >= 0`` for a factor that is not negative."""
    if isinstance(atom, Size):
        if atom.least is not None:
            yield rest + factor * atom.least
        return
    yield rest
    if isinstance(atom, FloorDiv):
        top, bottom = atom.numerator, atom.denominator
        if factor == ONE:  # n//d >= -r where n >= -r*d
            yield top + rest * bottom
        else:
            yield factor * (top - bottom + 1) + rest * bottom


def _at_most(atom: Atom, factor: IndexExpr, rest: IndexExpr) -> Iterator[IndexExpr]:
    """Goals that imply ``rest - factor * atom >= 0`` for a factor that is not negative."""
    if isinstance(atom, Axis):
        yield rest - factor * (atom.extent - 1)
    elif isinstance(atom, Mod):
        yield rest - factor * (atom.denominator - 1)
        yield rest - factor * atom.numerator
    elif isinstance(atom, FloorDiv):
        top, bottom = atom.numerator, atom.denominator
        if factor == ONE:  # n//d <= r where n < d*(r + 1)
            yield bottom * (rest + 1) - 1 - top
        else:
            yield rest * bottom - factor * top
    elif not isinstance(atom, Size):  # a gathered index, which codegen keeps inside what it indexes
        size: IndexExpr = atom.size  # type: ignore[attr-defined]
        yield rest - factor * (size - 1)


def _outermost(goal: IndexExpr) -> list[Atom]:
    """The atoms of the goal's terms that are in no other's quotient, sizes last."""
    terms = {atom for mono, _ in goal.terms for atom in mono}
    deep = {
        inner
        for atom in terms
        if isinstance(atom, FloorDiv | Mod)
        for inner in atom.numerator.atoms() | atom.denominator.atoms()
    }
    free = [atom for atom in terms if isinstance(atom, Size) or atom not in deep]
    return sorted(free, key=lambda atom: (isinstance(atom, Size), isinstance(atom, Axis), atom.text))


def _taken_out(expr: IndexExpr, atom: Atom) -> tuple[IndexExpr, IndexExpr]:
    """(f, r) with ``expr = f*atom + r``; f may hold the atom again, r does not."""
    factor: dict[tuple[Atom, ...], int] = {}
    rest: dict[tuple[Atom, ...], int] = {}
    for mono, coeff in expr.terms:
        if atom in mono:
            place = mono.index(atom)
            factor[(*mono[:place], *mono[place + 1 :])] = coeff
        else:
            rest[mono] = coeff
    return IndexExpr(factor), IndexExpr(rest)


def _tight(expr: IndexExpr) -> IndexExpr:
    """An expression that is not negative just where ``expr`` is not, with the least coefficients."""
    common = gcd(*(coeff for mono, coeff in expr.terms if mono))
    if common < 2:
        return expr
    return IndexExpr({mono: coeff // common for mono, coeff in expr.terms})


def _sizes_only(expr: IndexExpr) -> bool:
    return all(isinstance(atom, Size) and atom.least is not None for mono, _ in expr.terms for atom in mono)


def _polynomial_holds(expr: IndexExpr) -> bool:
    """Whether a polynomial of sizes has no negative coefficient when each is counted from its least value."""
    total = ZERO
    for mono, coeff in expr.terms:
        term = index(coeff)
        for atom in mono:
            assert isinstance(atom, Size) and atom.least is not None
            term = term * (index(atom.least) + atom)
        total = total + term
    return all(coeff >= 0 for _, coeff in total.terms)
