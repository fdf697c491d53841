"""Convolutions of few channels by small filters, on a CPU: edges, blurs, stencils, filters of a signal, and
those with a filter of its own for each channel (depthwise). oneDNN's algorithms are made for many channels:
of one it computes with vectors that are empty but for a lane, and takes up to 70 times the time of the plain
loop, which is also one with what is around it."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import HALF, MOST_CUT, Expr
from nbcompile.compiler.loop_ir.index import ONE, ZERO, Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder, at
from nbcompile.compiler.lower.operators.pooling import Windows, bounds, guarded
from nbcompile.compiler.small_filters import MOST_RESULTS, MOST_TERMS, is_small

convolution = torch.ops.aten.convolution.default
convolution_backward = torch.ops.aten.convolution_backward.default


def small_convolution(b: Builder, target: Any, args: Sequence[Any], kwargs: Any) -> View | None:
    """``convolution(x, weight, bias)`` with its window written out in one loop over the results. None where
    that gains nothing, or sizes are symbols."""
    if target is not convolution or b.options.chip.is_gpu or kwargs or not args[0].dtype.is_floating_point:
        return None
    x, weight, bias, stride, padding, dilation, transposed, _, groups = args
    images, sizes = ([extent.constant for extent in each.shape] for each in (x, weight))
    if not is_small(images, sizes, groups, transposed) or _innermost(x):
        return None
    if not _is_known(*stride, *padding, *dilation):
        return None
    channels, of_a_group = sizes[1] or 0, (sizes[0] or 0) // groups
    windows, x = _windows(b, x, weight, stride, padding, dilation, channels)

    def body(image: IndexExpr, result: IndexExpr, *place: IndexExpr) -> Expr:
        first = ZERO if groups == 1 else (result // index(of_a_group)) * channels

        def scale(channel: int, offsets: Sequence[int]) -> Expr:
            return b.element(weight, (result, index(channel), *map(index, offsets)))

        total = _summed(b, x, windows, image, [first + n for n in range(channels)], place, scale)
        return total + b.element(bias, (result,)) if bias is not None else total

    return b.generate(b.result_shape(), b.result_dtype(), body)


def _is_known(*numbers: Any) -> bool:
    """Whether none of them is a symbol: with ``dynamic=True`` steps and paddings are, too."""
    return all(isinstance(each, int) for each in numbers)


def small_convolution_backward(b: Builder, target: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """``convolution_backward(grad, x, weight)`` in loops: a gradient of the image that is a small convolution
    again, by the window turned round, and of each of the weight's elements a sum. None where that gains
    nothing, or the window goes by steps."""
    if target is not convolution_backward or b.options.chip.is_gpu or kwargs:
        return None
    grad, x, weight, _, stride, padding, dilation, transposed, _, groups, wanted = args
    rank = len(weight.shape) - 2
    images, sizes = ([extent.constant for extent in each.shape] for each in (x, weight))
    outer, inner, *window = [size or 0 for size in sizes]
    if not _is_known(*stride, *padding, *dilation):
        return None
    padding, dilation = (padding * rank)[:rank], (dilation * rank)[:rank]
    around = [step * (size - 1) - more for step, size, more in zip(dilation, window, padding, strict=True)]
    turned = (inner * groups, outer // max(groups, 1), *window)  # the weight, as the gradient sees it
    if (
        not (is_small(images, sizes, groups, transposed) and is_small(images, turned, groups, transposed))
        or any(step != 1 for step in stride)
        or (wanted[1] and rank > 1 and outer > MOST_RESULTS)  # that oneDNN does well
        or min(around) < 0
        or not x.dtype.is_floating_point
        or any(map(_innermost, (grad, x)))
    ):
        return None
    of_image = _of_image(b, grad, weight, around, dilation, groups) if wanted[0] else None
    of_weight = _of_weight(b, grad, x, padding, dilation, groups) if wanted[1] else None
    return of_image, of_weight, _of_bias(b, grad) if wanted[2] else None


def _of_image(
    b: Builder, grad: View, weight: View, around: Sequence[int], dilation: Sequence[int], groups: int
) -> View:
    outer, inner, *window = [extent.constant or 0 for extent in weight.shape]
    of_a_group = outer // groups
    windows, grad = _windows(b, grad, weight, 1, around, dilation, of_a_group)

    def body(image: IndexExpr, channel: IndexExpr, *place: IndexExpr) -> Expr:
        group = ZERO if groups == 1 else channel // index(inner)
        results = [group * of_a_group + n for n in range(of_a_group)]

        def scale(n: int, offsets: Sequence[int]) -> Expr:
            turned = (index(size - 1 - offset) for size, offset in zip(window, offsets, strict=True))
            return b.element(weight, (results[n], channel - group * inner, *turned))

        return _summed(b, grad, windows, image, results, place, scale)

    return b.generate(b.result_shape(0), b.result_dtype(0), body, output=0)


def _windows(
    b: Builder, x: View, weight: View, stride: Any, padding: Sequence[int], dilation: Any, channels: int
) -> tuple[Windows, View]:
    """The windows that each result is made of ``channels`` of, and what they are over: ``x`` with its padding
    laid out, where they are many."""
    window = [extent.constant or 0 for extent in weight.shape[2:]]
    if any(padding) and channels * math.prod(window) > MOST_CUT:
        x, padding = _padded(b, x, (list(padding) * len(window))[: len(window)]), [0]
    return Windows.of(b, x, b.result_shape(), len(window), window, stride, padding, dilation), x


def _summed(
    b: Builder, x: View, windows: Windows, image: IndexExpr, channels: Sequence[IndexExpr],
    place: tuple[IndexExpr, ...], scale: Callable[[int, Sequence[int]], Expr],
) -> Expr:  # fmt: skip
    """The sum of what the window at ``place`` has of ``channels``, each times its ``scale``."""
    terms = []
    for n, channel in enumerate(channels):
        offsets = itertools.product(*map(range, windows.kernel))
        for (source, inside), offset in zip(windows.members(place, MOST_TERMS), offsets, strict=True):
            term = b.element(x, (image, channel, *source))
            terms.append(guarded(inside, functools.partial(operator.mul, term, scale(n, offset)), 0.0))
    return functools.reduce(operator.add, terms)


def _of_weight(
    b: Builder, grad: View, x: View, padding: Sequence[int], dilation: Sequence[int], groups: int
) -> View:
    if any(padding):
        x = _padded(b, x, padding)
    shape, rank = b.result_shape(1), len(padding)
    axes = b.axes((*shape, grad.shape[0], *grad.shape[2:]))
    result, channel, *where = at(axes)
    offsets, image, places = where[:rank], where[rank], where[rank + 1 :]
    group = ZERO if groups == 1 else result // (shape[0] // index(groups))
    source = (place + offset * step for place, offset, step in zip(places, offsets, dilation, strict=True))
    read = b.element(x, (image, group * shape[1] + channel, *source))
    return _total(b, axes, rank + 2, b.element(grad, (image, result, *places)) * read, x.dtype)


def _of_bias(b: Builder, grad: View) -> View:
    axes = b.axes((grad.shape[1], grad.shape[0], *grad.shape[2:]))
    result, image, *places = at(axes)
    return _total(b, axes, 1, b.element(grad, (image, result, *places)), grad.dtype)


def _total(b: Builder, axes: Sequence[Axis], kept: int, body: Expr, dtype: torch.dtype) -> View:
    """The sum of ``body`` over all axes but the first ``kept``."""
    total = b.total(axes[:kept], axes[kept:], body)
    return b.copy(total, dtype) if dtype in HALF else total


def _innermost(x: View) -> bool:
    """Whether several channels of images lie innermost in memory: then oneDNN has its vectors. Of signals it
    turns the memory first, which takes up to ten times the time of the loop."""
    found = x.strided()
    return len(x.shape) > 3 and x.shape[1] != ONE and (found is None or found[0][1] == ONE)


def _padded(b: Builder, x: View, padding: Sequence[int]) -> View:
    """``x`` with zeros around it."""
    inner = x.shape[2:]
    shape = (*x.shape[:2], *(extent + 2 * more for extent, more in zip(inner, padding, strict=True)))

    def body(image: IndexExpr, channel: IndexExpr, *place: IndexExpr) -> Expr:
        source = tuple(each - more for each, more in zip(place, padding, strict=True))
        return guarded(bounds(source, inner), lambda: b.element(x, (image, channel, *source)), 0.0)

    return b.generate(shape, x.dtype, body, name="padded")
