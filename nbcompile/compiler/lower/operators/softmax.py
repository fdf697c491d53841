"""Softmax and its kin, written as the loops a person would write: maximum, exponentials, sum, result.

The exponentials are a loop of their own so that a kernel may keep them on chip instead of computing
them twice; fusion decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, compute_dtype, op, where
from nbcompile.compiler.loop_ir.index import ZERO
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.operators.reductions import fold, spread_out
from nbcompile.compiler.lower.registry import Sample, lowering, overload
from nbcompile.compiler.lower.samples import tensor

aten = torch.ops.aten

_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def _draws(special: bool) -> list[tuple[str, Any]]:
    """Inputs by name: each dtype, then awkward values and memory; the dim to use is 1."""

    def masked(g: torch.Generator) -> torch.Tensor:
        x = tensor(g, 4, 6, 5)
        x[0, 2] = x[1, :, 3] = -torch.inf  # some of a row, and a whole one
        x[2, :, 0] = 80.0
        x[3, 1, 1], x[3, 1, 2] = torch.inf, torch.nan
        return x

    draws: list[tuple[str, Any]] = [
        (str(dtype), lambda g, dtype=dtype: tensor(g, 3, 7, 5, dtype=dtype)) for dtype in _FLOATS
    ]
    draws += [
        ("transposed", lambda g: tensor(g, 5, 7, 3).transpose(0, 2)),
        ("strided", lambda g: tensor(g, 3, 14, 9)[:, ::2, 1:6]),
        ("expanded", lambda g: tensor(g, 1, 7, 1).expand(3, 7, 5)),
        ("one", lambda g: tensor(g, 3, 1, 5)),
        ("empty", lambda g: tensor(g, 3, 0, 5)),
        ("empty-outer", lambda g: tensor(g, 0, 3, 5)),
    ]
    if special:
        draws += [("far", lambda g: tensor(g, 3, 7, 5) + 500)]
        draws += [("special", lambda g: tensor(g, 3, 7, 5, special=True)), ("masked", masked)]
    return draws


def _forward_samples() -> list[Sample]:
    made = [Sample(name, lambda g, draw=draw: ((draw(g), 1, False), {})) for name, draw in _draws(True)]  # type: ignore[misc]
    made += [
        Sample(f"dim{dim}", lambda g, dim=dim: ((tensor(g, 3, 4, 5), dim, False), {}))  # type: ignore[misc]
        for dim in (0, -1, 2, -3)
    ]
    made.append(Sample("0-d", lambda g: ((tensor(g), 0, False), {})))
    return made


def _backward_samples(log: bool) -> list[Sample]:
    def call(x: torch.Tensor, dim: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        y = torch.log_softmax(x, dim) if log else torch.softmax(x, dim)
        return (x.flip(0) * 2 + 1, y, dim, x.dtype), {}

    made = [Sample(name, lambda g, draw=draw: call(draw(g), 1)) for name, draw in _draws(False)]  # type: ignore[misc]
    made += [Sample(f"dim{dim}", lambda g, dim=dim: call(tensor(g, 3, 4, 5), dim)) for dim in (0, -1)]  # type: ignore[misc]
    made.append(Sample("0-d", lambda g: ((tensor(g), tensor(g), 0, torch.float32), {})))
    return made


def _is_empty(x: View) -> bool:
    return any(extent == ZERO for extent in x.shape)


def _exponentials(
    b: Builder, x: View, dim: int, compute: torch.dtype, finite: Callable[[Expr], Expr] = lambda top: top
) -> tuple[View, View, View]:
    """The maximum of each row, the exponentials of its elements less ``finite`` of that, and their sum."""
    top = fold(b, "max", x, dim, keepdim=True, dtype=compute, name="max")
    exps = b.pointwise(lambda x, top: op("exp", x - finite(top)), x, top, dtype=compute, name="exp")
    return top, exps, fold(b, "sum", exps, dim, keepdim=True, dtype=compute, name="sum")


@lowering(aten._softmax.default, samples=_forward_samples())
def softmax(b: Builder, x: View, dim: int, half_to_float: bool) -> View:
    """``exp(x - max(x)) / sum(exp(x - max(x)))`` along ``dim``; half types in float32, and NaN for a row of
    only -inf."""
    if _is_empty(x):
        return b.pointwise(lambda x: x, x)
    _, exps, total = _exponentials(b, x, dim, compute_dtype(x.dtype))
    return b.pointwise(lambda e, total: e / total, exps, total)


@lowering(
    overload("_safe_softmax"),
    samples=[Sample(name, lambda g, draw=draw: ((draw(g), 1), {})) for name, draw in _draws(True)],  # type: ignore[misc]
)
def safe_softmax(b: Builder, x: View, dim: int, dtype: torch.dtype | None = None) -> View:
    """Softmax in which a row of only -inf gives zeros."""
    if _is_empty(x):
        return b.pointwise(lambda x: x, x)
    compute = compute_dtype(b.result_dtype())
    _, exps, total = _exponentials(b, x, dim, compute, lambda top: where(top.eq(-torch.inf), 0.0, top))
    # a row that has anything but -inf has a term exp(0)
    return b.pointwise(lambda e, total: where(total.eq(0), 0.0, e / total), exps, total)


@lowering(aten._log_softmax.default, samples=_forward_samples())
def log_softmax(b: Builder, x: View, dim: int, half_to_float: bool) -> View:
    """``x - max(x) - log(sum(exp(x - max(x))))`` along ``dim``; a row of only -inf gives NaN."""
    if _is_empty(x):
        return b.pointwise(lambda x: x, x)
    compute = compute_dtype(x.dtype)
    top, _, total = _exponentials(b, x, dim, compute)
    return b.pointwise(lambda x, top, total: x - top - op("log", total), x, top, total, compute=compute)


@lowering(
    aten.logsumexp.default,
    samples=[
        *(
            Sample(name, lambda g, draw=draw: ((draw(g), [1]), {}))  # type: ignore[misc]
            for name, draw in _draws(True)
            if name != "empty"
        ),
        Sample("several", lambda g: ((tensor(g, 3, 4, 5), [0, -1], True), {})),
        Sample("int64", lambda g: ((tensor(g, 3, 4, 5, dtype=torch.int64), [1]), {})),
        Sample("0-d", lambda g: ((tensor(g), [0]), {})),
    ],
)
def logsumexp(b: Builder, x: View, dims: Sequence[int], keepdim: bool = False) -> View:
    """``log(sum(exp(x)))`` over ``dims``, with a finite maximum taken out first: no overflow. A row of only
    -inf gives -inf."""
    compute = compute_dtype(b.result_dtype())
    top = fold(b, "max", x, dims, dtype=compute, name="max")
    # infinite maxima are left out of the difference: inf - inf would be NaN
    finite = b.pointwise(lambda top: where(op("isinf", top), 0.0, top), top, dtype=compute, name="finite_max")
    each = spread_out(finite, x, dims)
    exps = b.pointwise(lambda x, top: op("exp", x - top), x, each, dtype=compute, name="exp")
    total = fold(b, "sum", exps, dims, dtype=compute, name="sum")
    result = b.pointwise(lambda total, top: op("log", total) + top, total, finite)
    return spread_out(result, x, dims, keepdim)


@lowering(aten._softmax_backward_data.default, samples=_backward_samples(log=False))
def softmax_backward(b: Builder, grad: View, output: View, dim: int, input_dtype: torch.dtype) -> View:
    """``(grad - sum(grad * output)) * output`` along ``dim``."""
    compute = compute_dtype(grad.dtype)
    product = b.pointwise(lambda g, y: g * y, grad, output, dtype=compute, name="product")
    total = fold(b, "sum", product, dim, keepdim=True, dtype=compute, name="sum")
    return b.pointwise(lambda g, y, total: (g - total) * y, grad, output, total, compute=compute)


@lowering(aten._log_softmax_backward_data.default, samples=_backward_samples(log=True))
def log_softmax_backward(b: Builder, grad: View, output: View, dim: int, input_dtype: torch.dtype) -> View:
    """``grad - exp(output) * sum(grad)`` along ``dim``."""
    compute = compute_dtype(grad.dtype)
    total = fold(b, "sum", grad, dim, keepdim=True, dtype=compute, name="sum")
    return b.pointwise(lambda g, y, total: g - op("exp", y) * total, grad, output, total, compute=compute)
