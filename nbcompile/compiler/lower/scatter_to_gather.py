"""Scatters whose targets are formulas of the position, turned round: each element of the result asks which
points meet in it, so nothing is added atomically and the result never depends on an order.

The gradient of nearest upsampling is one: ``out[o] = base[o] + sum of src[k*o + r] for r in range(k)``.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from nbcompile.compiler.loop_ir.expr import HALF, Expr, Guarded, Indirect, compute_dtype, constant
from nbcompile.compiler.loop_ir.index import ONE, ZERO, Axis, Index, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import ScatterMode, View
from nbcompile.compiler.lower.builder import Builder, at
from nbcompile.compiler.lower.constant_folding import MOST_FOLDED, QuasiAffine, plain_quasi_affine

MOST_UNROLLED = 27
"""Points that meet in one element and are added up in one expression, as many as in a window of a pooling."""
FEW = 64
"""Points that may meet in one element of a half type without losing much: no wider copy is made for them."""

Bound = tuple[IndexExpr, IndexExpr, IndexExpr]


@dataclass(frozen=True)
class Preimage:
    """Which places along one axis of the points lead to element ``o`` of one dimension of the target: from
    ``first(o)``, ``count`` of them, or fewer (unless ``exact``) if ``first(o + 1)`` comes before. ``inside``:
    the elements that any lead to, if not all are between them; outside ``first`` says nothing."""

    axis: int
    count: int
    first: QuasiAffine
    exact: bool
    inside: tuple[int, int] | None = None
    backwards: int = 0  # the places are counted from this one down

    def place(self, o: IndexExpr, number: Index) -> tuple[IndexExpr, list[Bound]]:
        """The place that is number ``number`` of element ``o``, and what must hold for it to be one."""
        place = self.first.at(o) + number
        bounds = self._inside(o)
        if not self.exact:
            bounds.append((place, ZERO, self.first.at(o + 1)))
        return (index(self.backwards) - place if self.backwards else place), bounds

    def last(self, o: IndexExpr) -> tuple[IndexExpr, list[Bound]]:
        """The last such place in row-major order."""
        if self.backwards:
            return self.place(o, 0)
        bounds, after = self._inside(o), self.first.at(o + 1)
        if not self.exact:
            bounds.append((self.first.at(o), ZERO, after))
        return after - 1, bounds

    def _inside(self, o: IndexExpr) -> list[Bound]:
        return [(o, index(self.inside[0]), index(self.inside[1]))] if self.inside else []


Pick = Callable[[Preimage, IndexExpr], tuple[IndexExpr, Sequence[Bound]]]


def scattered(
    b: Builder,
    base: View,
    shape: Sequence[IndexExpr],
    mode: ScatterMode,
    target: Callable[..., Sequence[Index]],
    value: Callable[..., Expr],
    *,
    wide: bool = False,
) -> View:
    """:meth:`Builder.scatter`, turned round where that can be done. ``wide``: what meets in an element of a
    half type is combined in float32 on a CPU, as eager's ``scatter_add`` does there."""
    axes = b.axes(tuple(shape))
    found = None
    if mode in ("set", "add") and base.dtype != torch.bool and ZERO not in shape:
        found = _preimages(base.shape, axes, [index(place) for place in target(*at(axes))])
    if found is None:
        return _in_turn(b, base, shape, mode, target, value, wide)
    where, fixed = found
    named = {item.axis for item in where.values() if isinstance(item, Preimage)}
    named |= {item for item in where.values() if isinstance(item, int)}
    free = [n for n, axis in enumerate(axes) if n not in named and axis.extent != ONE]
    inverse = _Inverse(b, base, axes, where, fixed, free, value)
    if mode == "set":
        return inverse.chosen()
    counts = inverse.counts()
    if counts is not None and math.prod(counts) <= MOST_UNROLLED:
        return inverse.unrolled()
    if counts is not None:
        return inverse.summed(counts)
    return _in_turn(b, base, shape, mode, target, value, wide)


def _in_turn(
    b: Builder,
    base: View,
    shape: Sequence[IndexExpr],
    mode: ScatterMode,
    target: Callable[..., Sequence[Index]],
    value: Callable[..., Expr],
    wide: bool,
) -> View:
    """Point by point. In a half type many that meet would be lost: 1 added to 256 of bfloat16 is 256."""
    if not wide or mode not in ("add", "mul") or base.dtype not in HALF or b.options.chip.is_gpu:
        return b.scatter(base, shape, mode, target, value)
    made = b.scatter(b.copy(base, torch.float32), shape, mode, target, value)
    return b.copy(made, base.dtype)


def _preimages(
    extents: Sequence[IndexExpr], axes: Sequence[Axis], places: Sequence[IndexExpr]
) -> tuple[dict[int, Preimage | int], dict[int, int]] | None:
    """(for each dimension of the target the axis that is its place, or the places that lead to its elements;
    the place in the dimensions where it is one number). None if the targets are gathered or mixed."""
    where: dict[int, Preimage | int] = {}
    fixed: dict[int, int] = {}
    used: set[Axis] = set()
    for dim, (place, extent) in enumerate(zip(places, extents, strict=True)):
        if any(isinstance(atom, Indirect) for atom in place.atoms()):
            return None
        inside = place.axes()
        if used & inside or len(inside) > 1:
            return None
        used |= inside
        if not inside:
            if place.constant is None:
                return None
            fixed[dim] = place.constant
            continue
        (axis,) = inside
        if place.axis == axis and axis.extent == extent:
            where[dim] = axes.index(axis)
            continue
        found = _preimage(place, axis, axes.index(axis), extent)
        if found is None:
            return None
        where[dim] = found
    return where, fixed


def _preimage(place: IndexExpr, axis: Axis, number: int, extent: IndexExpr) -> Preimage | None:
    length, size = axis.extent.constant, extent.constant
    if length is None or size is None or not 0 < length <= MOST_FOLDED or not 0 < size <= MOST_FOLDED:
        return None

    def target(n: int) -> int:
        return int(place.evaluate(lambda atom: n if atom == axis else 0))

    line = [target(n) for n in range(length)]
    backwards = length - 1 if line[0] > line[-1] else 0
    line = line[::-1] if backwards else line
    if sorted(line) != line or line[0] < 0 or line[-1] >= size:
        return None
    low, high = line[0], line[-1] + 1
    starts = [bisect_left(line, o) for o in range(low, high + 1)]
    counts = [after - before for before, after in itertools.pairwise(starts)]
    first = plain_quasi_affine(starts, low)
    if first is None:
        return None
    inside = None if (low, high) == (0, size) else (low, high)
    return Preimage(number, max(counts), first, min(counts) == max(counts), inside, backwards)


@dataclass(frozen=True)
class _Inverse:
    """A scatter to be turned round. ``free``: axes of the points that have no say in the target."""

    b: Builder
    base: View
    axes: tuple[Axis, ...]
    where: dict[int, Preimage | int]
    fixed: dict[int, int]
    free: list[int]
    value: Callable[..., Expr]

    @property
    def compute(self) -> torch.dtype:
        return compute_dtype(self.base.dtype)

    def counts(self) -> list[int] | None:
        """How many points meet in an element at most, factor by factor: the preimages, then the free axes."""
        found: list[int] = [item.count for item in self.where.values() if isinstance(item, Preimage)]
        for n in self.free:
            extent = self.axes[n].extent.constant
            if extent is None:
                return None
            found.append(extent)
        return found

    def point(
        self, out: Sequence[IndexExpr], pick: Pick, free: Sequence[IndexExpr]
    ) -> tuple[Expr, tuple[Bound, ...]]:
        """The value of a point that may meet others in element ``out``, and what must hold if it does."""
        places = [ZERO] * len(self.axes)
        bounds: list[Bound] = []
        for dim, o in enumerate(out):
            item = self.where.get(dim)
            if isinstance(item, Preimage):
                places[item.axis], more = pick(item, o)
                bounds += more
            elif item is not None:
                places[item] = o
            elif self.base.shape[dim] != ONE:
                bounds.append((o, index(self.fixed[dim]), index(self.fixed[dim] + 1)))
        for n, place in zip(self.free, free, strict=True):
            places[n] = place
        return self.value(*places), tuple(bounds)

    def old(self, out: Sequence[IndexExpr]) -> Expr:
        return self.b.element(self.base, out, self.compute)

    def chosen(self) -> View:
        """The last point of each element, or the base's."""

        def body(*out: IndexExpr) -> Expr:
            free = [self.axes[n].extent - 1 for n in self.free]
            new, bounds = self.point(out, lambda item, o: item.last(o), free)
            return Guarded(bounds, new, self.old(out)) if bounds else new

        return self.b.generate(self.base.shape, self.base.dtype, body)

    def unrolled(self) -> View:
        """All points of an element in one expression, in row-major order."""
        ordered = sorted(
            [(item.axis, item.count) for item in self.where.values() if isinstance(item, Preimage)]
            + [(n, self.axes[n].extent.constant or 0) for n in self.free]
        )

        def numbered(out: Sequence[IndexExpr], number: Mapping[int, int]) -> Expr:
            free = [index(number[n]) for n in self.free]
            return _or_zero(*self.point(out, lambda item, o: item.place(o, number[item.axis]), free))

        def body(*out: IndexExpr) -> Expr:
            total = self.old(out)
            for numbers in itertools.product(*(range(count) for _, count in ordered)):
                total = total + numbered(out, dict(zip((axis for axis, _ in ordered), numbers, strict=True)))
            return total

        return self.b.generate(self.base.shape, self.base.dtype, body)

    def summed(self, counts: Sequence[int]) -> View:
        """The points of an element as a sum over axes of their own, then added to the base."""
        kept = self.b.axes(self.base.shape)
        inner = self.b.axes([index(count) for count in counts], skip=len(kept))
        out, numbers = at(kept), list(at(inner))
        own = iter(numbers[: len(numbers) - len(self.free)])
        new, bounds = self.point(
            out, lambda item, o: item.place(o, next(own)), numbers[len(numbers) - len(self.free) :]
        )
        total = self.b.total(kept, inner, _or_zero(new, bounds))
        return self.b.generate(
            self.base.shape, self.base.dtype, lambda *out: self.old(out) + self.b.element(total, out)
        )


def _or_zero(value: Expr, bounds: tuple[Bound, ...]) -> Expr:
    """``value`` where the bounds hold, else nothing to add."""
    return Guarded(bounds, value, constant(0, value.dtype)) if bounds else value
