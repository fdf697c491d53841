"""Gradients of views: the gradient where the view looked, zero elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, Guarded, compute_dtype, constant
from nbcompile.compiler.loop_ir.index import ONE, ZERO, IndexExpr, at_least, floordiv, index, mod
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.operators.joining import Bound
from nbcompile.compiler.lower.operators.shape import first_index
from nbcompile.compiler.lower.registry import lowering
from nbcompile.compiler.lower.samples import call, calls
from nbcompile.compiler.lower.sizes_of_data import clipped

aten = torch.ops.aten


def _inside(
    b: Builder,
    grad: View,
    sizes: Sequence[Any],
    bounds: Callable[[tuple[IndexExpr, ...]], Sequence[Bound]],
    place: Callable[[tuple[IndexExpr, ...]], tuple[IndexExpr, ...]],
) -> View:
    """``grad[place(...)]`` where the bounds hold, else 0."""
    shape = tuple(b.size(size) for size in sizes)
    compute = compute_dtype(grad.dtype)

    def body(*where: IndexExpr) -> Expr:
        inside = b.element(grad, place(where), compute)
        return Guarded(tuple(bounds(where)), inside, constant(0, compute))

    return b.generate(shape, grad.dtype, body)


@lowering(
    aten.select_backward.default,
    samples=calls(
        first=lambda draw: call(draw(3, 5), [4, 3, 5], 0, 0),
        last=lambda draw: call(draw(4, 3), [4, 3, 5], 2, -1),
        half=lambda draw: call(draw(4, 5, dtype=torch.bfloat16), [4, 3, 5], 1, 1),
        empty=lambda draw: call(draw(0, 5), [0, 3, 5], 1, 1),
    ),
)
def select_backward(b: Builder, grad: View, sizes: Sequence[Any], dim: int, position: Any) -> View:
    """``grad`` at ``position`` along ``dim`` (negative: from the end), 0 elsewhere."""
    dim %= len(sizes)
    start = b.size(position)
    if b.sizes.is_of_data(start):
        start = clipped(b, start, b.size(sizes[dim]))  # forward has looked whether it is in range
    elif not at_least(start, index(0)):
        start = start + b.size(sizes[dim])
    return _inside(
        b, grad, sizes, lambda where: [(where[dim], start, start + 1)],
        lambda where: (*where[:dim], *where[dim + 1 :]),
    )  # fmt: skip


@lowering(
    aten.slice_backward.default,
    samples=calls(
        front=lambda draw: call(draw(2, 5), [4, 5], 0, 0, 2, 1),
        middle=lambda draw: call(draw(4, 3), [4, 7], 1, 2, 5, 1),
        negative=lambda draw: call(draw(4, 3), [4, 7], 1, -4, -1, 1),
        whole=lambda draw: call(draw(4, 7), [4, 7], 1, 0, 9223372036854775807, 1),
        half=lambda draw: call(draw(4, 3, dtype=torch.float16), [4, 7], -1, 4, 9223372036854775807, 1),
        before=lambda draw: call(draw(2, 7), [4, 7], 0, -100, 2, 1),
        all_before=lambda draw: call(draw(0, 7), [4, 7], 0, -100, -50, 1),
        behind=lambda draw: call(draw(4, 0), [4, 7], 1, 100, 200, 1),
        steps=lambda draw: call(draw(4, 3), [4, 9], 1, 2, 9, 3),
        steps_from_one=lambda draw: call(draw(4, 5), [9, 5], 0, 1, 9223372036854775807, 2),
        steps_not_to_the_end=lambda draw: call(draw(3, 5), [11, 5], 0, 3, 10, 3),
        steps_before_start=lambda draw: call(draw(2, 2), [9, 2], 0, 5, 9, 2),
        steps_from_the_end=lambda draw: call(draw(4, 2, dtype=torch.bfloat16), [4, 9], -1, -4, -1, 2),
        steps_to_none=lambda draw: call(draw(4, 0), [4, 9], 1, 9, 9, 2),
    ),
)
def slice_backward(
    b: Builder, grad: View, sizes: Sequence[Any], dim: int, start: Any, end: Any, step: Any
) -> View:
    """``grad`` at every ``step``-th place from ``start`` on along ``dim``, 0 elsewhere."""
    dim %= len(sizes)
    extent = b.size(sizes[dim])
    of_data = b.sizes.is_of_data(b.size(0 if start is None else start))
    # may be before the beginning: x[-100:]
    first = clipped(b, start, extent) if of_data else first_index(b, start, extent)
    pace, count = b.size(step), grad.shape[dim]
    # so many steps fit before the start: with them no numerator is negative
    earlier = floordiv(first + pace - 1, pace)

    def place(where: tuple[IndexExpr, ...]) -> tuple[IndexExpr, ...]:
        shifted = where[dim] - first + earlier * pace
        return (*where[:dim], floordiv(shifted, pace) - earlier, *where[dim + 1 :])

    def inside(where: tuple[IndexExpr, ...]) -> list[Bound]:
        at = where[dim]
        bounds: list[Bound] = [(at, first, first + (count - 1) * pace + 1)]
        if pace != ONE:
            bounds.append((mod(at - first + earlier * pace, pace), ZERO, ONE))
        return bounds

    return _inside(b, grad, sizes, inside, place)
