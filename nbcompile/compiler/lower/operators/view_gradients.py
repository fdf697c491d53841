"""Gradients of views: the gradient where the view looked, zero elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, Guarded, compute_dtype, constant
from nbcompile.compiler.loop_ir.index import IndexExpr, at_least, index
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.operators.shape import first_index
from nbcompile.compiler.lower.registry import lowering
from nbcompile.compiler.lower.samples import call, calls
from nbcompile.errors import LoweringError

aten = torch.ops.aten


def _inside(
    b: Builder, grad: View, sizes: Sequence[Any], low: tuple[int, IndexExpr, IndexExpr], place: Any
) -> View:
    """``grad[place(...)]`` where axis ``low[0]`` is in ``[low[1], low[2])``, else 0."""
    dim, start, end = low
    shape = tuple(b.size(size) for size in sizes)
    compute = compute_dtype(grad.dtype)

    def body(*where: IndexExpr) -> Expr:
        inside = b.element(grad, place(where), compute)
        return Guarded(((where[dim], start, end),), inside, constant(0, compute))

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
    if not at_least(start, index(0)):
        start = start + b.size(sizes[dim])
    return _inside(b, grad, sizes, (dim, start, start + 1), lambda where: (*where[:dim], *where[dim + 1 :]))


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
    ),
)
def slice_backward(
    b: Builder, grad: View, sizes: Sequence[Any], dim: int, start: Any, end: Any, step: Any
) -> View:
    """``grad`` from ``start`` on along ``dim``, 0 elsewhere. LoweringError for a step other than 1."""
    if step != 1:
        raise LoweringError("a slice with a step: its gradient is strided")
    dim %= len(sizes)
    first = first_index(b, start, b.size(sizes[dim]))  # may be before the beginning: x[-100:]
    return _inside(
        b, grad, sizes, (dim, first, first + grad.shape[dim]),
        lambda where: (*where[:dim], where[dim] - first, *where[dim + 1 :]),
    )  # fmt: skip
