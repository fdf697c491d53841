"""Maximum pooling: values, the places they came from, and the gradient as a gather by those places."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, as_held, compute_dtype, constant, index_value, op, where
from nbcompile.compiler.loop_ir.index import ZERO, IndexExpr
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.operators.pooling import (
    MOST_UNROLLED,
    Places,
    Windows,
    guarded,
    of_ranks,
    pool_samples,
    pooled,
)
from nbcompile.compiler.lower.registry import Sample
from nbcompile.compiler.lower.samples import tensor

aten = torch.ops.aten


def _max_samples(rank: int) -> list[Sample]:
    def call(g: torch.Generator, x: Any, k: Any, s: Any, p: Any, ceil: bool) -> tuple[Any, ...]:
        return x, k, s, p, 1, ceil

    def dilated(g: torch.Generator, x: Any, k: Any, s: Any, p: Any, ceil: bool) -> tuple[Any, ...]:
        return x, 2, 1, 1, 2, ceil

    def of_integers(g: torch.Generator, x: Any, k: Any, s: Any, p: Any, ceil: bool) -> tuple[Any, ...]:
        return x.long(), k, s, p, 1, ceil

    return [
        *pool_samples(rank, call, special=True),
        *pool_samples(rank, dilated, special=False)[:1],
        *(Sample(f"i64-{s.name}", s.make) for s in pool_samples(rank, of_integers, special=False)[:2]),
    ]


def _gradient_samples(rank: int, forward: Any) -> list[Sample]:
    def call(g: torch.Generator, x: Any, k: Any, s: Any, p: Any, ceil: bool) -> tuple[Any, ...]:
        values, places = forward(x, k, s, p, 1, ceil)
        return tensor(g, *values.shape, dtype=x.dtype), x, k, s, p, 1, ceil, places

    return pool_samples(rank, call, special=False)


@of_ranks("max_pool{}d_with_indices", {rank: _max_samples(rank) for rank in (2, 3)})
def max_pool(
    b: Builder, rank: int, x: View, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[View, View]:  # fmt: skip
    """The largest element of each window, and its row-major position in the last ``rank`` dimensions of
    ``x``: the first of equals, but the last of several NaN, which are above all. Padding is never chosen: of
    a window that is nothing else the place is -1, by which no gradient goes anywhere (eager names an element
    beyond the row, and its gradient is written there, be it beyond the tensor). The
    places of more than ``MOST_UNROLLED`` elements are a library's on a CPU. LoweringError for symbolic
    windows, for more elements on a GPU, and for more along one dimension."""
    shape, compute = b.result_shape(0), compute_dtype(x.dtype)
    windows = Windows.of(b, x, shape, rank, kernel, stride, padding, dilation)
    values = pooled(b, x, windows, shape, functools.partial(_largest, b))
    if math.prod(windows.kernel) > MOST_UNROLLED and not b.options.chip.is_gpu:
        how = (kernel, stride, padding, dilation, ceil_mode)
        packet = getattr(aten, f"max_pool{rank}d_with_indices")
        return values, b.call(packet.default, (x, *how), reason="a large window's places")[1]

    nowhere = -1 if max(windows.dilation) > 1 else 0  # else each window has an element

    def place_of_largest(*place: IndexExpr) -> Expr:
        # the first element that equals the maximum; of several NaN, as in eager, the last
        lead, spot = place[:-rank], place[-rank:]
        top = as_held(b.element(values, place, compute), x.dtype)
        equal, missing = constant(nowhere, torch.int64), constant(0, torch.int64)
        members = list(windows.members(spot))
        chosen: list[Expr] = [equal, missing]
        for n, order in enumerate((reversed(members), members)[: 1 + compute.is_floating_point]):
            for source, inside in order:

                def matches(source: Places = source, n: int = n) -> Expr:
                    item = as_held(b.element(x, (*lead, *source), compute), x.dtype)
                    return op("isnan", item) if n else item.eq(top)

                chosen[n] = where(guarded(inside, matches, False), _flat(source, windows.input), chosen[n])
        return where(op("isnan", top), chosen[1], chosen[0]) if compute.is_floating_point else chosen[0]

    places = b.generate(shape, torch.int64, place_of_largest, name=f"{b.op}_place", output=1)
    return values, places


def _largest(b: Builder, x: View, windows: Windows, shape: Sequence[IndexExpr], _last: bool) -> View:
    """The largest element of each window."""
    rank, compute = len(windows.kernel), compute_dtype(x.dtype)
    lowest = -torch.inf if compute.is_floating_point else torch.iinfo(compute).min

    def largest(*place: IndexExpr) -> Expr:
        lead, spot = place[:-rank], place[-rank:]
        value: Expr | None = None
        for source, inside in windows.members(spot):
            item = guarded(inside, lambda s=source: b.element(x, (*lead, *s), compute), lowest)  # type: ignore[misc]
            value = item if value is None else op("maximum", value, item)
        assert value is not None
        return value

    return b.generate(shape, b.result_dtype(0), largest, output=0)


def _flat(place: Places, shape: Places) -> Expr:
    """Row-major position of ``place`` in ``shape`` as a scalar."""
    total = ZERO
    for value, extent in zip(place, shape, strict=True):
        total = total * extent + value
    return index_value(total)


@of_ranks(
    "max_pool{}d_with_indices_backward",
    {
        2: _gradient_samples(2, aten.max_pool2d_with_indices),
        3: _gradient_samples(3, aten.max_pool3d_with_indices),
    },
)
def max_pool_backward(
    b: Builder, rank: int, grad: View, x: View, kernel: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool, indices: View,
) -> View:  # fmt: skip
    """The sum, for each element, of ``grad`` at the windows whose place in ``indices`` it is. LoweringError
    for symbolic windows, and where more than ``MOST_UNROLLED`` may cover an element."""
    shape, compute = b.result_shape(), compute_dtype(x.dtype)
    windows = Windows.of(b, x, grad.shape, rank, kernel, stride, padding, dilation)

    def body(*place: IndexExpr) -> Expr:
        lead, spot = place[:-rank], place[-rank:]
        mine = _flat(spot, windows.input)
        total: Expr | None = None
        for window, inside in windows.covering(spot):

            def part(window: Places = window) -> Expr:
                chosen = b.element(indices, (*lead, *window), torch.int64)
                return where(chosen.eq(mine), b.element(grad, (*lead, *window), compute), 0.0)

            value = guarded(inside, part, 0.0)
            total = value if total is None else total + value
        assert total is not None
        return total

    return b.generate(shape, b.result_dtype(), body)
