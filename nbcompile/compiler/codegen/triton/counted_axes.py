"""Axes that are counted as one, by the variable of a tile's dimension.

A division by a number that is known takes a few instructions, one by a size some twenty: of these there are
as few as can be, and what lies in memory as the points are counted is said in one number, for Triton to see
that neighbours are neighbours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

from nbcompile.compiler.codegen.triton.dims import Dim
from nbcompile.compiler.loop_ir.index import ZERO, Axis, IndexExpr, Monomial, index, product


def is_symbolic(dim: Dim) -> bool:
    """Whether an axis of ``dim`` is told by dividing by a size."""
    return any(axis.extent.constant is None for axis in dim.axes[1:])


def counted_dims(place: IndexExpr, counted: Mapping[Axis, tuple[Dim, list[str]]]) -> list[Dim]:
    """Dimensions that axes of an index are ``counted`` from."""
    found = {counted[axis][0].axes: counted[axis][0] for axis in place.axes() if axis in counted}
    return sorted(found.values(), key=lambda dim: dim.name)


def divisions(
    dim: Dim, letters: Sequence[str], text: Callable[[IndexExpr], str], fresh: Callable[[str], str]
) -> Iterator[str]:
    """Lines that name the axes of ``dim`` by its one variable, the last one first: ``k = x % s0``,
    ``rest = x // s0``, ``j = rest % s1``, ``i = rest // s1``."""
    rest = dim.name
    for number in range(len(dim.axes) - 1, 0, -1):
        extent = text(dim.axes[number].extent)
        yield f"{letters[number]} = {rest} % {extent}"
        above = fresh("rest") if number > 1 else letters[0]
        yield f"{above} = {rest} // {extent}"
        rest = above


def with_runs(
    place: IndexExpr, dims: Iterable[Dim], name: Callable[[Dim, int, int], Axis | None]
) -> IndexExpr:
    """``place``, in which neighbouring axes of a dimension that it counts as one, ``i*s0 + j``, are the one
    that ``name`` has for them."""
    for dim in dims:
        steps = [_step(place, axis) for axis in dim.axes]
        for first, last in _runs(dim, steps):
            one = name(dim, first, last)
            if one is not None:
                run = range(first, last + 1)
                place = place - sum((index(dim.axes[n]) * steps[n] for n in run), ZERO)
                place = place + index(one) * steps[last]
    return place


def _step(place: IndexExpr, axis: Axis) -> IndexExpr:
    """What ``axis`` is multiplied by where it stands as a factor; a quotient of it is another thing."""
    terms: dict[Monomial, int] = {}
    for mono, coeff in place.terms:
        rest = tuple(atom for atom in mono if atom != axis)
        if len(rest) == len(mono) - 1 and not any(axis in atom.axes() for atom in rest):
            terms[rest] = coeff
    return IndexExpr(terms)


def _runs(dim: Dim, steps: Sequence[IndexExpr]) -> Iterator[tuple[int, int]]:
    """(first, last) numbers of axes of which each makes as many as all steps of the next."""
    first = 0
    for number in range(len(dim.axes)):
        ahead = steps[number + 1] if number + 1 < len(dim.axes) else ZERO
        if ahead != ZERO and steps[number] == ahead * dim.axes[number + 1].extent:
            continue
        if number > first:
            yield first, number
        first = number + 1


def run_of(dim: Dim, first: int, last: int) -> Axis:
    """The axis that stands for a run of ``dim``'s; it has its place in the order of names from the first."""
    run = dim.axes[first : last + 1]
    return Axis(f"{run[0].text} to {run[-1].text}", product(axis.extent for axis in run))


def unread_lines(text: Sequence[str], declaring: Set[str]) -> set[str]:
    """Of the lines of a function, those ``declaring`` an axis that no line reads but such as are unread."""
    left, found = [line.strip() for line in text], set[str]()
    while True:
        words = Counter(re.findall(r"\w+", "\n".join(left)))
        names = Counter(line.split()[0] for line in left if line in declaring)
        unread = {
            line for line in left if line in declaring and words[line.split()[0]] == names[line.split()[0]]
        }
        if not unread:
            return found
        found |= unread
        left = [line for line in left if line not in unread]


def with_joined(place: IndexExpr, outer: Axis, inner: Axis, both: Axis) -> IndexExpr:
    """``place`` by way of ``both = outer * extent + inner`` if it is a function of that."""
    step = place.coefficient(inner)
    if step is None or place.coefficient(outer) != step * inner.extent:
        return place
    return place + (index(both) - index(outer) * inner.extent - index(inner)) * step
