"""Refutations: sums of known inequalities that leave a negative number.

What is known are polynomials that are not negative, in atoms that are not negative either (a size is
counted from its least value). Multiplying one by such an atom gives another, so does any sum of them with
factors that are not negative. If one of these sums is a negative number less what cannot be negative, no
point has all that was said to be known. The products to try are those that may cancel something; the factors
come from a simplex tableau of whole numbers, and the sum is then computed again from what it is made of: it
is right however it was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import gcd, lcm

from nbcompile.compiler.loop_ir.index import ONE, Atom, Axis, FloorDiv, IndexExpr, Mod, Size

Monomial = tuple[int, ...]
"""Numbers of atoms, sorted."""
Polynomial = dict[Monomial, int]

ROUNDS = 5
MOST_KNOWN = (60, 120, 200)
"""Of inequalities, in each stage."""
MOST_RULES = 200
MOST_PRODUCTS = 2_000
MOST_WORK = 40_000
"""Of entries of tableaus that are computed, in all."""


def refuted(seeds: Iterable[IndexExpr], known: Iterable[IndexExpr] = (), stages: int = 3) -> bool:
    """Whether no point has all of ``seeds`` and ``known`` not negative, as far as can be shown. Some of the
    seeds have a part in it: where they say nothing, nothing is tried. Quotients are taken to have numerators
    that are not negative and positive denominators. With fewer ``stages`` less is tried."""
    seeds, known = tuple(seeds), tuple(known)
    met = {atom for seed in seeds for atom in seed.atoms()}
    met |= {atom for axis in met if isinstance(axis, Axis) for atom in axis.extent.atoms()}
    near = tuple(fact for fact in known if fact.atoms() <= met)  # most often it takes no more than these
    if _System(seeds, near).refuted(stages):
        return True
    return len(near) < len(known) and _System(seeds, known).refuted(stages)


class _System:
    """Inequalities, and those that may be made of them."""

    def __init__(self, seeds: Iterable[IndexExpr], known: Iterable[IndexExpr]) -> None:
        self.numbers: dict[Atom, int] = {}
        self.free: set[int] = set()  # atoms of any sign
        self.rules: list[Polynomial] = []  # what products are made of
        self.having: dict[
            tuple[Monomial, bool], list[int]
        ] = {}  # rules by a term, and whether it is positive
        self.found: dict[tuple[tuple[Monomial, int], ...], Polynomial] = {}
        self.pending: list[Atom] = []
        self.tried: set[tuple[int, Monomial]] = set()
        self.ranged: set[Atom] = set()
        self.work = MOST_WORK  # that is left
        for fact in known:
            for form in _forms(fact):
                self._rule(_tight(self._polynomial(form)))
        # the atoms of facts count once they are met, or what they are quotients of is
        self.waiting: dict[int, list[Atom]] = {}
        for atom in self.pending:
            self.waiting.setdefault(self.numbers[atom], []).append(atom)
            if isinstance(atom, FloorDiv | Mod):
                for inner in (*atom.numerator.atoms(), *atom.denominator.atoms()):
                    self.waiting.setdefault(self._number(inner), []).append(atom)
        self.pending.clear()
        for seed in seeds:
            for form in _forms(seed):
                made = _tight(self._polynomial(form))
                self._rule(made)
                self.found[tuple(sorted(made.items()))] = made
        self.degree = 1 + max((len(mono) for made in self.found.values() for mono in made), default=0)

    def refuted(self, stages: int) -> bool:
        if self._contradiction(list(self.found.values())):
            return True
        for stage, most in enumerate(MOST_KNOWN[:stages]):
            for _ in range(ROUNDS):
                before = len(self.found)
                self._grow(stage, most)
                if len(self.found) == before or self.work <= 0:
                    break
                if self._contradiction(list(self.found.values())):
                    return True
        return False

    # -- polynomials -----------------------------------------------------------------------------

    def _number(self, atom: Atom) -> int:
        if atom not in self.numbers:
            self.numbers[atom] = len(self.numbers)
            if isinstance(atom, Size) and atom.least is None:
                self.free.add(self.numbers[atom])
            self.pending.append(atom)
        return self.numbers[atom]

    def _polynomial(self, expr: IndexExpr) -> Polynomial:
        total: Polynomial = {}
        for atoms, coeff in expr.terms:
            part: Polynomial = {(): coeff}
            for atom in atoms:
                moved = _times(part, (self._number(atom),))
                least = (atom.least or 0) if isinstance(atom, Size) else 0
                for mono, factor in part.items():
                    moved[mono] = moved.get(mono, 0) + factor * least
                part = moved
            for mono, factor in part.items():
                total[mono] = total.get(mono, 0) + factor
        return total

    def _rule(self, made: Polynomial) -> None:
        if len(self.rules) < MOST_RULES and (any(mono for mono in made) or made.get((), 0) < 0):
            for mono, coeff in made.items():
                self.having.setdefault((mono, coeff > 0), []).append(len(self.rules))
            self.rules.append(made)

    # -- what may be of use ------------------------------------------------------------------------

    def _grow(self, stage: int, most: int) -> None:
        """Add what has a term of what was found with the sign that cancels it: as it is, and as products
        where that is positive. From the second stage on the term may be a number times the cofactor, in the
        third stage products are also made for what is negative.
        """
        wanted: dict[Monomial, set[bool]] = {}
        for made in self.found.values():
            for mono, coeff in made.items():
                wanted.setdefault(mono, set()).add(coeff > 0)
        for mono in wanted:
            self._meet(mono)
        products: set[tuple[int, Monomial]] = set()
        for mono, signs in wanted.items():
            widely = stage == 2 or not self.free.isdisjoint(mono)
            for left, cofactor in _parts(mono):
                if (cofactor and not left and not stage) or not self.free.isdisjoint(cofactor):
                    continue
                for sign in signs:
                    if sign or widely or not cofactor:
                        products |= {(place, cofactor) for place in self.having.get((left, not sign), ())}
            if len(products) > MOST_PRODUCTS:
                break
        fresh = sorted(products - self.tried, key=lambda item: (len(item[1]), item))
        for place, cofactor in fresh[: most - len(self.found)]:
            self.tried.add((place, cofactor))
            product = _times(self.rules[place], cofactor)
            if max(map(len, product)) <= self.degree:
                self.found.setdefault(tuple(sorted(product.items())), product)

    def _meet(self, mono: Monomial) -> None:
        """The ranges of the atoms of a monomial become rules."""
        for number in mono:
            self.pending += self.waiting.pop(number, ())
        while self.pending:
            atom = self.pending.pop()
            if atom not in self.ranged:
                self.ranged.add(atom)
                for more, less in _ranges(atom):
                    made = self._polynomial(more)
                    for mono, coeff in self._polynomial(less).items():
                        made[mono] = made.get(mono, 0) - coeff
                    self._rule(_tight(made))

    # -- the sum -----------------------------------------------------------------------------------

    def _contradiction(self, rows: list[Polynomial]) -> bool:
        """Whether a sum of multiples of ``rows`` is a negative number less what is not negative."""
        kept = self._of_use(rows)
        if not any(row.get((), 0) < 0 for row in kept):
            return False
        factors = self._ray(kept)
        if factors is None:
            return False
        total: Polynomial = {}
        for row, factor in zip(kept, factors, strict=True):
            assert factor >= 0
            for mono, coeff in row.items():
                total[mono] = total.get(mono, 0) + factor * coeff
        free = any(coeff and not self.free.isdisjoint(mono) for mono, coeff in total.items())
        return not free and total.pop((), 0) < 0 and all(coeff <= 0 for coeff in total.values())

    def _of_use(self, rows: list[Polynomial]) -> list[Polynomial]:
        """Less those with a term that nothing cancels."""
        while True:
            signs = {(mono, coeff > 0) for row in rows for mono, coeff in row.items()}
            kept = [
                row
                for row in rows
                if all(
                    not mono or (mono, coeff < 0) in signs or (coeff < 0 and self.free.isdisjoint(mono))
                    for mono, coeff in row.items()
                )
            ]
            if len(kept) == len(rows):
                return kept
            rows = kept

    def _ray(self, rows: Sequence[Polynomial]) -> list[int] | None:
        """Factors of ``rows``, not negative, with which their sum has a negative constant and no positive
        term (no term at all of what may have any sign). None if there are none, or finding them takes too
        long.

        The simplex method from no factors at all: what is sought is a direction to go on in for ever.
        """
        count = len(rows)
        lines: dict[tuple[Monomial, int], dict[int, int]] = {}
        for column, row in enumerate(rows):
            for mono, coeff in row.items():
                for sign in (1,) if self.free.isdisjoint(mono) else (1, -1):
                    lines.setdefault((mono, sign), {})[column] = coeff * sign
        cost = lines.pop(((), 1), {})
        # basic column: its line, with a positive number in that column
        table = {count + place: {**line, count + place: 1} for place, line in enumerate(lines.values())}
        while self.work > 0:
            entering = min((column for column, coeff in cost.items() if coeff < 0), default=None)
            if entering is None:
                return None
            leaving = min((basic for basic, line in table.items() if line.get(entering, 0) > 0), default=None)
            if leaving is None:
                scale = lcm(*(line[basic] for basic, line in table.items() if entering in line))
                found = {b: -line.get(entering, 0) * scale // line[b] for b, line in table.items()}
                found[entering] = scale
                return [found.get(column, 0) for column in range(count)]
            pivot = table.pop(leaving)
            cost = _cleared(cost, pivot, entering)
            for basic, line in table.items():
                if entering in line:
                    table[basic] = _cleared(line, pivot, entering)
                    self.work -= len(line) + len(pivot)
            table[entering] = pivot
        return None


def _forms(fact: IndexExpr) -> Iterator[IndexExpr]:
    """A fact, and what it says of numerators: ``n//d >= r`` just where ``n >= r*d``."""
    yield fact
    quotients = [
        (mono[0], coeff)
        for mono, coeff in fact.terms
        if len(mono) == 1 and abs(coeff) == 1 and isinstance(mono[0], FloorDiv)
    ]
    for atom, sign in quotients:
        if any(atom in IndexExpr({mono: 1}).atoms() for mono, _ in fact.terms if mono != (atom,)):
            continue
        rest = fact - IndexExpr({(atom,): sign})
        if sign > 0:
            yield from _forms(atom.numerator + rest * atom.denominator)
        else:  # n//d <= rest
            yield from _forms((rest + 1) * atom.denominator - 1 - atom.numerator)
        return


def _ranges(atom: Atom) -> Iterator[tuple[IndexExpr, IndexExpr]]:
    """What holds whatever an atom's value, besides that it is not negative: the first is at least the second.
    (Their difference would be simplified to nothing where it says what a remainder is.)"""
    this = IndexExpr({(atom,): 1})
    if isinstance(atom, Axis):
        yield atom.extent - 1, this
    elif isinstance(atom, FloorDiv):
        whole = atom.denominator * this
        yield atom.numerator, whole
        yield whole + atom.denominator - 1, atom.numerator
        yield atom.denominator, ONE
    elif isinstance(atom, Mod):
        rest = (
            atom.numerator - IndexExpr({(FloorDiv(atom.numerator, atom.denominator),): 1}) * atom.denominator
        )
        yield atom.denominator - 1, this
        yield atom.numerator, this
        yield rest, this
        yield this, rest
    elif not isinstance(atom, Size):  # a gathered index, which codegen keeps inside what it indexes
        size: IndexExpr = atom.size  # type: ignore[attr-defined]
        yield size - 1, this


def _times(poly: Polynomial, cofactor: Monomial) -> Polynomial:
    if not cofactor:
        return dict(poly)
    return {tuple(sorted(mono + cofactor)): coeff for mono, coeff in poly.items()}


def _parts(mono: Monomial) -> set[tuple[Monomial, Monomial]]:
    """Each product of some of the atoms, and that of the others."""
    parts: set[tuple[Monomial, Monomial]] = {((), ())}
    for atom in mono:
        parts = {pair for left, rest in parts for pair in (((*left, atom), rest), (left, (*rest, atom)))}
    return parts


def _tight(poly: Polynomial) -> Polynomial:
    """A polynomial that is not negative just where ``poly`` is not, with the least coefficients."""
    common = gcd(*(coeff for mono, coeff in poly.items() if mono)) or 1
    return {mono: coeff // common for mono, coeff in poly.items() if coeff // common}


def _cleared(line: dict[int, int], pivot: dict[int, int], column: int) -> dict[int, int]:
    """A line less what multiple of ``pivot`` takes ``column`` out of it, times a positive number."""
    share = line.get(column, 0)
    if not share:
        return line
    common = gcd(share, pivot[column])
    times, less = pivot[column] // common, share // common
    made = {place: coeff * times for place, coeff in line.items()}
    for place, coeff in pivot.items():
        value = made.get(place, 0) - coeff * less
        if value:
            made[place] = value
        else:
            made.pop(place, None)
    common = gcd(*made.values()) or 1
    return made if common == 1 else {place: coeff // common for place, coeff in made.items()}
