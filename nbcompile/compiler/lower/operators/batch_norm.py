"""Batch normalization and its gradient: statistics of each channel over the batch and space.

The operators differ in what they return beside the result: statistics for the backward pass (empty on
the CPU unless training), new running statistics, a reserve for cuDNN (empty here).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, compute_dtype, constant, op
from nbcompile.compiler.loop_ir.index import ONE, ZERO, IndexExpr
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.operators.norms import (
    Optional,
    columns,
    normalized,
    reciprocal_deviation,
    rounded,
    sum_of,
)
from nbcompile.compiler.lower.operators.reductions import count_value, counted, moments
from nbcompile.compiler.lower.registry import Sample, lowering, overload
from nbcompile.compiler.lower.samples import tensor
from nbcompile.errors import LoweringError

aten = torch.ops.aten


def _batch_arguments(
    g: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype, affine: bool, last: bool
) -> tuple[torch.Tensor, list[Any], list[torch.Tensor]]:
    """x, [weight, bias], [running_mean, running_var]."""
    x = tensor(g, *shape, dtype=dtype)
    x = x.to(memory_format=torch.channels_last) if last else x
    scales = [tensor(g, shape[1], dtype=dtype) if affine else None for _ in range(2)]
    return x, scales, [tensor(g, shape[1], dtype=dtype), tensor(g, shape[1], dtype=dtype).abs() + 0.1]


def _batch_samples(
    call: Callable[..., tuple[Any, ...]], dtypes: Sequence[torch.dtype] = (torch.float32, torch.float64)
) -> list[Sample]:
    """Samples whose arguments ``call(g, x, [weight, bias], [running_mean, running_var])`` makes."""
    made: list[Sample] = []

    def add(
        name: str,
        shape: tuple[int, ...],
        dtype: torch.dtype = torch.float32,
        affine: bool = True,
        last: bool = False,
    ) -> None:
        made.append(Sample(name, lambda g: (call(g, *_batch_arguments(g, shape, dtype, affine, last)), {})))

    for dtype in dtypes:
        add(str(dtype), (3, 4, 2, 5), dtype)
    add("plain", (3, 4, 5), affine=False)
    add("2-d", (6, 4))
    add("channels last", (2, 4, 3, 5), last=True)
    return made


def _with_weight(samples: Sequence[Sample]) -> list[Sample]:
    """The samples that have a weight: some operators want one."""
    return [sample for sample in samples if sample.name != "plain"]


def _batch_dims(x: View) -> tuple[int, ...]:
    return (0, *range(2, len(x.axes)))


def _batch_statistics(
    b: Builder, x: View, running_mean: Optional, running_var: Optional, training: bool, eps: float
) -> tuple[View, View, Optional, IndexExpr]:
    """Mean and rstd per channel, and with ``training`` the sum of squared deviations; the count."""
    if training:
        mean, square, count = moments(b, x, _batch_dims(x))
        return mean, reciprocal_deviation(b, square, count, eps), square, count
    if running_mean is None or running_var is None:
        raise LoweringError("batch norm without running statistics")
    compute = compute_dtype(x.dtype)
    mean = b.pointwise(lambda m: m, running_mean, dtype=compute, name="mean")
    rstd = b.pointwise(lambda v: 1.0 / op("sqrt", v + eps), running_var, dtype=compute, name="rstd")
    return mean, rstd, None, ONE


def _saved(b: Builder, x: View, training: bool, output: int) -> View:
    """A statistic as returned for the backward pass: on the CPU an empty tensor unless training."""
    if training or b.result_shape(output) != (ZERO,):
        return rounded(b, x, output)
    return _empty(b, output)


def _empty(b: Builder, output: int) -> View:
    """A tensor of shape (0,), the node's result number ``output``."""
    dtype = b.result_dtype(output)
    return b.generate((ZERO,), dtype, lambda *_: constant(0, dtype), name="saved", output=output)


def _batch_norm(b: Builder, x: View, weight: Optional, bias: Optional, mean: View, rstd: View) -> View:
    spread = columns(b, len(x.axes), mean, rstd, weight, bias)
    assert spread[1] is not None
    return normalized(b, x, spread[0], spread[1], spread[2], spread[3])


def _moved(
    b: Builder, old: View, new: Callable[[Expr], Expr], now: View, momentum: float, output: int
) -> View:
    """The running statistic ``momentum * new(now) + (1 - momentum) * old``."""
    return b.pointwise(
        lambda now, old: new(now) * momentum + old * (1 - momentum), now, old,
        dtype=b.result_dtype(output), compute=now.dtype, output=output, name="running",
    )  # fmt: skip


def _running(
    b: Builder, mean: View, square: Optional, count: IndexExpr, running: tuple[View, View], momentum: float,
    first: int,
) -> tuple[View, View]:  # fmt: skip
    """New running mean and (unbiased) variance, the node's results ``first`` and ``first + 1``."""
    if square is None:  # not training: unchanged
        return rounded(b, running[0], first), rounded(b, running[1], first + 1)
    less = count_value(count, square.dtype, 1)
    return (
        _moved(b, running[0], lambda m: m, mean, momentum, first),
        _moved(b, running[1], lambda s: s / less, square, momentum, first + 1),
    )


_TRAINING = _batch_samples(lambda g, x, scales, running: (x, *scales, *running, True, 0.1, 1e-5))
_EVALUATING = _batch_samples(lambda g, x, scales, running: (x, *scales, *running, False, 0.1, 1e-5))
_UPDATING = _batch_samples(lambda g, x, scales, running: (x, *scales, *running, 0.1, 1e-5))


@lowering(aten._native_batch_norm_legit_functional.default, samples=_TRAINING + _EVALUATING)
def batch_norm_functional(
    b: Builder, x: View, weight: Optional, bias: Optional, running_mean: View, running_var: View,
    training: bool, momentum: float, eps: float,
) -> tuple[View, ...]:  # fmt: skip
    """Batch norm (Ioffe and Szegedy, 2015) by the statistics of the batch if ``training``, else by the
    running ones. Last it returns the new running ones, ``momentum * now + (1 - momentum) * old`` with the
    unbiased variance; unless ``training``, as they were."""
    mean, rstd, square, count = _batch_statistics(b, x, running_mean, running_var, training, eps)
    return (
        _batch_norm(b, x, weight, bias, mean, rstd),
        _saved(b, mean, training, 1),
        _saved(b, rstd, training, 2),
        *_running(b, mean, square, count, (running_mean, running_var), momentum, 3),
    )


@lowering(
    overload("_batch_norm_with_update_functional"),
    samples=_with_weight(_UPDATING),
)
def batch_norm_with_update(
    b: Builder, x: View, weight: Optional, bias: Optional, running_mean: View, running_var: View,
    momentum: float, eps: float,
) -> tuple[View, ...]:  # fmt: skip
    """As :func:`batch_norm_functional` in training, with an empty reserve before the running statistics."""
    mean, rstd, square, count = _batch_statistics(b, x, running_mean, running_var, True, eps)
    return (
        _batch_norm(b, x, weight, bias, mean, rstd),
        _saved(b, mean, True, 1),
        _saved(b, rstd, True, 2),
        _empty(b, 3),
        *_running(b, mean, square, count, (running_mean, running_var), momentum, 4),
    )


@lowering(
    overload("_batch_norm_no_update"),
    samples=_with_weight(_UPDATING),
)
def batch_norm_no_update(
    b: Builder, x: View, weight: Optional, bias: Optional, running_mean: View, running_var: View,
    momentum: float, eps: float,
) -> tuple[View, ...]:  # fmt: skip
    """As :func:`batch_norm_inference`, with an empty reserve at the end."""
    return *batch_norm_inference(b, x, weight, bias, running_mean, running_var, momentum, eps), _empty(b, 3)


@lowering(
    aten._native_batch_norm_legit_no_training.default,
    samples=_UPDATING,
)
def batch_norm_inference(
    b: Builder, x: View, weight: Optional, bias: Optional, running_mean: View, running_var: View,
    momentum: float, eps: float,
) -> tuple[View, ...]:  # fmt: skip
    """``x`` normalized by the running statistics. LoweringError if there are none."""
    mean, rstd, _, _ = _batch_statistics(b, x, running_mean, running_var, False, eps)
    result = _batch_norm(b, x, weight, bias, mean, rstd)
    return result, _saved(b, mean, False, 1), _saved(b, rstd, False, 2)


@lowering(
    aten._native_batch_norm_legit.no_stats,
    samples=_batch_samples(lambda g, x, scales, running: (x, *scales, True, 0.1, 1e-5)),
)
def batch_norm_no_stats(
    b: Builder, x: View, weight: Optional, bias: Optional, training: bool, momentum: float, eps: float
) -> tuple[View, ...]:
    """``x`` normalized by the statistics of the batch, which are returned. LoweringError unless ``training``:
    there is nothing else to normalize by."""
    mean, rstd, _, _ = _batch_statistics(b, x, None, None, training, eps)
    return _batch_norm(b, x, weight, bias, mean, rstd), rounded(b, mean, 1), rounded(b, rstd, 2)


def _gradient_samples(train: bool) -> list[Sample]:
    def call(
        g: torch.Generator, x: torch.Tensor, scales: list[Any], running: list[torch.Tensor]
    ) -> tuple[Any, ...]:
        _, mean, rstd = aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5)
        weight = scales[0]
        mask = [True, weight is not None, weight is not None]
        return tensor(g, *x.shape, dtype=x.dtype), x, weight, *running, mean, rstd, train, 1e-5, mask

    return _batch_samples(call)


@lowering(aten.native_batch_norm_backward.default, samples=_gradient_samples(True) + _gradient_samples(False))
def batch_norm_backward(
    b: Builder, grad: View, x: View, weight: Optional, running_mean: Optional, running_var: Optional,
    save_mean: Optional, save_rstd: Optional, train: bool, eps: float, mask: Sequence[bool],
) -> tuple[Optional, Optional, Optional]:  # fmt: skip
    """Gradients of ``x``, weight and bias, those that ``mask`` asks for. With ``xhat = (x - mean) * rstd``
    and averages over each channel the first is
    ``(grad - xhat * average(grad * xhat) - average(grad)) * rstd * weight`` if ``train``, else
    ``grad * rstd * weight``. LoweringError without the statistics to do it by."""
    compute, dims = compute_dtype(x.dtype), _batch_dims(x)
    mean, rstd = save_mean, save_rstd
    if not train:
        mean, rstd, _, _ = _batch_statistics(b, x, running_mean, running_var, False, eps)
    if mean is None or rstd is None:
        raise LoweringError("the gradient of batch norm without saved statistics")
    means, deviations, scale = columns(b, len(x.axes), mean, rstd, weight)
    assert means is not None and deviations is not None
    count = counted(x, dims)
    slope = sum_of(
        b, lambda g, x, mean, rstd: g * ((x - mean) * rstd), [grad, x, means, deviations], dims,
        dtype=compute, name="sum_gx",
    )  # fmt: skip
    level = sum_of(b, lambda g: g, [grad], dims, dtype=compute, name="sum_g")
    slopes, levels = columns(b, len(x.axes), slope, level)
    assert slopes is not None and levels is not None

    def body(g: Expr, x: Expr, mean: Expr, rstd: Expr, slope: Expr, level: Expr, *w: Expr) -> Expr:
        n = count_value(count, compute)
        value = g - (x - mean) * rstd * (slope / n) - level / n if train else g
        return value * (rstd * w[0] if w else rstd)

    dx = None
    if mask[0]:
        scales = [] if scale is None else [scale]
        dx = b.pointwise(
            body, grad, x, means, deviations, slopes, levels, *scales, compute=compute, name="grad_input"
        )
    return dx, rounded(b, slope, 1) if mask[1] else None, rounded(b, level, 2) if mask[2] else None


def _reserve_samples() -> list[Sample]:
    def with_reserve(sample: Sample) -> Sample:
        def make(g: torch.Generator) -> tuple[tuple[Any, ...], dict[str, Any]]:
            args, kwargs = sample.make(g)
            return (*args, torch.empty(0, dtype=torch.uint8)), kwargs

        return Sample(sample.name, make)

    return [with_reserve(sample) for sample in _with_weight(_gradient_samples(True))]


@lowering(overload("batch_norm_backward"), samples=_reserve_samples())
def batch_norm_backward_with_reserve(
    b: Builder, grad: View, x: View, weight: Optional, running_mean: Optional, running_var: Optional,
    save_mean: Optional, save_rstd: Optional, update: bool, eps: float, mask: Sequence[bool], reserve: View,
) -> tuple[Optional, Optional, Optional]:  # fmt: skip
    """:func:`batch_norm_backward` with cuDNN's reserve as one more argument, which is not read."""
    result: tuple[Optional, Optional, Optional] = batch_norm_backward(
        b, grad, x, weight, running_mean, running_var, save_mean, save_rstd, update, eps, mask
    )
    return result
