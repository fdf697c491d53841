"""Gradients of replication padding as gathers: an element at the border sums all its copies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch

from nbcompile.compiler.loop_ir.expr import Expr, compute_dtype, constant
from nbcompile.compiler.loop_ir.index import ONE, ZERO, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.operators.pooling import Bound, bounds, guarded
from nbcompile.compiler.lower.registry import Sample, lowering
from nbcompile.compiler.lower.samples import tensor
from nbcompile.errors import LoweringError

aten = torch.ops.aten

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
