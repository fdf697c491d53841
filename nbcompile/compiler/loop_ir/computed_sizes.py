"""Sizes and numbers that Python computes of others before what needs them runs: ``max(1, s0 - 3)``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from nbcompile.compiler.loop_ir.index import Atom, FloorDiv, IndexExpr, Mod, Size


@dataclass(frozen=True)
class PythonNumber:
    """An int, float or bool that Python computes: ``formula`` is an expression over the symbols ``needs``
    (sizes, and numbers that calls give) and ``parts`` by their names, and the module ``math``."""

    formula: str
    needs: frozenset[str] = frozenset()
    parts: tuple[ComputedSize, ...] = ()

    def __str__(self) -> str:
        return self.formula

    def value(self, known: Mapping[str, Any]) -> Any:
        """The number, of the values of what it ``needs``."""
        names = {part.text: part.number.value(known) for part in self.parts}
        return eval(self.formula, {"math": math}, {**known, **names})


class ComputedSize(Size):
    """A size that is computed of others: ``number`` says how. Arithmetic knows of it what it knows of any
    size; it is there as soon as what its number needs is."""

    __slots__ = ("number",)

    def __init__(
        self, name: str, hint: int, least: int | None, number: PythonNumber, most: int | None = None
    ) -> None:
        super().__init__(name, hint, least, most)
        self.number = number


class ExactPart(ComputedSize):
    """What a size that is surely a multiple of ``divisor`` has it times: ``whole`` is written as the product
    of the two, which leaves no quotient in what is computed of it."""

    __slots__ = ("divisor", "whole")

    def __init__(self, whole: Size, divisor: int) -> None:
        self.whole, self.divisor = whole, divisor
        number = PythonNumber(f"{whole.text} // {divisor}", frozenset([whole.text]))
        least = None if whole.least is None else -(-whole.least // divisor)
        super().__init__(f"{whole.text}_over_{divisor}", whole.hint // divisor, least, number, whole.most)


class DrawCounter(ComputedSize):
    """The first block of random words that is for the ``number``-th draw of a graph alone. It is an
    argument of the kernel, though it is known, so that equal layers have equal kernels."""

    __slots__ = ()

    def __init__(self, number: int, first: IndexExpr) -> None:
        parts = tuple(computed_in([first]).values())
        told = PythonNumber(python_text(first), frozenset(base_sizes([first])), parts)
        super().__init__(f"draw_{number}", first.hint(), 0, told)


def only_size(extent: IndexExpr) -> Size | None:
    """The size that an extent is, and nothing else; it then tells that size. A computed one it does not."""
    atom = next(iter(extent.atoms()), None)
    if isinstance(atom, ComputedSize):
        return None
    return atom if isinstance(atom, Size) and extent == IndexExpr({(atom,): 1}) else None


class Telling(NamedTuple):
    """A size that an extent tells: the extent is ``factor * part + offset``, and the size that part
    ``times`` times."""

    size: Size
    factor: int = 1
    offset: int = 0
    times: int = 1

    def text(self, extent: str) -> str:
        """The size in Python, of the text of the extent."""
        less = f"{extent} {'-' if self.offset > 0 else '+'} {abs(self.offset)}" if self.offset else extent
        divisor, times = self.factor, self.times
        if divisor % times == 0:
            divisor, times = divisor // times, 1
        part = less if divisor == 1 else f"({less}) // {divisor}"
        return part if times == 1 else f"({part}) * {times}"

    def value(self, extent: int) -> int:
        """The size, of the number that the extent is."""
        return (extent - self.offset) // self.factor * self.times


def told_by(extent: IndexExpr) -> Telling | None:
    """The only size that an extent is made of, which it then tells: a padded axis's is ``s + 3``."""
    (atom, *others) = extent.atoms() or (None,)
    if others or not isinstance(atom, Size):
        return None
    size, times = (atom.whole, atom.divisor) if isinstance(atom, ExactPart) else (atom, 1)
    terms = dict(extent.terms)
    factor, offset = terms.pop((atom,), 0), terms.pop((), 0)
    if not factor or terms or isinstance(size, ComputedSize):
        return None
    return Telling(size, factor, offset, times)


def computed_in(places: Iterable[IndexExpr | PythonNumber]) -> dict[str, ComputedSize]:
    """The computed sizes in ``places`` by name, and those that these are computed of, which come first."""
    found: dict[str, ComputedSize] = {}
    for place in places:
        numbers = [place] if isinstance(place, PythonNumber) else []
        if isinstance(place, IndexExpr):
            sizes = [atom for atom in place.atoms() if isinstance(atom, ComputedSize)]
            numbers += [size.number for size in sizes]
        else:
            sizes = []
        for number in numbers:
            found |= {part.text: part for part in computed_in_parts(number)}
        found |= {size.text: size for size in sizes}
    return found


def computed_in_parts(number: PythonNumber) -> list[ComputedSize]:
    """What a number is computed of, innermost first."""
    found: list[ComputedSize] = []
    for part in number.parts:
        found += [*computed_in_parts(part.number), part]
    return found


def base_sizes(places: Iterable[IndexExpr | PythonNumber]) -> set[str]:
    """The symbols that have to be known before ``places`` are: not those that are computed of them."""
    found: set[str] = set()
    for place in places:
        if isinstance(place, PythonNumber):
            found |= place.needs
            continue
        for atom in place.atoms():
            if isinstance(atom, Size):
                found |= atom.number.needs if isinstance(atom, ComputedSize) else {atom.text}
    return found


def python_text(place: IndexExpr) -> str:
    """An index as Python, sizes by name."""
    if place.constant is not None:
        return str(place.constant)
    parts = []
    for mono, coeff in place.terms:
        factors = [str(coeff)] if coeff != 1 or not mono else []
        factors += [_python_atom(atom) for atom in mono]
        parts.append("*".join(factors))
    return " + ".join(parts)


def _python_atom(atom: Atom) -> str:
    if isinstance(atom, FloorDiv | Mod):
        sign = "//" if isinstance(atom, FloorDiv) else "%"
        return f"(({python_text(atom.numerator)}) {sign} ({python_text(atom.denominator)}))"
    return atom.text
