"""Whole slices of a tensor, named by one vector of indices, that are replaced or added to: scatters, taken
in the order that ``scatter`` takes points in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, Number, compute_dtype, constant
from nbcompile.compiler.loop_ir.expr import where as choose
from nbcompile.compiler.loop_ir.index import ONE, IndexExpr
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower import unread_indices
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.fitting import require_number, require_slices
from nbcompile.compiler.lower.operators.creation import filled
from nbcompile.compiler.lower.operators.gather import along, position, some
from nbcompile.compiler.lower.operators.scatter import distinct, elements, reduced
from nbcompile.compiler.lower.operators.shape import Place, wrap_dim
from nbcompile.compiler.lower.registry import Sample, lowering
from nbcompile.compiler.lower.samples import call, calls
from nbcompile.compiler.lower.scatter_to_gather import FEW, scattered
from nbcompile.errors import LoweringError

aten = torch.ops.aten


def _slices(b: Builder, x: View, dim: int, picked: View, *, wrap: bool = False) -> Callable[..., Place]:
    """The place in ``x`` of a point of a tensor of slices, one for each element of ``picked``."""

    def target(*where: IndexExpr) -> Place:
        extent = x.shape[dim] if x.axes else ONE
        at = position(b, picked, where[dim : dim + 1] if picked.axes else (), extent, wrap=wrap)
        if not x.axes:
            unread_indices.require_checked(b, at)
            return ()
        return along(dim, where, at)

    return target


def _slice_samples(*extra: Any, **options: Any) -> list[Sample]:
    return calls(
        rows=lambda draw: call(draw(7, 5), 0, distinct(7, 4), draw(4, 5, special=True), *extra, **options),
        columns=lambda draw: call(
            draw(7, 5).t().contiguous().t(), -1, distinct(5, 3), draw(3, 7).t(), *extra, **options
        ),
        middle=lambda draw: call(draw(2, 5, 3), 1, distinct(5, 2), draw(2, 2, 3), *extra, **options),
        integers=lambda draw: call(
            draw(5, dtype=torch.int64), 0, distinct(5, 3), draw(3, dtype=torch.int64), *extra, **options
        ),
        half=lambda draw: call(
            draw(5, dtype=torch.float16), 0, distinct(5, 3), draw(3, dtype=torch.float16), *extra, **options
        ),
        none=lambda draw: call(draw(5, 3), 0, some(draw, 0, below=5), draw(0, 3), *extra, **options),
    )


@lowering(
    aten.index_add.default,
    samples=[
        *_slice_samples(),
        *calls(
            alpha=lambda draw: call(draw(7, 5), 0, some(draw, 9, below=7), draw(9, 5), alpha=2),
            repeated=lambda draw: call(draw(7, 5), 1, some(draw, 9, below=5), draw(7, 9)),
            int32=lambda draw: call(draw(5), 0, some(draw, 9, below=5, dtype=torch.int32), draw(9)),
        ),
    ],
)
def index_add(b: Builder, x: View, dim: int, picked: View, source: View, *, alpha: Number = 1) -> View:
    """Slices plus ``alpha * source``. LoweringError unless it surely has a slice for each index."""

    def value(*where: IndexExpr) -> Expr:
        element = b.element(source, where, compute_dtype(x.dtype))
        return element if alpha == 1 else element * alpha

    dim = wrap_dim(dim, len(x.axes))
    require_slices(b, x, dim, picked, source)
    many = bool(picked.axes) and picked.shape[0].constant not in range(FEW + 1)  # index_select backward
    return scattered(b, x, source.shape, "add", _slices(b, x, dim, picked), value, wide=many)


@lowering(aten.index_copy.default, samples=_slice_samples())
def index_copy(b: Builder, x: View, dim: int, picked: View, source: View) -> View:
    """The slices of ``x`` along ``dim`` that ``picked`` names, replaced by those of ``source``."""
    dim = wrap_dim(dim, len(x.axes))
    return scattered(b, x, source.shape, "set", _slices(b, x, dim, picked), elements(b, source, x))


@lowering(
    aten.index_reduce.default,
    samples=[
        *(
            Sample(f"{sample.name}-{name}-{include}", sample.make)
            for name in ("prod", "amax", "amin", "mean")
            for include in (True, False)
            for sample in _slice_samples(name, include_self=include)
        ),
        *calls(
            repeated=lambda draw: call(draw(5, 3), 0, some(draw, 9, below=5), draw(9, 3), "mean"),
            repeated_without_self=lambda draw: call(
                draw(5, 3), 0, some(draw, 9, below=5), draw(9, 3), "amax", include_self=False
            ),
        ),
    ],
)
def index_reduce(
    b: Builder, x: View, dim: int, picked: View, source: View, reduce: str, *, include_self: bool = True
) -> View:
    """Slices combined as by :func:`scatter_reduce`. LoweringError as for :func:`index_add`."""
    dim = wrap_dim(dim, len(x.axes))
    require_slices(b, x, dim, picked, source)
    place = _slices(b, x, dim, picked)
    return reduced(b, x, source.shape, reduce, include_self, place, elements(b, source, x))


@lowering(
    aten.index_fill.int_Scalar,
    samples=calls(
        rows=lambda draw: call(draw(7, 5, special=True), 0, some(draw, 3, below=7, negative=True), 1.5),
        columns=lambda draw: call(draw(7, 5), -1, some(draw, below=5), float("nan")),
        integers=lambda draw: call(draw(7, dtype=torch.int32), 0, some(draw, 3, below=7), 2),
        half=lambda draw: call(draw(7, 5, dtype=torch.float16), 0, some(draw, 3, below=7), 0.1),
    ),
)
@lowering(
    aten.index_fill.int_Tensor,
    samples=calls(
        rows=lambda draw: call(draw(7, 5), 0, some(draw, 3, below=7, negative=True), draw()),
        other_dtype=lambda draw: call(draw(7, 5), 1, some(draw, 3, below=5), draw(dtype=torch.int64)),
    ),
)
def index_fill(b: Builder, x: View, dim: int, picked: View, value: View | Number) -> View:
    """One number, or 0-d tensor, in whole slices; negative indices count from the end."""
    require_number(value, x.dtype)
    dim, compute = wrap_dim(dim, len(x.axes)), compute_dtype(x.dtype)
    count = picked.shape[0] if picked.axes else ONE
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :]) if x.axes else (count,)

    def filling(*_: IndexExpr) -> Expr:
        if isinstance(value, View):
            return b.element(value, (), compute)
        return constant(constant(value, x.dtype).value, compute)

    return scattered(b, x, shape, "set", _slices(b, x, dim, picked, wrap=True), filling)


@lowering(
    aten.embedding_dense_backward.default,
    samples=calls(
        matrix=lambda draw: call(draw(3, 4, 5, special=True), some(draw, 3, 4, below=7), 7, -1, False),
        padded=lambda draw: call(draw(6, 5), some(draw, 6, below=7), 7, 2, False),
        number=lambda draw: call(draw(5), some(draw, below=7), 7, -1, False),
        transposed=lambda draw: call(draw(5, 6).t(), some(draw, 6, below=7, dtype=torch.int32), 7, -1, False),
        half=lambda draw: call(draw(6, 5, dtype=torch.bfloat16), some(draw, 6, below=7), 7, -1, False),
        none=lambda draw: call(draw(0, 5), some(draw, 0, below=7), 7, -1, False),
    ),
)
def embedding_dense_backward(
    b: Builder, grad: View, picked: View, num_weights: Any, padding_idx: Any, scale_grad_by_freq: bool
) -> View:
    """Sums of ``grad`` by row, 0 for ``padding_idx``. LoweringError for ``scale_grad_by_freq``."""
    if scale_grad_by_freq:
        raise LoweringError("the gradient is scaled by the frequency of each index")
    rows, compute = b.size(num_weights), compute_dtype(grad.dtype)

    def value(*where: IndexExpr) -> Expr:
        element = b.element(grad, where, compute)
        if padding_idx == -1:
            return element
        padding = b.element(picked, where[:-1], torch.int64).eq(padding_idx)
        return choose(padding, constant(0, compute), element)

    return scattered(
        b,
        filled(b, (rows, grad.shape[-1]), 0, grad.dtype),
        grad.shape,
        "add",
        lambda *where: (position(b, picked, where[:-1], rows), where[-1]),
        value,
    )
