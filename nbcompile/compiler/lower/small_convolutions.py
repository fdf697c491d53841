"""Convolutions of few channels by small filters, on a CPU: edges, blurs, stencils, filters of a signal, and
those with a filter of its own for each channel (depthwise). oneDNN's algorithms are made for many channels:
of one it computes with vectors that are empty but for a lane, and takes up to 70 times the time of the plain
loop, which is also one with what is around it."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr
from nbcompile.compiler.loop_ir.index import ONE, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.operators.pooling import Windows, guarded

convolution = torch.ops.aten.convolution.default
MOST_TERMS = 121
"""Products that are added up for one result: a window of 11 by 11, or 5 by 5 of the three colours."""
MOST_OF_MANY = 9
"""The same where results have so many channels that oneDNN has vectors of them: a window of 3 by 3."""
MOST_GUARDED = 9
"""Of a larger window the image is laid out with its padding first: a loop that is cut where some of so many
places are outside of it has too many pieces."""
MOST_CHANNELS = 4
"""Channels that a result is made of."""
MOST_RESULTS = 8
"""Results that are made of the same channels: each reads the whole window again."""


def is_small(images: Sequence[Any], weight: Sequence[Any], groups: Any, transposed: bool) -> bool:
    """Whether a convolution of these sizes, the weight's being (results, channels of a group, window), is
    written out: no size is a symbol, none is 0, and a result is made of few numbers."""
    if transposed or not all(isinstance(size, int) and size for size in (*images, *weight, groups)):
        return False
    results, channels, *window = weight
    most = MOST_TERMS if results <= MOST_RESULTS else MOST_OF_MANY
    few = channels <= MOST_CHANNELS and channels * (results // groups) <= MOST_RESULTS
    return bool(few and channels * math.prod(window) <= most)


def small_convolution(b: Builder, target: Any, args: Sequence[Any], kwargs: Any) -> View | None:
    """``convolution(x, weight, bias)`` with its window written out in one loop over the results. None where
    that gains nothing, or sizes are symbols."""
    if target is not convolution or b.options.chip.is_gpu or kwargs or not args[0].dtype.is_floating_point:
        return None
    x, weight, bias, stride, padding, dilation, transposed, _, groups = args
    images, sizes = ([extent.constant for extent in each.shape] for each in (x, weight))
    if not is_small(images, sizes, groups, transposed) or _innermost(x):
        return None
    rank, window = len(sizes) - 2, [size or 0 for size in sizes[2:]]
    if any(padding) and math.prod(sizes[1:]) > MOST_GUARDED:
        x, padding = _padded(b, x, (padding * rank)[:rank]), [0]
    windows = Windows.of(b, x, b.result_shape(), rank, window, stride, padding, dilation)
    channels, of_a_group = sizes[1] or 0, (sizes[0] or 0) // groups

    def body(image: IndexExpr, result: IndexExpr, *place: IndexExpr) -> Expr:
        first = result if of_a_group == 1 else result // index(of_a_group)
        terms = []
        for channel in range(channels):
            of = first * channels + channel if groups > 1 else index(channel)
            for number, (source, inside) in enumerate(windows.members(place, MOST_TERMS)):
                offsets = [index(n) for n in _unravelled(number, window)]
                term = b.element(x, (image, of, *source))
                scale = b.element(weight, (result, index(channel), *offsets))
                terms.append(guarded(inside, functools.partial(operator.mul, term, scale), 0.0))
        total = functools.reduce(operator.add, terms)
        return total + b.element(bias, (result,)) if bias is not None else total

    return b.generate(b.result_shape(), b.result_dtype(), body)


def _innermost(x: View) -> bool:
    """Whether several channels lie innermost in memory: then oneDNN has its vectors."""
    found = x.strided()
    return x.shape[1] != ONE and (found is None or found[0][1] == ONE)


def _padded(b: Builder, x: View, padding: Sequence[int]) -> View:
    """``x`` with zeros around it."""
    inner = x.shape[2:]
    shape = (*x.shape[:2], *(extent + 2 * more for extent, more in zip(inner, padding, strict=True)))

    def body(image: IndexExpr, channel: IndexExpr, *place: IndexExpr) -> Expr:
        source = tuple(each - more for each, more in zip(place, padding, strict=True))
        bounds = tuple((each, index(0), extent) for each, extent in zip(source, inner, strict=True))
        return guarded(bounds, lambda: b.element(x, (image, channel, *source)), 0.0)

    return b.generate(shape, x.dtype, body, name="padded")


def _unravelled(number: int, shape: Sequence[int]) -> list[int]:
    """The place of element ``number`` of a window, in row-major order."""
    places = []
    for size in reversed(shape):
        number, place = divmod(number, size)
        places.append(place)
    return places[::-1]
