"""Index arithmetic: integer polynomials over loop axes, symbolic sizes, quotients and gathers.

An :class:`IndexExpr` is kept in one normal form, a sum of ``coefficient * atom * atom ...`` sorted by
text, so that equal expressions compare equal and the stride of an axis can be read off. Quotients
and remainders are simplified with the ranges of the axes: ``(16*i + j) // 16`` is ``i`` if ``j < 16``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from math import gcd, prod
from typing import Any, Union

from nbcompile.compiler.loop_ir.index_text import factor_text, terms_text


class Atom:
    """An indivisible factor of a term, ordered by its text, and compared by that and by what it does not tell
    (``apart``: a range, say). Only a size may be below 0."""

    __slots__ = ("_apart", "_hash", "text")

    def __init__(self, text: str, *apart: object) -> None:
        self.text = text
        self._apart = apart
        self._hash = hash((type(self).__name__, text))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(self) is type(other) and self.text == other.text and self._apart == other._apart
        )

    def __repr__(self) -> str:
        return self.text

    def axes(self) -> Set[Axis]:
        """The axes that it depends on."""
        return set()

    def upper(self) -> IndexExpr | None:
        """Its greatest value, if an expression of sizes says so."""
        return None

    def substitute(self, mapping: Mapping[Axis, IndexExpr]) -> IndexExpr:
        """It with the axes of expressions inside replaced: here there are none."""
        return IndexExpr({(self,): 1})


class Axis(Atom):
    """A loop variable with ``0 <= axis < extent``; ``parts``: those that it was joined of, if it was."""

    __slots__ = ("extent", "parts")

    def __init__(self, name: str, extent: Index, parts: Sequence[Axis] = ()) -> None:
        self.extent = index(extent)
        self.parts = tuple(parts)
        super().__init__(name, self.extent)
        self._hash = hash(("Axis", name, self.extent))

    @property
    def name(self) -> str:
        return self.text

    def axes(self) -> Set[Axis]:
        return {self}

    def upper(self) -> IndexExpr:
        return self.extent - 1


class Size(Atom):
    """A symbolic size or another integer known at run time, ``hint`` when the graph was captured; at least
    ``least`` (None: any integer), 1 for a tensor's extent, and at ``most`` that if it depends on data."""

    __slots__ = ("hint", "least", "most")

    def __init__(self, name: str, hint: int, least: int | None = 1, most: int | None = None) -> None:
        super().__init__(name)
        self.hint, self.least, self.most = hint, least, most


class Division(Atom):
    """A quotient or remainder that could not be simplified; both of its parts are non-negative."""

    __slots__ = ("denominator", "numerator")
    sign = ""

    def __init__(self, numerator: IndexExpr, denominator: IndexExpr) -> None:
        self.numerator, self.denominator = numerator, denominator
        text = f"({factor_text(str(numerator))}{self.sign}{factor_text(str(denominator))})"
        super().__init__(text, numerator, denominator)

    def axes(self) -> Set[Axis]:
        return self.numerator.axes() | self.denominator.axes()


class FloorDiv(Division):
    """``numerator // denominator``."""

    __slots__ = ()
    sign = "//"

    def upper(self) -> IndexExpr | None:
        if self.denominator.constant is None:
            return None
        highest = ZERO
        for mono, coeff in self.numerator.terms:
            term = index(coeff)
            for inner in mono:
                bound = IndexExpr({(inner,): 1}) if isinstance(inner, Size) else inner.upper()
                if bound is None or coeff < 0:
                    return None
                term = term * bound
            highest = highest + term
        return floordiv(highest, self.denominator)


class Mod(Division):
    """``numerator % denominator``."""

    __slots__ = ()
    sign = "%"

    def upper(self) -> IndexExpr:
        return self.denominator - 1


Monomial = tuple[Atom, ...]
Index = Union["IndexExpr", int, Axis, Size]


class IndexExpr:
    """A polynomial with integer coefficients; immutable. Supports ``+ - *`` with its like and ints.

    ``constant``: the value if this is a plain number, ``atom``: the atom if it is exactly one, ``axis``: the
    axis if it is exactly one; else None. They are asked for more often than expressions are made."""

    __slots__ = ("_atoms", "_axes", "_hash", "_text", "atom", "axis", "constant", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        items = [(mono, coeff) for mono, coeff in terms.items() if coeff]
        if len(items) > 1:
            items.sort(key=lambda item: (len(item[0]) == 0, [atom.text for atom in item[0]]))
        self.terms: tuple[tuple[Monomial, int], ...] = tuple(items)
        self.constant: int | None = None if items else 0
        self.atom: Atom | None = None
        self.axis: Axis | None = None
        if len(items) == 1:
            mono, coeff = items[0]
            if not mono:
                self.constant = coeff
            elif coeff == 1 and len(mono) == 1:
                self.atom = mono[0]
                self.axis = mono[0] if isinstance(mono[0], Axis) else None
        self._hash = hash(self.terms)
        self._text: str | None = None
        self._atoms: dict[Atom, None] | None = None
        self._axes: frozenset[Axis] | None = None  # fusion asks for it over and over

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.constant == other
        return isinstance(other, IndexExpr) and self.terms == other.terms

    def __add__(self, other: Index) -> IndexExpr:
        other = index(other)
        if not self.terms or not other.terms:
            return self if self.terms else other
        terms = dict(self.terms)
        for mono, coeff in other.terms:
            terms[mono] = terms.get(mono, 0) + coeff
        return IndexExpr(_recombine(terms))

    __radd__ = __add__

    def __neg__(self) -> IndexExpr:
        return IndexExpr({mono: -coeff for mono, coeff in self.terms})

    def __sub__(self, other: Index) -> IndexExpr:
        other = index(other)
        if not self.terms or not other.terms:
            return self if self.terms else -other
        terms = dict(self.terms)
        for mono, coeff in other.terms:
            terms[mono] = terms.get(mono, 0) - coeff
        return IndexExpr(_recombine(terms))

    def __rsub__(self, other: Index) -> IndexExpr:
        return index(other) - self

    def __mul__(self, other: Index) -> IndexExpr:
        other = index(other)
        if self.constant == 1 or other.constant == 1:
            return self if other.constant == 1 else other
        terms: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                mono = tuple(sorted(left + right, key=lambda atom: atom.text))
                terms[mono] = terms.get(mono, 0) + a * b
        return IndexExpr(_recombine(terms))

    __rmul__ = __mul__

    def __floordiv__(self, other: Index) -> IndexExpr:
        return floordiv(self, index(other))

    def __mod__(self, other: Index) -> IndexExpr:
        return mod(self, index(other))

    def atoms(self) -> Set[Atom]:
        """All atoms, those inside quotients and remainders included (not inside gathers' values), in the
        order in which they stand: what is printed of them is the same in every process."""
        if self._atoms is None:
            self._atoms = {}
            for mono, _ in self.terms:
                for atom in mono:
                    self._atoms[atom] = None
                    if isinstance(atom, Division):
                        self._atoms.update(dict.fromkeys(atom.numerator.atoms()))
                        self._atoms.update(dict.fromkeys(atom.denominator.atoms()))
        return self._atoms.keys()

    def axes(self) -> frozenset[Axis]:
        """All axes this depends on, those inside gathers' values included."""
        if self._axes is None:
            self._axes = frozenset(axis for mono, _ in self.terms for atom in mono for axis in atom.axes())
        return self._axes

    def coefficient(self, axis: Axis) -> IndexExpr | None:
        """d(self)/d(axis) if self is affine in ``axis`` (it may be symbolic), else None."""
        terms: dict[Monomial, int] = {}
        for mono, coeff in self.terms:
            count = sum(1 for atom in mono if atom == axis)
            if count > 1:
                return None
            if count == 1:
                rest = tuple(atom for atom in mono if atom != axis)
                if any(axis in atom.axes() for atom in rest):
                    return None
                terms[rest] = terms.get(rest, 0) + coeff
            elif any(axis in atom.axes() for atom in mono):
                return None
        return IndexExpr(terms)

    def hint(self) -> int:
        """The value with every symbolic size at its hint and every axis at 0."""
        if self.constant is not None:
            return self.constant
        return int(self.evaluate(lambda atom: atom.hint if isinstance(atom, Size) else 0))

    def evaluate(self, value_of: Callable[[Atom], Any]) -> Any:
        """The number; for tensors of numbers as atoms, a tensor."""
        total: Any = 0
        for mono, part in self.terms:
            for atom in mono:
                if isinstance(atom, Division):
                    above, below = atom.numerator.evaluate(value_of), atom.denominator.evaluate(value_of)
                    below = below + (below < 1) * (1 - below)
                    part = part * (above // below if isinstance(atom, FloorDiv) else above % below)
                else:
                    part = part * value_of(atom)
            total = total + part
        return total

    def __str__(self) -> str:
        if self._text is None:
            self._text = terms_text(self.terms)
        return self._text

    def __repr__(self) -> str:
        return str(self)


def index(value: Index) -> IndexExpr:
    """An IndexExpr from a number, an axis or a size."""
    if isinstance(value, IndexExpr):
        return value
    if isinstance(value, int):
        return IndexExpr({(): value})
    return IndexExpr({(value,): 1})


ZERO, ONE = index(0), index(1)
MOST_BORROWED = 4


def product(values: Iterable[Index]) -> IndexExpr:
    """The product; 1 of no values."""
    return prod(map(index, values), start=ONE)


def floordiv(numerator: IndexExpr, denominator: IndexExpr) -> IndexExpr:
    """``numerator // denominator`` for a positive denominator, simplified (0 for a denominator of 0:
    the extent of an empty tensor, which nothing indexes)."""
    if denominator.constant == 1:
        return numerator
    if denominator.constant == 0 or not numerator.terms:
        return ZERO
    if numerator.constant is not None and denominator.constant is not None:
        return index(numerator.constant // denominator.constant)
    quotient, rest = _split(numerator, denominator)
    if within(rest, denominator):
        return quotient
    part = rest.atom
    if isinstance(part, Mod):  # (a % cd) // d = a // d % c
        whole, left = _divide(part.denominator, denominator)
        if left == ZERO:
            return quotient + mod(floordiv(part.numerator, denominator), whole)
    for mono, coeff in rest.terms:
        if coeff == 1 and len(mono) == 1 and isinstance(inner := mono[0], FloorDiv):
            # (a//c + b) // d = (a + b*c) // (c*d)
            others = (rest - IndexExpr({mono: 1})) * inner.denominator
            return quotient + floordiv(inner.numerator + others, inner.denominator * denominator)
    if (split := _common_factor(rest, denominator)) is not None:
        return quotient + floordiv(split[1], split[3])
    return quotient + IndexExpr({(FloorDiv(rest, denominator),): 1})


def mod(numerator: IndexExpr, denominator: IndexExpr) -> IndexExpr:
    """``numerator % denominator`` for a positive denominator, simplified (0 for one of 0)."""
    if denominator.constant in (0, 1) or not numerator.terms:
        return ZERO
    if numerator.constant is not None and denominator.constant is not None:
        return index(numerator.constant % denominator.constant)
    _, rest = _split(numerator, denominator)
    if within(rest, denominator):
        return rest
    part = rest.atom
    if isinstance(part, Mod) and _divide(part.denominator, denominator)[1] == ZERO:
        return mod(part.numerator, denominator)
    if (split := _common_factor(rest, denominator)) is not None:
        factor, whole, small, smaller = split
        return factor * mod(whole, smaller) + small
    return IndexExpr({(Mod(rest, denominator),): 1})


def within(expr: IndexExpr, bound: IndexExpr) -> bool:
    """Whether ``0 <= expr < bound`` can be proved from the ranges of the axes."""
    return at_least(expr, ZERO) and at_least(bound - 1, expr)


def at_least(left: IndexExpr, right: IndexExpr) -> bool:
    """Whether ``left >= right`` can be proved from the ranges of the axes and of the sizes."""
    difference = left - right
    if difference.constant is not None:
        return difference.constant >= 0
    if _may_be_negative(difference):
        return False
    lowest = ZERO
    for mono, coeff in difference.terms:
        term = index(coeff)
        for atom in mono:
            if isinstance(atom, Size):
                term = term * atom
            elif coeff > 0:
                term = ZERO  # every atom is at least 0, so the term is too
                break
            else:
                upper = atom.upper()
                if upper is None:
                    return False
                term = term * upper
        lowest = lowest + term
    if lowest.constant is not None:
        return lowest.constant >= 0
    if _may_be_negative(lowest) or not all(isinstance(atom, Size) for atom in lowest.atoms()):
        return False
    # count every size from its least value: if no coefficient is negative then, the value is not either
    shifted = ZERO
    for mono, coeff in lowest.terms:
        term = index(coeff)
        for atom in mono:
            least = (atom.least or 0) if isinstance(atom, Size) else 0
            term = term * (index(least) + IndexExpr({(atom,): 1}))
        shifted = shifted + term
    return all(coeff >= 0 for _, coeff in shifted.terms)


def _may_be_negative(expr: IndexExpr) -> bool:
    """Whether an integer that only the run time knows, and that may be below 0, has a part in ``expr``."""
    sizes = (atom for atom in expr.atoms() if isinstance(atom, Size))
    return any(size.least is None or size.least < 0 for size in sizes)


def _split(numerator: IndexExpr, denominator: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
    """Quotient and a rest that is as certainly not negative as ``numerator``: kernels round quotients
    towards 0, not down, so what may be below 0 must not be taken apart."""
    quotient, rest = _divide(numerator, denominator)
    if all(coeff > 0 for _, coeff in rest.terms):
        return quotient, rest
    for borrowed in range(MOST_BORROWED):  # what is left of 40*i + j - 3 over 40 is j - 3: borrow one 40
        lifted = rest + borrowed * denominator
        if at_least(lifted, ZERO):
            return quotient - borrowed, lifted
    return ZERO, numerator


def _divide(numerator: IndexExpr, denominator: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
    """Quotient and rest, moving into the quotient each term that the denominator divides."""
    if len(denominator.terms) != 1:
        if numerator == denominator:
            return ONE, ZERO
        return ZERO, numerator
    (mono, coeff) = denominator.terms[0]
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for term, factor in numerator.terms:
        left = list(term)
        divides = factor % coeff == 0
        for atom in mono:
            if atom in left:
                left.remove(atom)
            else:
                divides = False
        if divides:
            quotient[tuple(left)] = quotient.get(tuple(left), 0) + factor // coeff
        elif not mono and not term:  # a plain number: keep its remainder
            quotient[()] = quotient.get((), 0) + factor // coeff
            rest[()] = factor % coeff
        else:
            rest[term] = factor
    if not mono:
        # (17*i) // 16 and the like stay whole; but a constant must not push the rest out of range
        whole = IndexExpr(rest)
        if not whole.terms or within(whole, denominator):
            return IndexExpr(quotient), whole
        constant = quotient.pop((), 0)
        if constant and numerator.constant is None and any(not term for term, _ in numerator.terms):
            rest[()] = rest.get((), 0) + constant * coeff
    return IndexExpr(quotient), IndexExpr(rest)


def _common_factor(
    numerator: IndexExpr, denominator: IndexExpr
) -> tuple[IndexExpr, IndexExpr, IndexExpr, IndexExpr] | None:
    """``(factor, whole, small, smaller)`` with ``numerator = factor*whole + small``, ``denominator =
    factor*smaller`` and ``0 <= small < factor``: then ``small`` has no say in the quotient."""
    if len(denominator.terms) != 1:
        return None
    ((atoms, number),) = denominator.terms
    factors = {
        (tuple((Counter(mono) & Counter(atoms)).elements()), gcd(coeff, number))
        for mono, coeff in numerator.terms
    }
    for common, count in sorted(factors, key=lambda item: (len(item[0]), item[1]), reverse=True):
        factor = IndexExpr({common: count})
        if factor == 1 or factor == denominator:
            continue
        whole, small = _divide(numerator, factor)
        if within(small, factor):
            return factor, whole, small, _divide(denominator, factor)[0]
    return None


def _recombine(terms: dict[Monomial, int]) -> dict[Monomial, int]:
    """Apply ``c*d*(e//d) + c*(e%d) = c*e``; if that quotient is taken modulo ``m``, ``c*(e%(d*m))``."""
    for mono, coeff in list(terms.items()):
        for place, atom in enumerate(mono):
            if not isinstance(atom, Mod) or not terms.get(mono):
                continue
            others = mono[:place] + mono[place + 1 :]
            quotient = floordiv(atom.numerator, atom.denominator)
            partner = _times(quotient * atom.denominator, others, coeff)
            if partner.terms and all(terms.get(term) == factor for term, factor in partner.terms):
                del terms[mono]
                for term, _ in partner.terms:
                    del terms[term]
                whole = _times(atom.numerator, others, coeff)
                for term, factor in whole.terms:
                    terms[term] = terms.get(term, 0) + factor
                return _recombine(terms)
            step = atom.denominator.constant
            for term, factor in terms.items():
                rest = [each for each in term if not (isinstance(each, Mod) and each.numerator == quotient)]
                if step is None or factor != coeff * step or tuple(rest) != others or len(term) != len(mono):
                    continue
                (upper,) = (each for each in term if each not in rest)
                assert isinstance(upper, Mod)
                whole = _times(mod(atom.numerator, upper.denominator * step), others, coeff)
                del terms[mono], terms[term]
                for key, more in whole.terms:
                    terms[key] = terms.get(key, 0) + more
                return _recombine(terms)
    return terms


def _times(expr: IndexExpr, atoms: Monomial, coeff: int) -> IndexExpr:
    terms: dict[Monomial, int] = {}
    for mono, factor in expr.terms:
        key = tuple(sorted(mono + atoms, key=lambda atom: atom.text))
        terms[key] = terms.get(key, 0) + factor * coeff
    return IndexExpr(terms)
