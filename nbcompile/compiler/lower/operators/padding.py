"""Padding with what a tensor holds: by regions, the middle of which lies along its memory. The gradient of a
replication as a gather: an element at the border sums all its copies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch

from nbcompile.compiler.loop_ir.expr import Expr, Guarded, compute_dtype, constant
from nbcompile.compiler.loop_ir.index import ONE, ZERO, IndexExpr, at_least, index
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.operators.pooling import Bound, bounds, guarded
from nbcompile.compiler.lower.registry import Sample, lowering
from nbcompile.compiler.lower.samples import call, calls, tensor
from nbcompile.errors import LoweringError

aten = torch.ops.aten

Side = Callable[[IndexExpr, IndexExpr], IndexExpr]
"""The place within ``extent`` elements that stands for ``place``, before or after them."""


@lowering(
    aten.replication_pad1d.default,
    samples=calls(
        both=lambda draw: call(draw(2, 3, 5, special=True), [2, 1]),
        cut=lambda draw: call(draw(3, 4), [-1, 6]),
        wide=lambda draw: call(draw(2, 1), [3, 3]),
        half=lambda draw: call(draw(2, 3, 4, dtype=torch.bfloat16), [0, 2]),
        empty=lambda draw: call(draw(0, 3, 4), [1, 1]),
    ),
)
@lowering(
    aten.replication_pad2d.default,
    samples=calls(
        both=lambda draw: call(draw(2, 2, 4, 3), [2, 1, 0, 3]),
        cut=lambda draw: call(draw(2, 4, 5), [1, 1, -1, 1]),
        channels_last=lambda draw: call(draw(2, 3, 4, 5).to(memory_format=torch.channels_last), [1, 1, 2, 2]),
        transposed=lambda draw: call(draw(2, 4, 5).mT, [1, 2, 1, 0]),
    ),
)
def replication_pad(b: Builder, x: View, padding: Sequence[int]) -> View:
    """``x`` with its border repeated around it."""
    return _padded(b, x, padding, lambda place, extent: ZERO, lambda place, extent: extent - 1, 0)


@lowering(
    aten.reflection_pad1d.default,
    samples=calls(
        both=lambda draw: call(draw(2, 3, 5, special=True), [2, 4]),
        cut=lambda draw: call(draw(3, 5), [-1, 2]),
        cut_after=lambda draw: call(draw(3, 5), [2, -1]),
        doubles=lambda draw: call(draw(2, 3, 4, dtype=torch.float64), [0, 2]),
        half=lambda draw: call(draw(2, 3, 4, dtype=torch.bfloat16), [3, 0]),
    ),
)
@lowering(
    aten.reflection_pad2d.default,
    samples=calls(
        both=lambda draw: call(draw(2, 2, 4, 3), [2, 1, 0, 3]),
        cut=lambda draw: call(draw(2, 4, 5), [1, 1, -1, 1]),
        channels_last=lambda draw: call(draw(2, 3, 4, 5).to(memory_format=torch.channels_last), [1, 1, 2, 2]),
        empty=lambda draw: call(draw(0, 3, 4, 4), [1, 1, 1, 1]),
    ),
)
def reflection_pad(b: Builder, x: View, padding: Sequence[int]) -> View:
    """``x`` with what lies inside its border mirrored around it."""
    return _padded(
        b, x, padding, lambda place, extent: -place, lambda place, extent: extent * 2 - 2 - place, 1
    )


def _padded(b: Builder, x: View, padding: Sequence[int], before: Side, after: Side, least: int) -> View:
    """``padding`` has a number before and one after for each dimension, from the last one on; a negative one
    cuts off. LoweringError for symbolic ones, and where they are not known to have their elements: ``least``
    more than are mirrored."""
    if not all(isinstance(amount, int) for amount in padding):
        raise LoweringError("a symbolic padding")
    lead = len(x.axes) - len(padding) // 2
    pairs = [(padding[n], padding[n + 1]) for n in range(len(padding) - 2, -1, -2)]
    for extent, pair in zip(x.shape[lead:], pairs, strict=True):
        if not at_least(extent, index(max(*pair, 0) * least + 1)):
            raise LoweringError("a padding of sizes that are not known to be large enough")

    def value(where: Sequence[IndexExpr], place: tuple[IndexExpr, ...]) -> Expr:
        dim = len(place)
        if dim == len(where):
            return b.element(x, place)
        at = where[dim]
        if dim < lead:
            return value(where, (*place, at))
        (left, right), extent = pairs[dim - lead], x.shape[dim]
        inside, outside = value(where, (*place, at - left)), None
        if right > 0:
            outside = value(where, (*place, after(at - left, extent)))
        if left > 0:
            ahead = value(where, (*place, before(at - left, extent)))
            outside = ahead if outside is None else Guarded(((at, ZERO, index(left)),), ahead, outside)
        return inside if outside is None else Guarded(((at, index(left), extent + left),), inside, outside)

    return b.generate(b.result_shape(), b.result_dtype(), lambda *where: value(where, ()))


MOST_COPIES = 50
"""Paddings that copy a corner more often are left to ATen."""


def _samples(*cases: tuple[tuple[int, ...], list[int]]) -> list[Sample]:
    def make(shape: tuple[int, ...], padding: list[int], dtype: torch.dtype) -> Sample:
        def call(
            g: torch.Generator,
        ) -> tuple[tuple[torch.Tensor, torch.Tensor, list[int]], dict[str, object]]:
            grown = list(shape)
            for n, amount in enumerate(padding):
                grown[-1 - n // 2] += amount
            return (tensor(g, *grown, dtype=dtype), tensor(g, *shape, dtype=dtype), padding), {}

        return Sample(f"{shape}-{padding}-{dtype}", call)

    return [make(*case, torch.float32) for case in cases] + [make(*cases[0], torch.float64)]


def _copies(
    place: IndexExpr, extent: IndexExpr, before: int, after: int
) -> list[tuple[IndexExpr, tuple[Bound, ...]]]:
    """Where the copies of element ``place`` of one dimension are, and what must hold for each."""
    grown = extent + before + after
    found = [(place + before, bounds((place + before,), (grown,)))]
    first, last = ((place, ZERO, ONE),), ((place, extent - 1, extent),)
    found += [(index(n), first) for n in range(before)]
    found += [(extent + (before + n), last) for n in range(after)]
    return found


@lowering(
    aten.replication_pad1d_backward.default,
    samples=_samples(((2, 3, 5), [2, 1]), ((3, 4), [0, 3]), ((1, 2, 1), [1, 1])),
)
@lowering(
    aten.replication_pad2d_backward.default,
    samples=_samples(((2, 2, 4, 3), [2, 1, 0, 1]), ((2, 4, 5), [1, 1, -1, 1])),
)
@lowering(aten.replication_pad3d_backward.default, samples=_samples(((1, 2, 3, 2, 3), [1, 1, 0, 1, 1, 0])))
def replication_pad_backward(b: Builder, grad: View, x: View, padding: Sequence[int]) -> View:
    """The sum, for each element, of ``grad`` at all its copies. LoweringError for a symbolic padding, and for
    one that copies a corner more than ``MOST_COPIES`` times."""
    if not all(isinstance(amount, int) for amount in padding):
        raise LoweringError("a symbolic padding")
    rank, shape, compute = len(padding) // 2, b.result_shape(), compute_dtype(x.dtype)
    pairs = [(padding[2 * n], padding[2 * n + 1]) for n in reversed(range(rank))]
    if math.prod(1 + max(before, 0) + max(after, 0) for before, after in pairs) > MOST_COPIES:
        raise LoweringError("so wide a padding")

    def body(*place: IndexExpr) -> Expr:
        lead, spot = place[:-rank], place[-rank:]
        copies = [
            _copies(p, extent, *pair) for p, extent, pair in zip(spot, shape[-rank:], pairs, strict=True)
        ]
        total: Expr = constant(0.0, compute)
        for chosen in itertools.product(*copies):
            source = tuple(where for where, _ in chosen)
            inside = tuple(bound for _, each in chosen for bound in each)
            total = total + guarded(inside, lambda s=source: b.element(grad, (*lead, *s), compute), 0.0)  # type: ignore[misc]
        return total

    return b.generate(shape, b.result_dtype(), body)
