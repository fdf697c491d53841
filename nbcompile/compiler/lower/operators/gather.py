"""Elements picked by tensors of indices. A position outside of its range is an error in eager and
undefined here; codegen decides whether to check it against the size that each Indirect carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from nbcompile.compiler.loop_ir.expr import Expr, Indirect, index_value
from nbcompile.compiler.loop_ir.expr import where as choose
from nbcompile.compiler.loop_ir.index import ONE, ZERO, IndexExpr
from nbcompile.compiler.loop_ir.nodes import Loop, View
from nbcompile.compiler.lower import unread_indices
from nbcompile.compiler.lower.builder import Builder, at, broadcast
from nbcompile.compiler.lower.constant_folding import Formula, formula_of
from nbcompile.compiler.lower.operators.shape import Place, wrap_dim
from nbcompile.compiler.lower.registry import lowering
from nbcompile.compiler.lower.samples import call, calls
from nbcompile.errors import LoweringError

aten = torch.ops.aten
Draw = Callable[..., torch.Tensor]


def some(
    draw: Draw, *shape: int, below: int, negative: bool = False, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    """Random indices of ``shape`` in [0, below), or in [-below, below) if ``negative``."""
    return draw(*shape, low=-below if negative else 0, high=below).floor().to(dtype)


def position(
    b: Builder, picked: View, where: Sequence[IndexExpr], extent: IndexExpr, *, wrap: bool = False
) -> IndexExpr:
    """Element ``where`` of the index tensor ``picked`` as an index into a dimension of ``extent``;
    ``wrap`` counts negative ones from its end."""
    if picked.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise LoweringError(f"indices of dtype {str(picked.dtype).removeprefix('torch.')}")
    if extent == ZERO and ZERO not in picked.shape:
        raise LoweringError("an index into a dimension without elements, which eager refuses")
    value = b.element(picked, where, torch.int64)
    known = _known(b, picked, extent, wrap=wrap)
    if known is not None:
        formula, negative = known
        if formula is not None:
            lead = where[len(where) - len(picked.axes) :]
            if not formula.clamped:
                return formula.at(lead)
            value, negative = formula.value(lead), False
        wrap = negative
    if wrap:
        value = choose(value < 0, value + index_value(extent), value)
    return IndexExpr({(Indirect(value, extent),): 1})


def _known(b: Builder, picked: View, extent: IndexExpr, *, wrap: bool) -> tuple[Formula | None, bool] | None:
    """(the formula of the positions, whether any is negative) of an index tensor whose elements are known and
    within ``extent``; its own elements are computed by their formula too."""
    values = b.folded.elements(picked) if extent.constant is not None else None
    if values is None or not values.numel() or extent.constant is None:
        return None
    with _disable_current_modes():
        least, most = int(values.min()), int(values.max())
        if least < (-extent.constant if wrap else 0) or most >= extent.constant:
            return None
        formula = formula_of(torch.where(values < 0, values + extent.constant, values))
    own = b.folded.buffer(picked.buffer.name)
    told = formula_of(own) if own is not None and own.numel() else None
    if told is not None:
        _tell(b, picked.buffer.name, lambda *where: told.value(where).cast(picked.dtype))
    return formula, least < 0


def _tell(b: Builder, buffer: str, body: Callable[..., Expr]) -> None:
    """Compute a tensor made earlier by another body, of equal elements."""
    for n, item in enumerate(b.statements):
        if isinstance(item, Loop) and item.name == buffer and item.kind == "pointwise":
            b.statements[n] = replace(item, body=body(*at(item.axes)))


def indexed(
    b: Builder, shape: Sequence[IndexExpr], indices: Sequence[View | None]
) -> tuple[tuple[IndexExpr, ...], Callable[..., Place]]:
    """For ``x[indices]`` with x of ``shape``: (shape of the result, the place in x of its element).

    The dimensions of the index tensors, broadcast together, stand where the first of them did if all
    are side by side, else first.
    """
    given = {dim: picked for dim, picked in enumerate(indices) if picked is not None}
    if any(picked.dtype in (torch.bool, torch.uint8) for picked in given.values()):
        raise LoweringError("the number of elements a mask picks depends on data")
    dims = list(given)
    common = broadcast([picked.shape for picked in given.values()])
    together = dims == list(range(dims[0], dims[0] + len(dims)))
    lead = dims[0] if together else 0
    others = [dim for dim in range(len(shape)) if dim not in given]
    result = [shape[dim] for dim in others]
    result[lead:lead] = common

    def place(*where: IndexExpr) -> Place:
        picks = where[lead : lead + len(common)]
        rest = iter((*where[:lead], *where[lead + len(common) :]))
        return tuple(
            position(b, given[dim], picks[len(common) - len(given[dim].axes) :], extent, wrap=True)
            if dim in given
            else next(rest)
            for dim, extent in enumerate(shape)
        )

    return tuple(result), place


_INDEX = calls(
    one=lambda draw: call(draw(7, 5, special=True), [some(draw, 9, below=7, negative=True)]),
    second=lambda draw: call(draw(7, 5), [None, some(draw, 2, 3, below=5, negative=True)]),
    both=lambda draw: call(draw(7, 5), [some(draw, 4, 1, below=7), some(draw, 3, below=5)]),
    apart=lambda draw: call(draw(4, 5, 6), [some(draw, 3, below=4), None, some(draw, 2, 1, below=6)]),
    middle=lambda draw: call(draw(2, 4, 5, 3), [None, some(draw, 3, below=4), some(draw, 2, 3, below=5)]),
    trailing_none=lambda draw: call(draw(4, 5, 6), [some(draw, 3, below=4), None, None]),
    number=lambda draw: call(draw(4, 5), [some(draw, below=4), None]),
    numbers_apart=lambda draw: call(draw(4, 5, 6), [some(draw, below=4), None, some(draw, below=6)]),
    int32=lambda draw: call(draw(7, 5), [some(draw, 3, below=7, dtype=torch.int32)]),
    transposed=lambda draw: call(draw(5, 7).t(), [some(draw, 3, below=7)]),
    strided_index=lambda draw: call(draw(7, 5), [some(draw, 4, 6, below=7)[:, ::2].t()]),
    half=lambda draw: call(draw(7, 5, dtype=torch.bfloat16), [some(draw, 3, below=7)]),
    bools=lambda draw: call(draw(7, 5, dtype=torch.bool), [some(draw, 3, below=7)]),
    integers=lambda draw: call(draw(7, 5, dtype=torch.int32), [None, some(draw, 3, below=5)]),
    no_indices=lambda draw: call(draw(7, 5), [some(draw, 0, below=7)]),
)


@lowering(aten.index.Tensor, samples=_INDEX)
def index(b: Builder, x: View, indices: Sequence[View | None]) -> View:
    """``x[indices]``, where None stands for a whole dimension and negative indices count from the end.
    LoweringError for masks (bool or uint8)."""
    shape, place = indexed(b, x.shape, indices)
    return b.generate(shape, x.dtype, lambda *where: unread_indices.picked(b, x, place(*where)))


def along(dim: int, where: Sequence[IndexExpr], at: IndexExpr) -> Place:
    """``where`` with the index of dimension ``dim`` replaced; a 0-d tensor counts as one of one element."""
    return (*where[:dim], at, *where[dim + 1 :])


@lowering(
    aten.index_select.default,
    samples=calls(
        rows=lambda draw: call(draw(7, 5, special=True), 0, some(draw, 9, below=7)),
        columns=lambda draw: call(draw(7, 5), -1, some(draw, 3, below=5, dtype=torch.int32)),
        number=lambda draw: call(draw(7, 5), 1, some(draw, below=5)),
        transposed=lambda draw: call(draw(5, 7).t(), 0, some(draw, 3, below=7)),
        none=lambda draw: call(draw(7, 5), 0, some(draw, 0, below=7)),
        half=lambda draw: call(draw(7, 5, dtype=torch.float16), 0, some(draw, 3, below=7)),
    ),
)
def index_select(b: Builder, x: View, dim: int, picked: View) -> View:
    """Slices of ``x`` along ``dim``, one for each index in ``picked``, which does not count from the end."""
    dim = wrap_dim(dim, len(x.axes))

    def body(*where: IndexExpr) -> Expr:
        if not x.axes:
            return unread_indices.only(b, x, position(b, picked, where if picked.axes else (), ONE))
        pick = position(b, picked, where[dim : dim + 1] if picked.axes else (), x.shape[dim])
        return unread_indices.picked(b, x, along(dim, where, pick))

    return b.generate(b.result_shape(), x.dtype, body)


@lowering(
    aten.gather.default,
    samples=calls(
        rows=lambda draw: call(draw(7, 5, special=True), 0, some(draw, 3, 5, below=7)),
        columns=lambda draw: call(draw(7, 5), -1, some(draw, 7, 9, below=5)),
        smaller=lambda draw: call(draw(4, 5, 6), 1, some(draw, 2, 3, 4, below=5)),
        one_column=lambda draw: call(draw(7, 5), 1, some(draw, 7, 1, below=5)),
        transposed=lambda draw: call(draw(5, 7).t(), 0, some(draw, 5, 3, below=7).t()),
        expanded_index=lambda draw: call(draw(7, 5), 0, some(draw, 3, 1, below=7).expand(3, 5)),
        scalar_of_vector=lambda draw: call(draw(5), 0, some(draw, below=5)),
        none=lambda draw: call(draw(7, 5), 0, some(draw, 0, 5, below=7)),
        half=lambda draw: call(draw(7, 5, dtype=torch.bfloat16), 0, some(draw, 3, 5, below=7)),
        no_bytes=lambda draw: call(draw(7, 5), 0, some(draw, 0, 5, below=7, dtype=torch.uint8)),
    ),
)
def gather(b: Builder, x: View, dim: int, picked: View, sparse_grad: bool = False) -> View:
    """``out[i, j] = x[picked[i, j], j]`` for ``dim`` 0; negative indices do not count from the end."""
    dim = wrap_dim(dim, len(x.axes))

    def body(*where: IndexExpr) -> Expr:
        if not x.axes:
            return unread_indices.only(b, x, position(b, picked, where if picked.axes else (), ONE))
        return unread_indices.picked(b, x, along(dim, where, position(b, picked, where, x.shape[dim])))

    return b.generate(picked.shape, x.dtype, body)


@lowering(
    aten.embedding.default,
    samples=calls(
        matrix=lambda draw: call(draw(7, 5, special=True), some(draw, 3, 4, below=7)),
        padded=lambda draw: call(draw(7, 5), some(draw, 6, below=7), 2),
        int32=lambda draw: call(draw(7, 5), some(draw, 6, below=7, dtype=torch.int32)),
        number=lambda draw: call(draw(7, 5), some(draw, below=7)),
        transposed=lambda draw: call(draw(5, 7).t(), some(draw, 2, 3, below=7)),
        half=lambda draw: call(draw(7, 5, dtype=torch.bfloat16), some(draw, 4, below=7)),
        none=lambda draw: call(draw(7, 5), some(draw, 0, 3, below=7)),
    ),
)
def embedding(
    b: Builder,
    weight: View,
    picked: View,
    padding_idx: Any = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> View:
    """The padding row and the scaling by frequency concern the gradient only."""

    def body(*where: IndexExpr) -> Expr:
        row = position(b, picked, where[:-1], weight.shape[0])
        return unread_indices.picked(b, weight, (row, where[-1]))

    return b.generate((*picked.shape, weight.shape[1]), weight.dtype, body)
