"""Proofs that an index is not negative, from the ranges of its axes, of sizes, and of what is known there.

This is for checking, where :func:`nbcompile.compiler.loop_ir.index.at_least` is for simplifying: it may
search, it knows of facts (the guards around an access), and it reasons in another way, so that neither covers
a mistake of the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch.utils._python_dispatch import _disable_current_modes

from nbcompile.compiler.loop_ir.index import ZERO, Atom, Axis, FloorDiv, IndexExpr, Mod, Size, at_least
from nbcompile.compiler.loop_ir.refutation import refuted

Facts = tuple[IndexExpr, ...]
"""Expressions that are not negative."""

Bounds = tuple[tuple[IndexExpr, IndexExpr, IndexExpr], ...]
"""What a guard asks: ``low <= value < high`` of each ``(value, low, high)``."""

MOST_CASES = 48
MOST_POINTS = 1 << 20
"""Of which each is looked at."""


def proves(goal: IndexExpr, facts: Facts = ()) -> bool:
    """Whether ``goal >= 0`` follows, for every value of the axes, sizes and gathered numbers in it, from
    ``facts``. Quotients in it have numerators that are not negative, and positive denominators: that has to
    be proved on its own (:func:`quotients`)."""
    if goal.constant is not None:
        return goal.constant >= 0 or impossible(facts)
    return _lowest(goal) >= 0 or refuted((-goal - 1,), facts)


def _lowest(expr: IndexExpr) -> float:
    """A number that ``expr`` is never below, by interval arithmetic (Moore, 1966): minus infinity where the
    sizes of negative terms are symbols. Most goals need no more, and it takes a tenth of a search."""
    total: float = 0
    for atoms, coeff in expr.terms:
        ends = [_least(atom) if coeff > 0 else _highest(atom) for atom in atoms]
        if any(end < 0 or end == math.inf for end in ends):
            return -math.inf
        total += coeff * math.prod(ends)
    return total


def _highest(atom: Atom) -> float:
    """A number that no value of the atom is above, and at least 0."""
    if isinstance(atom, FloorDiv):
        above = -_lowest(-atom.numerator)
        return max(0, above) if above == math.inf else max(0, above // max(1, _lowest(atom.denominator)))
    if isinstance(atom, Mod):
        return max(0, -_lowest(-atom.denominator) - 1)
    count = _extent(atom)
    return math.inf if count is None else max(0, count - 1)


def _least(atom: Atom) -> float:
    """A number that no value of the atom is below."""
    if isinstance(atom, Size):
        return -math.inf if atom.least is None else atom.least
    return 0


def holds_everywhere(goal: IndexExpr, facts: Facts = ()) -> bool:
    """Whether ``goal >= 0`` at each point that has all of ``facts``: all are looked at. False where there are
    too many of them, or sizes that are symbols."""
    # facts of other variables say little, and cost points
    near = [fact for fact in facts if _variables(fact) & _variables(goal)]
    extents = {atom: _extent(atom) for atom in set().union(*map(_variables, (goal, *near)))}
    counts = [extent for extent in extents.values() if extent is not None]
    if len(counts) < len(extents) or math.prod(counts) > MOST_POINTS:
        return False
    with _disable_current_modes():  # AOTAutograd calls compilers under its fake tensors
        at: dict[Atom, torch.Tensor] = {}
        for number, (atom, count) in enumerate(zip(extents, counts, strict=True)):
            shape = [1] * len(counts)
            shape[number] = count
            at[atom] = torch.arange(count, device="cpu").reshape(shape)
        holds = goal.evaluate(at.__getitem__) >= 0
        for fact in near:
            holds = holds | (fact.evaluate(at.__getitem__) < 0)
        return bool(torch.as_tensor(holds).all())


def _variables(expr: IndexExpr) -> set[Atom]:
    return {atom for atom in expr.atoms() if not isinstance(atom, FloorDiv | Mod)}


def _extent(atom: Atom) -> int | None:
    """How many values an axis has, or what a memory holds that counts along one."""
    extent = atom.extent if isinstance(atom, Axis) else getattr(atom, "size", None)
    return extent.constant if isinstance(extent, IndexExpr) else None


def impossible(facts: Facts, known: Facts = ()) -> bool:
    """Whether no point has all of ``facts`` where some have ``known``, as far as can be shown."""
    return bool(facts) and refuted(facts, known, stages=2)


def quotients(*places: IndexExpr) -> Iterator[IndexExpr]:
    """What must not be negative for the quotients and remainders in ``places`` to be what C makes of
    them: their numerators, and their denominators less 1."""
    for place in places:
        for atom in place.atoms():
            if isinstance(atom, FloorDiv | Mod):
                yield atom.numerator
                yield atom.denominator - 1


def well_defined(facts: Iterable[IndexExpr]) -> Facts:
    """The facts less those with quotients of what may be negative, which are not what proofs take them for.
    That no denominator is 0 is left to what has found the facts to be right."""
    given = tuple(facts)
    goals = {fact: [*quotients(fact)] for fact in given}
    plain = tuple(fact for fact in given if not goals[fact])

    def sure(goal: IndexExpr) -> bool:
        return at_least(goal, ZERO) or proves(goal, plain)

    def right(numerator: IndexExpr, less: IndexExpr) -> bool:
        return sure(numerator) and sure(less + 1)

    return tuple(fact for fact in given if all(map(right, goals[fact][::2], goals[fact][1::2])))


def unrounded(facts: Iterable[IndexExpr]) -> Iterator[IndexExpr]:
    """Of facts that say a quotient of a positive number, rounded down, is ``k`` or more: that what is divided
    is that many times it or more."""
    for fact in facts:
        rest = [(atoms, coeff) for atoms, coeff in fact.terms if atoms]
        if len(rest) == 1 and rest[0][1] == 1 and len(rest[0][0]) == 1:
            (quotient,) = rest[0][0]
            if isinstance(quotient, FloorDiv) and (divisor := quotient.denominator.constant or 0) > 0:
                yield quotient.numerator + divisor * sum(coeff for atoms, coeff in fact.terms if not atoms)


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
    pairs = {(*case, *facts): (facts, case) for case in known for facts in more}
    possible = tuple(joined for joined, (facts, case) in pairs.items() if not impossible(facts, case))
    return possible if len(possible) <= MOST_CASES else known
