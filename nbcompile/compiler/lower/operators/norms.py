"""Normalizations over rows (layer_norm, rms_norm) and groups of channels, and their gradients.

All are the same loops: statistics of ``x`` by Welford, the reciprocal deviation ``rstd``, and one
pointwise loop ``(x - mean) * rstd * weight + bias``. Statistics are kept in the type that ``x`` is
computed in; a copy is rounded to the dtype that the operator returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, compute_dtype, op
from nbcompile.compiler.loop_ir.index import ONE, IndexExpr
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.operators.reductions import count_value, counted, moments, spread_out
from nbcompile.compiler.lower.registry import Sample, lowering, overload
from nbcompile.compiler.lower.samples import tensor
from nbcompile.errors import LoweringError

aten = torch.ops.aten

Optional = View | None


def reciprocal_deviation(b: Builder, square: View, count: IndexExpr, eps: float, name: str = "rstd") -> View:
    """``1 / sqrt(square / count + eps)`` in the dtype of ``square``."""
    dtype = square.dtype
    return b.pointwise(
        lambda s: op("rsqrt", s / count_value(count, dtype) + eps), square, dtype=dtype, name=name
    )


def rounded(b: Builder, x: View, output: int) -> View:
    """``x`` in the dtype of the node's result number ``output``."""
    dtype = b.result_dtype(output)
    return x if x.dtype == dtype else b.copy(x, dtype)


def normalized(
    b: Builder, x: View, mean: Optional, rstd: View, weight: Optional, bias: Optional, name: str = ""
) -> View:
    """``(x - mean) * rstd * weight + bias``, all broadcast to ``x``; the node's result number 0."""
    operands = [item for item in (mean, weight, bias) if item is not None]

    def body(x: Expr, rstd: Expr, *given: Expr) -> Expr:
        rest = iter(given)
        value = (x - next(rest) if mean is not None else x) * rstd
        value = value * next(rest) if weight is not None else value
        return value + next(rest) if bias is not None else value

    return b.pointwise(body, x, rstd, *operands, compute=compute_dtype(x.dtype), name=name)


def sum_of(
    b: Builder,
    function: Callable[..., Expr],
    operands: Sequence[View],
    dims: Sequence[int],
    *,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
    output: int = 0,
    name: str = "sum",
) -> View:
    """Sum over ``dims`` of ``function`` of the operands' elements, all broadcast to the first one.
    ``dtype`` defaults to that of the node's result number ``output``."""
    compute = compute_dtype(operands[0].dtype)
    dtype = dtype if dtype is not None else b.result_dtype(output)
    if not dims:
        return b.pointwise(function, *operands, dtype=dtype, compute=compute, output=output, name=name)

    def body(first: Expr, *where: IndexExpr) -> Expr:
        return function(first, *(b.element(item, where, compute) for item in operands[1:]))

    return b.reduce(
        "sum", operands[0], dims, keepdim=keepdim, dtype=dtype, body=body, output=output, name=name
    )


# -- rows: layer_norm and rms_norm --------------------------------------------------------------


def _row_samples(bias: bool, backward: Callable[..., Any] | None = None) -> list[Sample]:
    """Samples of a forward call ``(x, shape, weight[, bias], eps)``, or of the gradient: ``backward``
    makes its arguments from those."""
    made: list[Sample] = []

    def add(
        name: str, x: Callable[[torch.Generator], torch.Tensor], inner: int = 1, affine: str = "wb",
        dtype: torch.dtype = torch.float32,
    ) -> None:  # fmt: skip
        def make(g: torch.Generator) -> tuple[tuple[Any, ...], dict[str, Any]]:
            value = x(g)
            shape = list(value.shape[-inner:])
            weight = tensor(g, *shape, dtype=dtype) if "w" in affine else None
            shift = [tensor(g, *shape, dtype=dtype) if "b" in affine else None] if bias else []
            args = (value, shape, weight, *shift, 1e-5)
            return (backward(g, *args) if backward else args), {}

        made.append(Sample(name, make))

    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        add(str(dtype), lambda g, dtype=dtype: tensor(g, 3, 4, 9, dtype=dtype), dtype=dtype)  # type: ignore[misc]
    add("plain", lambda g: tensor(g, 3, 4, 9), affine="")
    add("weight only", lambda g: tensor(g, 3, 4, 9), affine="w")
    add("two dims", lambda g: tensor(g, 3, 4, 9), inner=2)
    add("all dims", lambda g: tensor(g, 4, 9), inner=2)
    add("transposed", lambda g: tensor(g, 9, 4, 3).transpose(0, 2))
    add("expanded", lambda g: tensor(g, 3, 1, 9).expand(3, 4, 9))
    add("one", lambda g: tensor(g, 4, 1))
    add("no rows", lambda g: tensor(g, 0, 5))
    if backward is not None or not bias:  # layer_norm leaves the statistics of such rows uninitialised
        add("rows of nothing", lambda g: tensor(g, 2, 0, 3), inner=2)
    if backward is None:
        add("far", lambda g: tensor(g, 3, 4, 9) + 200)
        add("special", lambda g: tensor(g, 4, 12, special=True))
    return made


def _inner(x: View, shape: Sequence[Any]) -> tuple[int, ...]:
    """The last dimensions of ``x``, those that ``shape`` covers."""
    return tuple(range(len(x.axes) - len(shape), len(x.axes)))


@lowering(aten.native_layer_norm.default, samples=_row_samples(bias=True))
def layer_norm(
    b: Builder, x: View, shape: Sequence[Any], weight: Optional, bias: Optional, eps: float
) -> tuple[View, View, View]:
    """Layer norm (Ba, Kiros and Hinton, 2016) over the last dimensions, as many as ``shape`` has; also the
    mean and ``rstd = 1 / sqrt(variance + eps)``, of the biased variance. LoweringError for integers."""
    inner = _inner(x, shape)
    mean, square, count = moments(b, x, inner)
    rstd = spread_out(reciprocal_deviation(b, square, count, eps), x, inner)
    mean = spread_out(mean, x, inner)
    result = normalized(b, x, mean, rstd, weight, bias)
    return result, rounded(b, mean, 1), rounded(b, rstd, 2)


def _layer_norm_gradient(g: torch.Generator, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    _, mean, rstd = aten.native_layer_norm(x, shape, weight, bias, eps)
    mask = [True, weight is not None, bias is not None]
    return tensor(g, *x.shape, dtype=x.dtype), x, shape, mean, rstd, weight, bias, mask


@lowering(
    aten.native_layer_norm_backward.default,
    samples=[
        *_row_samples(bias=True, backward=_layer_norm_gradient),
        *_row_samples(bias=True, backward=lambda *a: (*_layer_norm_gradient(*a)[:-1], [True, False, False]))[
            :1
        ],
    ],
)
def layer_norm_backward(
    b: Builder, grad: View, x: View, shape: Sequence[Any], mean: View, rstd: View, weight: Optional,
    bias: Optional, mask: Sequence[bool],
) -> tuple[Optional, Optional, Optional]:  # fmt: skip
    """Gradients of ``x``, weight and bias, those that ``mask`` asks for, by the ``mean`` and ``rstd`` that
    :func:`layer_norm` returned."""
    inner = _inner(x, shape)
    outer = [dim for dim in range(len(x.axes)) if dim not in inner]
    dx = dw = db = None
    if mask[0]:
        dx = _row_gradient(b, grad, x, mean, rstd, weight, inner)
    if mask[1]:
        dw = sum_of(b, _times_normalized, [grad, x, rstd, mean], outer, output=1, name="grad_weight")
    if mask[2]:
        db = sum_of(b, lambda g: g, [grad], outer, output=2, name="grad_bias")
    return dx, dw, db


def _times_normalized(g: Expr, x: Expr, rstd: Expr, mean: Expr | None = None) -> Expr:
    return g * ((x if mean is None else x - mean) * rstd)


def _row_gradient(
    b: Builder, grad: View, x: View, mean: Optional, rstd: View, weight: Optional, inner: Sequence[int]
) -> View:
    """Gradient of the normalized rows: ``rstd * (gw - average(gw) - xhat * average(gw * xhat))`` with
    ``gw = grad * weight``; without a mean, its term is left out."""
    compute = compute_dtype(x.dtype)
    count = counted(x, inner)
    scales = [] if weight is None else [weight]
    means = [] if mean is None else [mean]

    def weighted(g: Expr, rest: Sequence[Expr]) -> Expr:
        return g * rest[0] if rest else g

    def with_normalized(g: Expr, x: Expr, rstd: Expr, *rest: Expr) -> Expr:
        mean_value = rest[0] if means else None
        return _times_normalized(weighted(g, rest[len(means) :]), x, rstd, mean_value)

    operands = [grad, x, rstd, *means, *scales]
    slope = sum_of(b, with_normalized, operands, inner, keepdim=True, dtype=compute, name="sum_gx")
    level = [
        sum_of(
            b, lambda g, *w: weighted(g, w), [grad, *scales], inner, keepdim=True, dtype=compute, name="sum_g"
        )
        for _ in means  # none without a mean
    ]

    def body(slope: Expr, g: Expr, x: Expr, rstd: Expr, *rest: Expr) -> Expr:
        n = count_value(count, compute)
        mean_value, sums, scale = (
            rest[: len(means)],
            rest[len(means) : 2 * len(means)],
            rest[2 * len(means) :],
        )
        normalized = (x - mean_value[0] if means else x) * rstd
        value = weighted(g, scale) - normalized * (slope / n)
        return (value - sums[0] / n if sums else value) * rstd

    return b.pointwise(
        body, slope, grad, x, rstd, *means, *level, *scales, compute=compute, name="grad_input"
    )


@lowering(overload("_fused_rms_norm"), samples=_row_samples(bias=False))
def rms_norm(
    b: Builder, x: View, shape: Sequence[Any], weight: Optional, eps: float | None
) -> tuple[View, View]:
    """``x * rstd * weight`` with ``rstd = 1 / sqrt(average(x**2) + eps)`` (Zhang and Sennrich, 2019), and
    ``rstd``. ``eps`` None is the machine epsilon of the type computed in, float32 for half types.
    LoweringError for integers."""
    inner, compute = _inner(x, shape), compute_dtype(x.dtype)
    if not compute.is_floating_point:
        raise LoweringError("the norm of integers")
    count = counted(x, inner)
    total = sum_of(b, lambda x: x * x, [x], inner, dtype=compute)
    rstd = reciprocal_deviation(b, total, count, torch.finfo(compute).eps if eps is None else eps)
    rstd = spread_out(rstd, x, inner)
    return normalized(b, x, None, rstd, weight, None), rounded(b, rstd, 1)


def _rms_norm_gradient(g: torch.Generator, x: Any, shape: Any, weight: Any, eps: float) -> Any:
    _, rstd = aten._fused_rms_norm(x, shape, weight, eps)
    return tensor(g, *x.shape, dtype=x.dtype), x, shape, rstd, weight, [True, weight is not None]


def _rms_norm_backward_by_torch(*args: Any) -> Any:
    """The gradient as torch's decomposition has it: there is no kernel for the CPU."""
    return torch._decomp.decomposition_table[overload("_fused_rms_norm_backward")](*args)


@lowering(
    overload("_fused_rms_norm_backward"),
    samples=_row_samples(bias=False, backward=_rms_norm_gradient),
    reference=_rms_norm_backward_by_torch,
)
def rms_norm_backward(
    b: Builder, grad: View, x: View, shape: Sequence[Any], rstd: View, weight: Optional, mask: Sequence[bool]
) -> tuple[Optional, Optional]:
    """Gradients of ``x`` and weight, those that ``mask`` asks for: those of :func:`layer_norm` with a mean of
    0 that does not depend on ``x``."""
    inner = _inner(x, shape)
    outer = [dim for dim in range(len(x.axes)) if dim not in inner]
    dx = _row_gradient(b, grad, x, None, rstd, weight, inner) if mask[0] else None
    dw = (
        sum_of(b, _times_normalized, [grad, x, rstd], outer, output=1, name="grad_weight")
        if mask[1]
        else None
    )
    return dx, dw


# -- groups of channels -------------------------------------------------------------------------


def _group_samples(backward: bool) -> list[Sample]:
    made: list[Sample] = []

    def add(
        name: str, shape: tuple[int, ...], groups: int, dtype: torch.dtype = torch.float32,
        affine: bool = True,
        last: bool = False,
    ) -> None:  # fmt: skip
        def make(g: torch.Generator) -> tuple[tuple[Any, ...], dict[str, Any]]:
            x = tensor(g, *shape, dtype=dtype)
            x = x.to(memory_format=torch.channels_last) if last else x
            n, c, hw = shape[0], shape[1], int(torch.tensor(shape[2:]).prod())
            weight = tensor(g, c, dtype=dtype) if affine else None
            bias = tensor(g, c, dtype=dtype) if affine else None
            if not backward:
                return (x, weight, bias, n, c, hw, groups, 1e-5), {}
            _, mean, rstd = aten.native_group_norm(x, weight, bias, n, c, hw, groups, 1e-5)
            grad = tensor(g, *shape, dtype=dtype)
            grad = grad.to(memory_format=torch.channels_last) if last else grad
            return (grad, x, mean, rstd, weight, n, c, hw, groups, [True, affine, affine]), {}

        made.append(Sample(name, make))

    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        add(str(dtype), (2, 6, 3, 4), 2, dtype)
    add("one group", (2, 6, 5), 1)
    add("a group a channel", (2, 4, 3, 3), 4)
    add("plain", (2, 6, 3, 4), 3, affine=False)
    add("channels last", (2, 6, 3, 4), 3, last=True)
    add("no spatial", (5, 6), 3)
    add("no spatial, plain", (5, 6), 1, affine=False)
    add("no spatial, a group a channel", (5, 6), 6, torch.float64)
    add("one point", (5, 6, 1, 1), 2)
    add("one image", (1, 6, 4), 2)
    return made


def _grouped(b: Builder, x: View, groups: int, channel: int) -> View:
    """``x`` with its dimension ``channel`` split in (groups, channels of a group)."""
    size = x.shape[channel] // groups
    shape = [*x.shape[:channel], b.size(groups), size, *x.shape[channel + 1 :]]

    def place(*where: IndexExpr) -> list[IndexExpr]:
        return [*where[:channel], where[channel] * size + where[channel + 1], *where[channel + 2 :]]

    return b.view(x, shape, place)


def _per_channel(b: Builder, item: View, x: View, groups: int) -> View:
    """A tensor of shape (N, groups) as one of shape (N, C, 1 ...) that broadcasts to ``x``."""
    channels = x.shape[1]
    size = channels // groups
    shape = [item.shape[0], channels, *[ONE] * (len(x.axes) - 2)]
    return b.view(item, shape, lambda n, c, *_: (n, c // size))


def _column(b: Builder, x: View, rank: int) -> View:
    """A tensor of shape (C,) as one of shape (C, 1 ...) that broadcasts along dimension 1 of ``rank``."""
    return b.view(x, [x.shape[0], *[ONE] * (rank - 2)], lambda c, *_: (c,))


def columns(b: Builder, rank: int, *items: Optional) -> list[Optional]:
    """Each of the tensors of shape (C,) as one that broadcasts along dimension 1 of ``rank``; None stays."""
    return [None if item is None else _column(b, item, rank) for item in items]


@lowering(aten.native_group_norm.default, samples=_group_samples(backward=False))
def group_norm(
    b: Builder, x: View, weight: Optional, bias: Optional, n: Any, c: Any, hw: Any, groups: int, eps: float
) -> tuple[View, View, View]:
    """Group norm (Wu and He, 2018): statistics of each image and group of channels, which are returned with
    the shape (N, groups). ``n``, ``c`` and ``hw`` are not read: ``x`` has them. LoweringError for
    integers."""
    rank = len(x.axes)
    split = _grouped(b, x, groups, 1)
    mean, square, count = moments(b, split, range(2, rank + 1))
    rstd = reciprocal_deviation(b, square, count, eps)
    scale, shift = columns(b, rank, weight, bias)
    spread = [_per_channel(b, item, x, groups) for item in (mean, rstd)]
    result = normalized(b, x, spread[0], spread[1], scale, shift)
    return result, rounded(b, mean, 1), rounded(b, rstd, 2)


@lowering(aten.native_group_norm_backward.default, samples=_group_samples(backward=True))
def group_norm_backward(
    b: Builder, grad: View, x: View, mean: View, rstd: View, weight: Optional, n: Any, c: Any, hw: Any,
    groups: int, mask: Sequence[bool],
) -> tuple[Optional, Optional, Optional]:  # fmt: skip
    """Gradients of ``x``, weight and bias, those that ``mask`` asks for. The sums over space for each image
    and channel serve all three."""
    rank, compute = len(x.axes), compute_dtype(x.dtype)
    means, deviations = (_per_channel(b, item, x, groups) for item in (mean, rstd))
    inner = range(2, rank)
    # per image and channel; the rest is small
    slope = sum_of(b, _times_normalized, [grad, x, deviations, means], inner, dtype=compute, name="sum_gx")
    level = sum_of(b, lambda g: g, [grad], inner, dtype=compute, name="sum_g")
    dx = dw = db = None
    if mask[0]:
        count = counted(x, inner) * (x.shape[1] // groups)
        sums = []
        for item in (slope, level):
            scales = [] if weight is None else [_grouped(b, weight, groups, 0)]
            total = sum_of(
                b, lambda s, *w: s * w[0] if w else s, [_grouped(b, item, groups, 1), *scales], [2],
                dtype=compute, name="group_sum",
            )  # fmt: skip
            sums.append(_per_channel(b, total, x, groups))
        column = [] if weight is None else [_column(b, weight, rank)]

        def body(g: Expr, x: Expr, mean: Expr, rstd: Expr, slope: Expr, level: Expr, *w: Expr) -> Expr:
            n = count_value(count, compute)
            scaled = g * w[0] if w else g
            return (scaled - (x - mean) * rstd * (slope / n) - level / n) * rstd

        dx = b.pointwise(body, grad, x, means, deviations, *sums, *column, compute=compute, name="grad_input")
    if mask[1]:
        dw = sum_of(b, lambda s: s, [slope], [0], output=1, name="grad_weight")
    if mask[2]:
        db = sum_of(b, lambda s: s, [level], [0], output=2, name="grad_bias")
    return dx, dw, db
