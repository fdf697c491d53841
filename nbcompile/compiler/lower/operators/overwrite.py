"""A tensor with a part replaced: by ranges of indices, not by index tensors (those are in scatter.py).
Also the copies that write results into the graph's inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, Guarded, Load, compute_dtype
from nbcompile.compiler.loop_ir.index import ONE, ZERO, IndexExpr, at_least, floordiv, index, mod
from nbcompile.compiler.loop_ir.nodes import Loop, View
from nbcompile.compiler.loop_ir.pins import by_pins, pins_of
from nbcompile.compiler.lower.builder import NATIVE_DTYPES, Builder, at
from nbcompile.compiler.lower.fitting import require
from nbcompile.compiler.lower.operators.joining import Bound, on_diagonal, only_where
from nbcompile.compiler.lower.operators.shape import expand_to, first_index, place_in_memory, wrap_dim
from nbcompile.compiler.lower.registry import lowering
from nbcompile.compiler.lower.samples import call, calls
from nbcompile.compiler.lower.strides import is_dense
from nbcompile.errors import LoweringError

aten = torch.ops.aten


@lowering(
    aten.slice_scatter.default,
    samples=calls(
        rows=lambda draw: call(draw(6, 4, special=True), draw(2, 4), 0, 1, 3),
        steps=lambda draw: call(draw(4, 9), draw(4, 3), 1, 2, 9, 3),
        steps_before_start=lambda draw: call(draw(9), draw(2), 0, 5, 9, 2),
        negative=lambda draw: call(draw(4, 9), draw(4, 3), -1, -4, -1),
        all=lambda draw: call(draw(4, 3), draw(3, 4).t()),
        none=lambda draw: call(draw(4, 3), draw(0, 3), 0, 3, 1),
        clamped=lambda draw: call(draw(4, 3), draw(2, 3), 0, 2, 100),
        other_dtype=lambda draw: call(draw(4, 3), draw(2, 3, dtype=torch.int64), 0, 2, 4),
        half=lambda draw: call(draw(4, 3, dtype=torch.float16), draw(2, 3, dtype=torch.float16), 0, 2, 4),
        transposed=lambda draw: call(draw(3, 4).t(), draw(2, 3), 0, 2, 4),
    ),
)
def slice_scatter(
    b: Builder, x: View, src: View, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> View:
    """``x`` with ``src``, cast to its dtype, in place of every ``step``-th element along ``dim`` from
    ``start`` on. LoweringError unless it has as many elements there, by the sizes at hand, and its other
    extents surely are those of ``x``."""
    dim = wrap_dim(dim, len(x.axes))
    begin, pace = first_index(b, start, x.shape[dim]), b.size(step)
    count, stop = src.shape[dim], first_index(b, x.shape[dim] if end is None else end, x.shape[dim])
    if count.hint() != len(range(begin.hint(), stop.hint(), pace.hint())):
        raise LoweringError(f"a source of {count} along {dim}, which has another number of places")
    require(b, src.shape, (*x.shape[:dim], count, *x.shape[dim + 1 :]), "a source")
    # so many steps fit before the start: with them no numerator is negative
    earlier = floordiv(begin + pace - 1, pace)

    def body(*where: IndexExpr) -> Expr:
        place = where[dim]
        compute = compute_dtype(x.dtype)
        old = b.element(x, where)
        shifted = place - begin + earlier * pace
        along = floordiv(shifted, pace) - earlier
        bounds: list[Bound] = [(place, begin, begin + (count - 1) * pace + 1)]
        if pace != ONE:
            bounds.append((mod(shifted, pace), ZERO, ONE))
        if begin == ZERO and pace == ONE and count == x.shape[dim]:
            bounds = []
        return only_where(bounds, b.element(src, (*where[:dim], along, *where[dim + 1 :]), compute), old)

    return _with_part(b, x, body)


@lowering(
    aten.select_scatter.default,
    samples=calls(
        first=lambda draw: call(draw(6, 4, special=True), draw(4), 0, 1),
        last=lambda draw: call(draw(6, 4), draw(6), -1, -1),
        vector=lambda draw: call(draw(6), draw(), 0, 5),
        other_dtype=lambda draw: call(draw(6, 4, dtype=torch.int32), draw(6, dtype=torch.int64), 1, 2),
    ),
)
def select_scatter(b: Builder, x: View, src: View, dim: int, place: Any) -> View:
    """``x`` with ``src`` in place of what ``x.select(dim, place)`` shows. LoweringError unless ``src`` surely
    has that shape."""
    dim = wrap_dim(dim, len(x.axes))
    chosen, count = b.size(place), x.shape[dim].hint()
    if not -count <= chosen.hint() < count:
        raise LoweringError(f"index {chosen} is out of range along {dim}")
    chosen = first_index(b, place, x.shape[dim])
    require(b, src.shape, (*x.shape[:dim], *x.shape[dim + 1 :]), "a source")

    def body(*where: IndexExpr) -> Expr:
        inside = b.element(src, where[:dim] + where[dim + 1 :], compute_dtype(x.dtype))
        return Guarded(((where[dim], chosen, chosen + 1),), inside, b.element(x, where))

    return _with_part(b, x, body)


@lowering(
    aten.diagonal_scatter.default,
    samples=calls(
        main=lambda draw: call(draw(5, 4, special=True), draw(4)),
        above=lambda draw: call(draw(5, 4), draw(2), 2),
        below=lambda draw: call(draw(5, 4), draw(3), -2),
        inner=lambda draw: call(draw(2, 5, 4), draw(5, 2), 0, 0, 2),
        swapped=lambda draw: call(draw(2, 5, 4), draw(2, 3), -1, -1, 1),
        none=lambda draw: call(draw(5, 4), draw(0), 4),
        other_dtype=lambda draw: call(draw(3, 3), draw(3, dtype=torch.float64)),
    ),
)
def diagonal_scatter(b: Builder, x: View, src: View, offset: int = 0, dim1: int = 0, dim2: int = 1) -> View:
    """``x`` with ``src`` in place of what ``x.diagonal(offset, dim1, dim2)`` shows. LoweringError unless
    ``src`` surely has that shape."""
    dims = wrap_dim(dim1, len(x.axes)), wrap_dim(dim2, len(x.axes))
    rows, columns = x.shape[dims[0]] + min(offset, 0), x.shape[dims[1]] - max(offset, 0)
    shorter = rows if at_least(columns, rows) else columns
    others = [extent for n, extent in enumerate(x.shape) if n not in dims]
    require(b, src.shape, (*others, shorter), "a source")

    def body(*where: IndexExpr) -> Expr:
        bound, along = on_diagonal(offset, where[dims[0]], where[dims[1]])
        others = [place for n, place in enumerate(where) if n not in dims]
        inside = b.element(src, (*others, along), compute_dtype(x.dtype))
        return Guarded((bound,), inside, b.element(x, where))

    return _with_part(b, x, body)


def _with_part(b: Builder, x: View, body: Callable[..., Expr]) -> View:
    """``x`` with a part replaced. ``x[i] += y`` replaces it twice, by the same: then ``x`` is taken as it was
    before the first; it is ``x`` itself where the part is replaced by what it is."""
    where = at(b.axes(x.shape))
    point, before = body(*where), _before_this_part(b, x, body)
    if isinstance(point, Guarded) and isinstance(point.inside, Load) and isinstance(point.outside, Load):
        new, old = point.inside, point.outside
        if new.buffer == old.buffer and by_pins(new.index, old.index, pins_of(point.bounds)) == old.index:
            return x
    return b.generate(x.shape, x.dtype, body if before is None else before)


def _before_this_part(b: Builder, x: View, body: Callable[..., Expr]) -> Callable[..., Expr] | None:
    """``body``, all else of which is what lay there before the very part that it replaces was replaced
    before; None where ``x`` is not made so."""
    made = next((loop for loop in b.statements if loop.outputs == (x.buffer,)), None)
    if not isinstance(made, Loop) or made.kind != "pointwise" or not x.is_whole():
        return None
    first = made.body
    where = tuple(map(index, made.axes))
    point = body(*where)
    if not isinstance(first, Guarded) or not isinstance(point, Guarded) or first.bounds != point.bounds:
        return None

    def again(*where: IndexExpr) -> Expr:
        point = body(*where)
        assert isinstance(point, Guarded)
        old = first.outside.substitute(dict(zip(made.axes, where, strict=True)))
        return Guarded(point.bounds, point.inside, old)

    return again


@lowering(
    aten.as_strided_scatter.default,
    samples=calls(
        rows=lambda draw: call(draw(6, 4), draw(2, 3), [2, 3], [8, 1]),
        diagonal=lambda draw: call(draw(4, 4), draw(4), [4], [5]),
        transposed=lambda draw: call(draw(4, 6).t(), draw(2, 6), [2, 6], [6, 1]),
        other_dtype=lambda draw: call(draw(4, 4), draw(2, dtype=torch.int64), [2], [3]),
    ),
)
def as_strided_scatter(
    b: Builder, x: View, src: View, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> View:
    """``x`` with ``src`` in place of the elements ``offset + where * stride`` of its memory. LoweringError
    for memory with gaps, for what may reach outside, and for an ``offset`` into an input or constant of the
    graph."""
    if offset is not None and x.buffer.role != "temporary":
        raise LoweringError("as_strided counts from the start of an input's storage, which may be earlier")
    strides = b.result_strides(x.shape)
    if strides is None or not is_dense(x.shape, strides):
        raise LoweringError("as_strided of memory with gaps")
    start = ZERO if offset is None else b.size(offset)
    steps = [b.size(step) for step in stride]
    return b.scatter(
        x,
        src.shape,
        "set",
        lambda *where: place_in_memory(x.shape, strides, src.shape, steps, start, where),
        lambda *where: b.element(src, where, compute_dtype(x.dtype)),
    )


# -- copies ---------------------------------------------------------------------------------------


@lowering(
    aten.copy.default,
    samples=calls(
        same=lambda draw: call(draw(3, 4), draw(3, 4, special=True)),
        broadcast=lambda draw: call(draw(3, 4), draw(4)),
        number=lambda draw: call(draw(3, 4), draw()),
        transposed=lambda draw: call(draw(3, 4), draw(4, 3).t()),
        rounded=lambda draw: call(draw(3, 4, dtype=torch.bfloat16), draw(3, 4)),
        truncated=lambda draw: call(draw(3, 4, dtype=torch.int32), draw(3, 4)),
        empty=lambda draw: call(draw(3, 0), draw(3, 0)),
    ),
)
def copy(b: Builder, x: View, src: View, non_blocking: bool = False) -> View:
    """``src`` broadcast to the shape of ``x``, in the dtype of ``x``; where it has that dtype and the
    strides, its memory is shared."""
    shape = b.result_shape()
    shown = expand_to(b, src, shape)
    strided, wanted = shown.strided(), b.result_strides(shape)
    native = x.dtype in NATIVE_DTYPES
    if native and src.dtype == x.dtype and strided is not None and strided[0] == wanted:
        return shown  # values never change: sharing the memory of src is a copy of it
    return b.generate(shape, x.dtype, lambda *where: b.element(src, where, compute_dtype(x.dtype)))


@lowering(
    aten.copy_.default,
    samples=calls(
        same=lambda draw: call(draw(3, 4), draw(3, 4, special=True)),
        broadcast=lambda draw: call(draw(3, 4), draw(4)),
        transposed=lambda draw: call(draw(4, 3).t(), draw(3, 4)),
        rounded=lambda draw: call(draw(3, 4, dtype=torch.float16), draw(3, 4)),
        truncated=lambda draw: call(draw(3, 4, dtype=torch.uint8), draw(3, 4)),
        number=lambda draw: call(draw(), draw()),
    ),
)
def copy_into_input(b: Builder, x: View, src: View, non_blocking: bool = False) -> View:
    """``src`` as what the graph input ``x`` holds from here on. LoweringError for a part of an input, and for
    one whose elements share memory."""
    if src.buffer.name == x.buffer.name and src.is_whole():
        return x
    return b.update(x, src)
