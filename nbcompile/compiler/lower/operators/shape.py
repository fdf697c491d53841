"""Views: other shapes of the same memory. They are index arithmetic only and make no loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental import _config as symbolic_config

from nbcompile.compiler.loop_ir.computed_sizes import python_text
from nbcompile.compiler.loop_ir.expr import BITCASTS, op
from nbcompile.compiler.loop_ir.index import (
    ONE,
    ZERO,
    Index,
    IndexExpr,
    at_least,
    floordiv,
    index,
    mod,
    product,
)
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.loop_ir.proofs import proves
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.registry import Sample, lowered, lowering, overload
from nbcompile.compiler.lower.samples import of_view, tensor
from nbcompile.compiler.lower.sizes_of_data import clipped
from nbcompile.compiler.lower.strides import contiguous_strides, is_dense
from nbcompile.errors import LoweringError, SymbolicSizeError

aten = torch.ops.aten
Place = tuple[IndexExpr, ...]


def same(x: Any) -> Any:
    """``x`` itself: the view of a sample that is no view."""
    return x


def wrap_dim(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    return dim % max(rank, 1)


# -- other extents of the same elements -----------------------------------------------------------


def reshape(b: Builder, x: View, shape: Sequence[IndexExpr]) -> View:
    """``x`` with another shape of as many elements, in row-major order."""
    return b.view(x, shape, lambda *where: regroup(x.shape, shape, where))


def regroup(old: Sequence[IndexExpr], new: Sequence[IndexExpr], where: Sequence[IndexExpr]) -> Place:
    """Indices into shape ``old`` of the element at ``where`` of the same elements shaped ``new``.

    Dimensions are matched in the shortest runs with equal products, so that one that is kept stays
    itself, and one that is split or merged touches no other.
    """
    places = [ZERO] * len(old)
    if any(extent == ZERO for extent in (*old, *new)):
        return tuple(places)
    for olds, news in _runs(old, new):
        linear = ZERO
        for n, stride in zip(news, contiguous_strides([new[n] for n in news]), strict=True):
            linear = linear + where[n] * stride
        strides = contiguous_strides([old[n] for n in olds])
        for n, stride in zip(olds, strides, strict=True):
            place = floordiv(linear, stride)
            places[n] = place if n == olds[0] else mod(place, old[n])
    return tuple(places)


def _runs(old: Sequence[IndexExpr], new: Sequence[IndexExpr]) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions of both shapes with equal products; extents of 1 are left out."""
    olds = [n for n, extent in enumerate(old) if extent != ONE]
    news = [n for n, extent in enumerate(new) if extent != ONE]
    runs = []
    while olds and news:
        left, right = [olds.pop(0)], [news.pop(0)]
        size, other = old[left[0]], new[right[0]]
        while size != other and (olds or news):
            # which is smaller only steers the search: a run ends where both are provably equal
            if olds and (not news or at_least(other, size) or size.hint() <= other.hint()):
                left.append(olds.pop(0))
                size = size * old[left[-1]]
            else:
                right.append(news.pop(0))
                other = other * new[right[-1]]
        runs.append((left, right))
    if runs:
        runs[-1][0].extend(olds)  # symbolic extents that are 1 although we cannot see it
        runs[-1][1].extend(news)
    return runs


_RESHAPES = of_view(
    (same, [24, 5]), (same, [4, 30]), (same, [-1]), (same, [2, 2, 6, 5]), (same, [4, 2, 3, 5]),
    (same, [8, 3, 5]), (same, [1, 4, 1, 6, 5, 1]), (same, [10, 12]), (same, [3, 8, 5]),
    (lambda x: x.transpose(0, 1), [2, 3, 4, 5]), (lambda x: x.permute(2, 0, 1), [5, 24]),
    (lambda x: x[:, :, 2], [24]), (lambda x: x[1:3, :, :1], [12]), (lambda x: x[:1].expand(7, 6, 5), [7, 30]),
    (lambda x: x[:, :1].expand(4, 9, 5), [2, 2, 3, 3, 5]), (lambda x: x[0, 0, 0], [1, 1]),
    (lambda x: x[:0], [5, 0, 2]), (lambda x: x[:1, :1, :1], []), (lambda x: x[0, 0, :1].expand(6), [2, 3]),
    (lambda x: x.bool(), [6, 20]),
)  # fmt: skip


@lowering(aten.view.default, aten._unsafe_view.default, aten.reshape.default, samples=_RESHAPES)
def view(b: Builder, x: View, shape: Sequence[Any]) -> View:
    """The elements in row-major order, in the shape of the traced result (no -1), whatever their strides."""
    return reshape(b, x, b.result_shape())


@lowering(
    aten.alias.default, aten.detach.default, aten.lift.default, aten.lift_fresh.default,
    samples=of_view((same,), (lambda x: x.transpose(0, 2),), (lambda x: x[1, 2, 3],)),
)  # fmt: skip
def alias(b: Builder, x: View) -> View:
    """``x`` itself: values never change, so to share them is safe."""
    return x


@lowering(
    aten.lift_fresh_copy.default,
    samples=of_view((same,), (lambda x: x.transpose(0, 2),), (lambda x: x.int(),)),
)
def lift_fresh_copy(b: Builder, x: View) -> View:
    """``x`` in memory of its own."""
    return b.copy(x)


@lowering(
    aten.expand.default,
    samples=of_view(
        (lambda x: x[:, :1], [4, 7, 5]), (lambda x: x[:1], [3, -1, 6, -1]), (lambda x: x[0, 0, 0], [2, 3]),
        (lambda x: x[0, 0, 0], []), (lambda x: x[:1, :0], [5, -1, 5]), (lambda x: x[:, :, :1], [0, 4, 6, 1]),
        (lambda x: x[:1], [0, 6, 5]),
    ),
)  # fmt: skip
def expand(b: Builder, x: View, size: Sequence[Any], implicit: bool = False) -> View:
    """``x`` broadcast to the shape of the traced result, which has no -1."""
    return expand_to(b, x, b.result_shape())


def expand_to(b: Builder, x: View, shape: Sequence[IndexExpr]) -> View:
    """``x`` broadcast to ``shape``. SymbolicSizeError where an extent was 1 as the graph was traced, and
    nothing says whether it always is."""
    lead = len(shape) - len(x.axes)
    for old, new in zip(x.shape, shape[lead:], strict=True):
        if old not in (ONE, new) and old.hint() == 1 != new.hint():
            raise SymbolicSizeError(f"{old} is 1, and no guard says so")

    def place(*where: IndexExpr) -> Place:
        return tuple(ZERO if old == ONE else at for at, old in zip(where[lead:], x.shape, strict=True))

    return b.view(x, shape, place)


@lowering(
    aten.unsqueeze.default, samples=of_view((same, 0), (same, -1), (same, 2), (lambda x: x[0, 0, 0], 0))
)
def unsqueeze(b: Builder, x: View, dim: int) -> View:
    """An extent of 1 more, before dimension ``dim``."""
    added = wrap_dim(dim, len(x.axes) + 1)
    return b.view(x, b.result_shape(), lambda *where: where[:added] + where[added + 1 :])


@lowering(
    aten.squeeze.dims,
    samples=of_view((lambda x: x[:1, :, :1], [0, 2]), (lambda x: x[:1], [0, 1]), (lambda x: x[:1, :0], [-3])),
)
def squeeze(b: Builder, x: View, dims: Sequence[int]) -> View:
    """Drop those of ``dims`` that are 1: of symbolic extents that are, the rank of the result tells, or what
    they were when the graph was traced, of which a guard holds whether it was 1."""
    shape, rank = b.result_shape(), len(x.axes)
    asked = {wrap_dim(dim, rank) for dim in dims} if rank else set()
    all_are = len(asked) == rank - len(shape)
    dropped = {dim for dim in asked if all_are or x.shape[dim] == ONE}
    if len(dropped) != rank - len(shape):
        dropped = {dim for dim in asked if x.shape[dim].hint() == 1}
    if len(dropped) != rank - len(shape):
        raise LoweringError("which of its extents is 1 is not known")

    def place(*where: IndexExpr) -> Place:
        kept = iter(where)
        return tuple(ZERO if dim in dropped else next(kept) for dim in range(len(x.axes)))

    return b.view(x, shape, place)


# -- other order ----------------------------------------------------------------------------------


def permuted(b: Builder, x: View, dims: Sequence[int]) -> View:
    """Dimension ``n`` of the result is dimension ``dims[n]`` of ``x``."""
    rank = len(x.axes)
    order = [wrap_dim(dim, rank) for dim in dims]
    return b.view(
        x, [x.shape[dim] for dim in order], lambda *where: [where[order.index(n)] for n in range(rank)]
    )


@lowering(
    aten.permute.default,
    samples=of_view(
        (same, [2, 0, 1]), (same, [-1, -3, -2]), (lambda x: x[0, 0, 0], []), (lambda x: x[:0], [1, 0, 2])
    ),
)
def permute(b: Builder, x: View, dims: Sequence[int]) -> View:
    """Dimension ``n`` of the result is dimension ``dims[n]`` of ``x``; negative ones count from the end."""
    return permuted(b, x, dims)


# -- parts ----------------------------------------------------------------------------------------


def part(b: Builder, x: View, dim: int, shape: Sequence[IndexExpr], start: Index, step: Index = 1) -> View:
    """Every ``step``-th element of ``x`` along ``dim`` from ``start`` on; ``shape`` of the result."""

    def place(*where: IndexExpr) -> Place:
        places = list(where)
        places[dim] = start + where[dim] * step
        return tuple(places)

    return b.view(x, shape, place)


def first_index(b: Builder, start: Any, extent: IndexExpr) -> IndexExpr:
    """A slice's start, None or negative or out of range, as an index. A symbolic one has been compared
    with the size while the graph was captured, so that its hint tells on which side it is: LoweringError for
    one that depends on data."""
    begin = b.size(0 if start is None else start)
    if b.sizes.is_of_data(begin):
        raise LoweringError("a place that depends on data, and may be out of range")
    if symbolic_config.backed_size_oblivious and (begin.constant is None or extent.constant is None):
        facts = b.sizes.facts()
        if not (proves(begin, facts) and proves(extent - begin, facts)):
            raise SymbolicSizeError("a slice may begin beyond the end, and torch is told not to guard that")
    if begin.hint() < 0:
        begin = begin + extent
    if begin.hint() < 0:
        return ZERO
    return extent if begin.hint() > extent.hint() else begin


def slice_bounds(b: Builder, extent: IndexExpr, dim: int, start: Any, end: Any, step: Any) -> IndexExpr:
    """The first index of a slice. Of one whose bounds depend on data, its length is a size of its own, which
    is told here."""
    length = b.result.shape[dim]
    if not b.sizes.is_untold(length):
        return first_index(b, start, extent)
    if step != 1:
        raise LoweringError("a slice in steps between bounds that depend on data")
    first, last = (clipped(b, bound, extent) for bound in (ZERO if start is None else start, end))
    left = last - first
    count = b.sizes.within(f"max(0, {python_text(left)})", (left,), extent - first, left.hint())
    b.sizes.tell(length, count)
    return first


@lowering(
    aten.slice.Tensor,
    samples=of_view(
        (same, 0, 1, 3), (same, 1, 0, 9223372036854775807, 2), (same, 1, -4, -1), (same, -1, 1, 100, 3),
        (same, 2, 3, 1), (same, 0, 9, 12), (same, 0, -100, 2), (same, 0), (same, 1, None, None, 4),
        (lambda x: x.transpose(0, 2)[::2], 0, 1, 3), (lambda x: x[:1].expand(6, 6, 5), 0, 2, 5, 2),
    ),
)  # fmt: skip
def slice_(b: Builder, x: View, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> View:
    """``x[start:end:step]`` along ``dim``; bounds out of range are clipped, as in Python."""
    dim = wrap_dim(dim, len(x.axes))
    first = slice_bounds(b, x.shape[dim], dim, start, end, step)
    return part(b, x, dim, b.result_shape(), first, b.size(step))


@lowering(aten.narrow.default, samples=of_view((same, 0, 1, 2), (same, -1, -3, 2), (same, 1, 6, 0)))
def narrow(b: Builder, x: View, dim: int, start: Any, length: Any) -> View:
    """``length`` elements along ``dim`` from ``start`` on; a negative ``start`` counts from the end."""
    dim = wrap_dim(dim, len(x.axes))
    return part(b, x, dim, b.result_shape(), first_index(b, start, x.shape[dim]))


@lowering(
    aten.select.int,
    samples=of_view(
        (same, 0, 3), (same, -1, -1), (same, 1, 0), (lambda x: x[0, 0], 0, 2), (lambda x: x[:, :0], 0, 2)
    ),
)
def select(b: Builder, x: View, dim: int, place: Any) -> View:
    """The elements at ``place`` along ``dim``, without that dimension; a negative one counts from the end."""
    dim = wrap_dim(dim, len(x.axes))
    at = first_index(b, place, x.shape[dim])
    return b.view(x, b.result_shape(), lambda *where: (*where[:dim], at, *where[dim:]))


@lowering(aten.unbind.int, samples=of_view((same,), (same, -1), (lambda x: x[:2, :0], 0)))
def unbind(b: Builder, x: View, dim: int = 0) -> tuple[View, ...]:
    """One view for each index of ``dim``, without that dimension."""
    dim = wrap_dim(dim, len(x.axes))

    def one(n: int) -> View:
        return b.view(x, b.result_shape(n), lambda *where: (*where[:dim], index(n), *where[dim:]))

    return tuple(one(n) for n in range(len(b.result)))


@lowering(
    aten.split.Tensor,
    samples=of_view((same, 2), (same, 4, 1), (same, 3, -1), (same, 100, 2)),
)  # fmt: skip
@lowering(
    aten.split_with_sizes.default,
    samples=of_view((same, [1, 3]), (same, [2, 0, 4], 1), (same, [5], -1)),
)  # fmt: skip
def split(b: Builder, x: View, sizes: Any, dim: int = 0) -> tuple[View, ...]:
    """Parts along ``dim``, one after another: ``sizes`` is a list, or a number for all but the last, which
    may be shorter."""
    dim = wrap_dim(dim, len(x.axes))
    parts = []
    start = ZERO
    for n in range(len(b.result)):
        shape = b.result_shape(n)
        parts.append(part(b, x, dim, shape, start))
        start = start + shape[dim]
    return tuple(parts)


@lowering(
    aten.diagonal.default,
    samples=of_view(
        (same,), (same, 2, 1, 2), (same, -3, 0, 1), (same, 1, -1, 0), (same, 5, 0, 2), (same, -4, 0, 2)
    ),
)
def diagonal(b: Builder, x: View, offset: int = 0, dim1: int = 0, dim2: int = 1) -> View:
    """The elements whose index in ``dim2`` is ``offset`` above that in ``dim1``, as the last dimension."""
    rank = len(x.axes)
    first, second = wrap_dim(dim1, rank), wrap_dim(dim2, rank)

    def place(*where: IndexExpr) -> Place:
        others = iter(where[:-1])
        ends = {first: where[-1] + max(-offset, 0), second: where[-1] + max(offset, 0)}
        return tuple(ends[n] if n in ends else next(others) for n in range(rank))

    return b.view(x, b.result_shape(), place)


@lowering(
    aten.unfold.default,
    samples=of_view((same, 1, 3, 1), (same, -1, 2, 3), (same, 0, 4, 1), (lambda x: x[0, 0, 0], 0, 1, 1)),
)
def unfold(b: Builder, x: View, dim: int, size: int, step: int) -> View:
    """Windows of ``size`` elements along ``dim``, ``step`` apart, each along a new last dimension."""

    def place(*where: IndexExpr) -> Place:
        if not x.axes:
            return ()
        at = wrap_dim(dim, len(x.axes))
        return (*where[:at], where[at] * step + where[-1], *where[at + 1 : -1])

    return b.view(x, b.result_shape(), place)


# -- any strides ----------------------------------------------------------------------------------


def place_in_memory(
    shape: Sequence[IndexExpr], strides: Sequence[IndexExpr],
    size: Sequence[IndexExpr], steps: Sequence[IndexExpr], start: IndexExpr, where: Sequence[IndexExpr],
) -> Place:  # fmt: skip
    """Indices into a dense tensor of ``shape`` and ``strides`` of the element that is in memory at
    ``start + where * steps``. LoweringError if a view of ``size`` may reach outside of the tensor."""
    places = [ZERO] * len(shape)
    if ZERO in size:
        return tuple(places)
    if ZERO in shape:
        raise LoweringError("as_strided of a tensor without elements reaches outside of it")
    place = last = start
    for at, extent, step in zip(where, size, steps, strict=True):
        place = place + at * step
        last = last + (extent - 1) * step
    if not at_least(start, ZERO) or not at_least(product(shape) - 1, last):
        raise LoweringError("as_strided may reach outside of the tensor")
    for n, step, outermost in _innermost_first(shape, strides):
        along = floordiv(place, step)
        places[n] = along if outermost else mod(along, shape[n])
    return tuple(places)


def _innermost_first(
    shape: Sequence[IndexExpr], strides: Sequence[IndexExpr]
) -> list[tuple[int, IndexExpr, bool]]:
    """(dimension, stride, whether it is the outermost) of a dense tensor, extents of 1 left out."""
    left = [n for n, extent in enumerate(shape) if extent != ONE]
    order: list[tuple[int, IndexExpr, bool]] = []
    step = ONE
    while left:
        n = next(n for n in left if strides[n] == step)
        left.remove(n)
        order.append((n, step, not left))
        step = step * shape[n]
    return order


@lowering(
    aten.as_strided.default,
    samples=of_view(
        (same, [4, 6, 5], [30, 5, 1]), (same, [5, 24], [1, 5]), (same, [3, 4, 2], [30, 5, 2]),
        (same, [10, 3], [2, 1]), (same, [], []), (same, [2, 0], [1, 1]),
        (lambda x: x.permute(1, 2, 0).clone(), [120], [1]), (same, [6, 2], [0, 3]),
    ),
)  # fmt: skip
def as_strided(b: Builder, x: View, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> View:
    """The elements ``offset + where * stride`` of the memory that ``x`` shows; without ``offset``, from where
    ``x`` begins. LoweringError for memory with gaps, a view without strides, what may reach outside, and an
    ``offset`` into an input or constant of the graph."""
    buffer, shape, strided = x.buffer, b.result_shape(), x.strided()
    if strided is None or not is_dense(buffer.shape, buffer.strides):
        raise LoweringError("as_strided of memory with gaps")
    if offset is not None and buffer.role != "temporary":
        raise LoweringError("as_strided counts from the start of an input's storage, which may be earlier")
    start = strided[1] if offset is None else b.size(offset)
    steps = [b.size(step) for step in stride]
    return b.view(
        View.whole(buffer),
        shape,
        lambda *where: place_in_memory(buffer.shape, buffer.strides, shape, steps, start, where),
    )


@lowering(
    aten.view.dtype,
    samples=[
        *of_view((same, torch.float32), (lambda x: x.transpose(0, 1), torch.float32), (same, torch.int32)),
        Sample(
            "f64 as i64", lambda g: ((tensor(g, 3, 4, dtype=torch.float64, special=True), torch.int64), {})
        ),
        Sample("i32 as f32", lambda g: ((tensor(g, 3, 4).view(torch.int32) + 1, torch.float32), {})),
        Sample("transposed", lambda g: ((tensor(g, 4, 3).t(), torch.int32), {})),
    ],
)
def view_dtype(b: Builder, x: View, dtype: torch.dtype) -> View:
    """``x`` itself, or its bits as those of another type of the same size, in :data:`BITCASTS`. LoweringError
    for others."""
    if dtype == x.dtype:
        return x
    if (x.dtype, dtype) not in BITCASTS:
        raise LoweringError(f"no loops that take the bits of {x.dtype} for {dtype}")
    return b.pointwise(lambda value: op("bitcast", value, dtype=dtype), x, compute=x.dtype)


# -- the same, copied -----------------------------------------------------------------------------


def _copied(function: Callable[..., Any]) -> Callable[..., Any]:
    def lower(b: Builder, *args: Any, **kwargs: Any) -> Any:
        shown = function(b, *args, **kwargs)
        return tuple(map(b.copy, shown)) if isinstance(shown, tuple) else b.copy(shown)

    return lower


for _view, _name in (
    (aten.view.default, "view_copy"), (aten.permute.default, "permute_copy"),
    (aten.slice.Tensor, "slice_copy.Tensor"), (aten.select.int, "select_copy.int"),
    (aten.unbind.int, "unbind_copy.int"), (aten.split.Tensor, "split_copy.Tensor"),
    (aten.as_strided.default, "as_strided_copy"), (aten.narrow.default, "narrow_copy"),
):  # fmt: skip
    if (_copy := overload(_name)) is not None:  # not every torch has each of these
        lowering(_copy, samples=lowered(_view).samples)(_copied(lowered(_view).lower))
