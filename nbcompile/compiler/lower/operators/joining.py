"""New tensors put together from others by index arithmetic. Regions are told apart by ``Guarded``, which
codegen turns into loop bounds, never by a condition on each element's value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, Guarded, compute_dtype, constant
from nbcompile.compiler.loop_ir.index import ONE, ZERO, IndexExpr, at_least, mod, product
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.fitting import require_number
from nbcompile.compiler.lower.operators.shape import reshape, same, wrap_dim
from nbcompile.compiler.lower.registry import library, lowering
from nbcompile.compiler.lower.samples import call, calls, of_view
from nbcompile.errors import LoweringError

aten = torch.ops.aten
MOST_PIECES = 16
"""With more a core is faster too (40 steps of a recurrence, stacked), but fusion takes the square of their
number for each pair, to say how often a step would be computed where it is read: 12 seconds of 40."""
Bound = tuple[IndexExpr, IndexExpr, IndexExpr]


def only_where(bounds: Sequence[Bound], inside: Expr, outside: Expr) -> Expr:
    """``inside`` where the bounds hold; without bounds, everywhere."""
    return Guarded(tuple(bounds), inside, outside) if bounds else inside


# -- joining --------------------------------------------------------------------------------------


@lowering(
    aten.cat.default,
    samples=calls(
        rows=lambda draw: call([draw(3, 5, special=True), draw(1, 5), draw(4, 5)]),
        columns=lambda draw: call([draw(3, 5), draw(3, 2)], -1),
        middle=lambda draw: call([draw(2, 3, 4), draw(2, 1, 4)], 1),
        transposed=lambda draw: call([draw(5, 3).t(), draw(4, 5)[::2]]),
        expanded=lambda draw: call([draw(1, 5).expand(3, 5), draw(2, 5)], 0),
        mixed_dtypes=lambda draw: call([draw(3, dtype=torch.int64), draw(2), draw(2, dtype=torch.bfloat16)]),
        wide_dtypes=lambda draw: call([draw(3, dtype=torch.float64), draw(2, dtype=torch.int32)]),
        integers=lambda draw: call([draw(3, dtype=torch.int32), draw(2, dtype=torch.uint8)]),
        half=lambda draw: call([draw(3, 5, dtype=torch.float16), draw(1, 5, dtype=torch.float16)]),
        bools=lambda draw: call([draw(3, dtype=torch.bool), draw(2, dtype=torch.bool)]),
        legacy_empty=lambda draw: call([torch.zeros(0), draw(2, 3), draw(0, 3), draw(1, 3)]),
        empty=lambda draw: call([draw(0, 3), draw(0, 3)]),
        empty_rows=lambda draw: call([draw(2, 0), draw(3, 0)]),
        one=lambda draw: call([draw(2, 3)], 1),
        many=lambda draw: call([draw(2, 2) for _ in range(9)], 1),
        channels_last=lambda draw: call(
            [draw(2, 3, 4, 4).to(memory_format=torch.channels_last) for _ in range(2)], 1
        ),
    ),
)
def cat(b: Builder, tensors: Sequence[View], dim: int = 0) -> View:
    """The tensors one after another along ``dim``, in the dtype that they promote to. LoweringError for more
    than ``MOST_PIECES`` that are not empty along it."""
    shape, dtype = b.result_shape(), b.result_dtype()
    dim = wrap_dim(dim, len(shape))
    # a 1-d empty tensor joins anything, for historical reasons
    pieces = [x for x in tensors if len(x.axes) == len(shape) and x.shape[dim] != ZERO]
    if len(pieces) > MOST_PIECES:
        raise LoweringError(f"joins {len(pieces)} tensors, more than {MOST_PIECES}")
    for x in pieces:
        b.check_native(x)

    def body(*where: IndexExpr) -> Expr:
        value: Expr = constant(0, compute_dtype(dtype))
        end = shape[dim]
        for n, x in reversed(list(enumerate(pieces))):
            start = end - x.shape[dim]
            place = (*where[:dim], where[dim] - start, *where[dim + 1 :])
            inside = b.element(x, place, compute_dtype(dtype))
            # the last piece is what is left: no bound of its own
            value = inside if n == len(pieces) - 1 else Guarded(((where[dim], start, end),), inside, value)
            end = start
        return value

    return b.generate(shape, dtype, body)


# -- more of the same -----------------------------------------------------------------------------


@lowering(
    aten.constant_pad_nd.default,
    samples=[
        *of_view(
            (same, [1, 2]), (same, [2, 0, 0, 3], 1.5), (same, [-1, 2, 1, -2, 1, 1], float("nan")),
            (same, [-1, -1]), (same, [0, 0, 0, 0]), (lambda x: x.transpose(0, 2), [1, 1, 2, 2], -1),
            (lambda x: x[:, :0], [0, 0, 2, 1], 3), (lambda x: x.bool(), [1, 1], True),
            (lambda x: x.int(), [1, 1], 7),
            (lambda x: x[:1].expand(4, 6, 5), [0, 0, 1, 1]),
        ),
        *calls(
            half=lambda draw: call(draw(3, 4, dtype=torch.bfloat16), [1, 1], 0.1),
            special=lambda draw: call(draw(3, 4, special=True), [1, 1], float("inf")),
        ),
    ],
)  # fmt: skip
def constant_pad_nd(b: Builder, x: View, pad: Sequence[Any], value: Any = 0) -> View:
    """``x`` with ``value`` around it. ``pad`` has a number before and one after for each dimension, from the
    last one on; a negative number cuts off."""
    rank = len(x.axes)
    before, after = [ZERO] * rank, [ZERO] * rank
    for n, (left, right) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        before[rank - 1 - n], after[rank - 1 - n] = b.size(left), b.size(right)
    dtype = b.result_dtype()
    require_number(value, dtype)

    def body(*where: IndexExpr) -> Expr:
        place = tuple(at - left for at, left in zip(where, before, strict=True))
        bounds = [
            (at, left, left + extent)
            for at, left, right, extent in zip(where, before, after, x.shape, strict=True)
            if not (at_least(ZERO, left) and at_least(ZERO, right))
        ]
        outside = constant(value, dtype).value
        return only_where(bounds, b.element(x, place), constant(outside, compute_dtype(dtype)))

    return b.generate(b.result_shape(), dtype, body)


@lowering(
    aten.repeat.default,
    samples=of_view(
        (same, [2, 1, 3]), (same, [2, 1, 1, 1]), (same, [1, 1, 1]), (same, [0, 1, 2]),
        (lambda x: x[:1], [3, 2, 1]), (lambda x: x[0, 0, 0], [2, 3]), (lambda x: x[0, 0, 0], []),
        (lambda x: x.transpose(0, 1)[::2], [1, 3, 2]),
    ),
)  # fmt: skip
def repeat(b: Builder, x: View, repeats: Sequence[Any]) -> View:
    """One loop with an axis for the copies before each repeated one, shown merged: no remainders."""
    rank = max(len(x.axes), len(repeats))
    times = [ONE] * (rank - len(repeats)) + [b.size(number) for number in repeats]
    extents = [ONE] * (rank - len(x.axes)) + list(x.shape)
    shape: list[IndexExpr] = []
    source: list[int] = []  # which dimension of the loop walks each dimension of x
    for count, extent in zip(times, extents, strict=True):
        if count != ONE and extent != ONE:
            shape.append(count)
        source.append(len(shape))
        shape.append(count if extent == ONE else extent)

    def body(*where: IndexExpr) -> Expr:
        places = [ZERO if extent == ONE else where[dim] for dim, extent in zip(source, extents, strict=True)]
        return b.element(x, places[rank - len(x.axes) :])

    return reshape(b, b.generate(shape, b.result_dtype(), body), b.result_shape())


# -- other places ---------------------------------------------------------------------------------


@lowering(
    aten.flip.default,
    samples=of_view(
        (same, [0]), (same, [-1, 0]), (same, []), (same, [0, 1, 2]), (lambda x: x.transpose(0, 2), [1]),
        (lambda x: x[0, 0, 0], []), (lambda x: x[:, :0], [1]), (lambda x: x.bool(), [2]),
    ),
)  # fmt: skip
def flip(b: Builder, x: View, dims: Sequence[int]) -> View:
    """The elements in reverse order along each of ``dims``."""
    turned = {wrap_dim(dim, len(x.axes)) for dim in dims}

    def body(*where: IndexExpr) -> Expr:
        places = [
            extent - 1 - at if n in turned else at
            for n, (at, extent) in enumerate(zip(where, x.shape, strict=True))
        ]
        return b.element(x, places)

    return b.generate(x.shape, b.result_dtype(), body)


@lowering(
    aten.roll.default,
    samples=of_view(
        (same, [1], [0]), (same, [-2, 3], [1, 2]), (same, [7]), (same, [4], [0]), (same, [1, 1], [0, 0]),
        (same, [-11, 9], [-1, -2]), (lambda x: x.transpose(0, 2), [2, 1], [0, 1]),
        (lambda x: x[0, 0, 0], [1]), (lambda x: x[:, :0], [1], [1]), (lambda x: x[:, :0], [3]),
    ),
)  # fmt: skip
def roll(b: Builder, x: View, shifts: Sequence[Any], dims: Sequence[int] = ()) -> View:
    """Element ``i`` moved to ``i + shift`` along each of ``dims``, around the end; without ``dims``, in
    row-major order of all elements. LoweringError for a symbolic size if the shift may be more than it."""
    if not dims:
        flat = reshape(b, x, (product(x.shape),))
        return reshape(b, _rolled(b, flat, {0: b.size(shifts[0])}), x.shape)
    moves: dict[int, IndexExpr] = {}
    for shift, dim in zip(shifts, dims, strict=True):
        dim = wrap_dim(dim, len(x.axes))
        moves[dim] = moves.get(dim, ZERO) + b.size(shift)
    return _rolled(b, x, moves)


def _rolled(b: Builder, x: View, moves: dict[int, IndexExpr]) -> View:
    """Element ``i`` of the result is element ``i - move`` of x, around the end, for each dimension."""
    if any(extent == ZERO for extent in x.shape):
        return b.copy(x)
    starts = {dim: _wrapped(move, x.shape[dim]) for dim, move in moves.items()}

    def body(*where: IndexExpr) -> Expr:
        def rolled(left: list[tuple[int, IndexExpr]], places: tuple[IndexExpr, ...]) -> Expr:
            if not left:
                return b.element(x, places)
            (dim, start), *others = left
            at, extent = places[dim], x.shape[dim]

            def moved(by: IndexExpr) -> Expr:
                return rolled(others, (*places[:dim], at + by, *places[dim + 1 :]))

            if start == ZERO:
                return moved(ZERO)
            return Guarded(((at, ZERO, start),), moved(extent - start), moved(-start))

        return rolled(list(starts.items()), where)

    return b.generate(x.shape, b.result_dtype(), body)


def _wrapped(move: IndexExpr, extent: IndexExpr) -> IndexExpr:
    """``move`` modulo ``extent``, which need not be known."""
    if move.constant is None or extent.constant is None:
        move = move if at_least(move, ZERO) else move + extent
        if not at_least(move, ZERO):
            raise LoweringError("rolls a symbolic size by a number that may be more than it")
    return mod(move, extent)


# -- triangles and diagonals ----------------------------------------------------------------------

_TRIANGLES = [
    *of_view(
        (same,), (same, 2), (same, -1), (same, 100), (same, -100), (lambda x: x.transpose(0, 2),),
        (lambda x: x[0],), (lambda x: x[:, :0], 1), (lambda x: x.bool(), 1), (lambda x: x.int(), 0),
    ),
    *calls(
        special=lambda draw: call(draw(5, 4, special=True)),
        half=lambda draw: call(draw(5, 4, dtype=torch.bfloat16)),
    ),
]  # fmt: skip


@lowering(aten.tril.default, samples=_TRIANGLES)
def tril(b: Builder, x: View, diagonal: Any = 0) -> View:
    """``x`` where ``column - row <= diagonal`` in the last two dimensions, else 0, also in place of NaN."""
    return _triangle(b, x, lambda row, column: (column, ZERO, row + b.size(diagonal) + 1))


@lowering(aten.triu.default, samples=_TRIANGLES)
def triu(b: Builder, x: View, diagonal: Any = 0) -> View:
    """``x`` where ``column - row >= diagonal`` in the last two dimensions, else 0, also in place of NaN."""
    return _triangle(b, x, lambda row, column: (column, row + b.size(diagonal), x.shape[-1]))


def _triangle(b: Builder, x: View, bound: Callable[[IndexExpr, IndexExpr], Bound]) -> View:
    def body(*where: IndexExpr) -> Expr:
        inside = b.element(x, where)
        return Guarded((bound(*where[-2:]),), inside, constant(0, inside.dtype))

    return b.generate(x.shape, x.dtype, body)


library(
    "the positions of a triangle depend on no input", aten.tril_indices.default, aten.triu_indices.default
)


def on_diagonal(offset: int, first: IndexExpr, second: IndexExpr) -> tuple[Bound, IndexExpr]:
    """(the bound that holds on the diagonal ``second - first = offset``, the position along it)."""
    bound = (second, first + offset, first + offset + 1)
    return bound, first if offset >= 0 else second
