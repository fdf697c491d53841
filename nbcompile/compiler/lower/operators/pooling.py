"""Average pooling over small windows: one pointwise loop whose body reads the whole window.

Gradients are gathers too, so no loop writes one element twice: an element of the input sums what the
few windows that cover it send back. Adaptive pooling is a reduction where its windows have one size.
Maxima are in :mod:`nbcompile.compiler.lower.operators.max_pooling`; large windows are library calls.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import (
    MOST_CUT,
    Expr,
    Guarded,
    Number,
    compute_dtype,
    constant,
    index_value,
    op,
)
from nbcompile.compiler.loop_ir.index import ZERO, IndexExpr, at_least, index, within
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.operators.reductions import fold
from nbcompile.compiler.lower.registry import Function, Sample, lowering, overload
from nbcompile.compiler.lower.samples import tensor
from nbcompile.errors import LoweringError

aten = torch.ops.aten

MOST_UNROLLED = 27
"""Windows of up to so many elements (3 by 3 by 3) are written out in one expression."""

Places = tuple[IndexExpr, ...]
Bound = tuple[IndexExpr, IndexExpr, IndexExpr]


@dataclass(frozen=True)
class Windows:
    """Windows over the last dimensions of a tensor; one entry per dimension, in elements."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    input: Places
    output: Places
    overhang: bool = False  # the last window may reach beyond the padding (ceil_mode)

    @classmethod
    def of(
        cls, b: Builder, x: View, out: Sequence[IndexExpr], rank: int, kernel: Any, stride: Any, padding: Any,
        dilation: Any = 1, overhang: bool = False,
    ) -> Windows:  # fmt: skip
        def each(value: Any) -> tuple[int, ...]:
            listed = [value] if isinstance(value, int) else list(value)
            if not all(isinstance(item, int) for item in listed):
                raise LoweringError("a symbolic window")
            return tuple(listed * rank if len(listed) == 1 else listed)

        sizes = each(kernel)
        return cls(
            sizes, each(stride) if stride else sizes, each(padding), each(dilation),
            x.shape[-rank:], tuple(out[-rank:]), overhang,
        )  # fmt: skip

    def along(self, dim: int, input: Places, output: Places) -> Windows:
        """The windows of these over one dimension alone, from ``input`` to ``output``."""

        def only(values: tuple[int, ...], other: int) -> tuple[int, ...]:
            return tuple(value if n == dim else other for n, value in enumerate(values))

        return Windows(
            only(self.kernel, 1), only(self.stride, 1), only(self.padding, 0), only(self.dilation, 1),
            input, output, self.overhang,
        )  # fmt: skip

    def first(self, place: Places, dim: int) -> IndexExpr:
        """Where the window of output element ``place`` starts along ``dim`` (negative: in the padding)."""
        return place[dim] * self.stride[dim] - self.padding[dim]

    def members(self, place: Places, most: int = MOST_UNROLLED) -> Iterator[tuple[Places, tuple[Bound, ...]]]:
        """The input elements under output element ``place`` in row-major order, each with the bounds
        that say whether it is inside the input. LoweringError for more than ``most``."""
        _few(self.kernel, most)
        for offsets in itertools.product(*map(range, self.kernel)):
            source = tuple(
                self.first(place, dim) + offset * self.dilation[dim] for dim, offset in enumerate(offsets)
            )
            yield source, bounds(source, self.input)

    def covering(self, place: Places) -> Iterator[tuple[Places, tuple[Bound, ...]]]:
        """The output elements whose windows may cover input element ``place``, with the bounds that
        say whether they exist and do (for dilation 1)."""
        counts = [
            (k - 1) * d // s + 1 for k, d, s in zip(self.kernel, self.dilation, self.stride, strict=True)
        ]
        _few(counts)
        for back in itertools.product(*map(range, counts)):
            windows, inside = [], []
            for dim, count in enumerate(back):
                window = (place[dim] + self.padding[dim]) // index(self.stride[dim]) - count
                windows.append(window)
                offset = place[dim] - self.first(tuple(windows), dim)
                if self.kernel[dim] % self.stride[dim] and self.dilation[dim] == 1:
                    inside.append((offset, ZERO, index(self.kernel[dim])))
            yield tuple(windows), (*bounds(tuple(windows), self.output), *inside)


def _few(counts: Sequence[int], most: int = MOST_UNROLLED) -> None:
    total = math.prod(counts)
    if total > most:
        raise LoweringError(f"a window of {total} elements is too large to unroll")


def bounds(place: Places, shape: Places) -> tuple[Bound, ...]:
    """What must hold for ``place`` to be inside ``shape``; nothing where it can be proved."""
    return tuple(
        (value, ZERO, extent) for value, extent in zip(place, shape, strict=True) if not within(value, extent)
    )


def guarded(inside: tuple[Bound, ...], value: Callable[[], Expr], outside: Number) -> Expr:
    """``value()`` where the bounds ``inside`` hold, else the number ``outside`` in its dtype."""
    made = value()
    return Guarded(inside, made, constant(outside, made.dtype)) if inside else made


def pooled(
    b: Builder, x: View, windows: Windows, shape: Sequence[IndexExpr],
    fold: Callable[[View, Windows, Places, bool], View],
) -> View:  # fmt: skip
    """What ``fold`` makes of the windows, and whether they are the last: of all at once, or, on a CPU, of
    large ones that overlap along one dimension after the other, the innermost first."""
    rank, size = len(windows.kernel), math.prod(windows.kernel)
    overlap = any(k > s for k, s in zip(windows.kernel, windows.stride, strict=True))
    if b.options.chip.is_gpu or size <= (MOST_CUT if overlap else MOST_UNROLLED):
        return fold(x, windows, tuple(shape), True)
    out = list(x.shape)
    for dim in reversed(range(rank)):
        out[dim - rank] = shape[dim - rank]
        x = fold(x, windows.along(dim, x.shape[-rank:], tuple(out[-rank:])), tuple(out), not dim)
    return x


# -- samples ------------------------------------------------------------------------------------

_PLANS: dict[int, list[tuple[Any, ...]]] = {
    # kernel, stride, padding, ceil_mode
    2: [(2, [], 0, False), ([3, 2], [2, 1], [1, 0], False), (3, 2, 1, True), (3, 1, 1, False),
        (2, 3, 0, False), (5, 1, 2, False), ([5, 4], [2, 1], [1, 2], True), (3, 2, 0, True)],
    3: [(2, [], 0, False), ([1, 3, 2], [1, 2, 1], [0, 1, 1], True)],
}  # fmt: skip
_SHAPES = {2: (2, 2, 7, 6), 3: (1, 2, 4, 7, 5)}


def pool_samples(rank: int, call: Callable[..., tuple[Any, ...]], special: bool) -> list[Sample]:
    """Samples with arguments ``call(g, x, kernel, stride, padding, ceil_mode)``."""
    made: list[Sample] = []

    def add(name: str, x: Callable[[torch.Generator], torch.Tensor], plan: tuple[Any, ...]) -> None:
        made.append(Sample(f"{name}-{plan}", lambda g: (call(g, x(g), *plan), {})))

    shape, plans = _SHAPES[rank], _PLANS[rank]
    for plan in plans:
        add("f32", lambda g: tensor(g, *shape), plan)
    for dtype in (torch.float64, torch.bfloat16)[: 4 - rank]:  # eager has no average of 3-d bfloat16
        add(str(dtype), lambda g, dtype=dtype: tensor(g, *shape, dtype=dtype), plans[1])  # type: ignore[misc]
    add("no batch", lambda g: tensor(g, *shape[1:]), plans[1])
    add("transposed", lambda g: tensor(g, *shape).transpose(-1, -2), plans[0])
    if rank == 2:
        add("channels last", lambda g: tensor(g, *shape).to(memory_format=torch.channels_last), plans[3])
    if special:
        add("special", lambda g: tensor(g, *shape, special=True), plans[-1])
        add("ties", lambda g: tensor(g, *shape).round(), plans[1])
        add("-inf", lambda g: torch.where(tensor(g, *shape) > 2, 1.0, -torch.inf), plans[-1])
    return made


def _gradient_samples(rank: int, forward: Any, count_include_pad: bool = True) -> list[Sample]:
    def call(g: torch.Generator, x: Any, k: Any, s: Any, p: Any, ceil: bool) -> tuple[Any, ...]:
        rest = (k, s, p, ceil, count_include_pad, None)
        return tensor(g, *forward(x, *rest).shape, dtype=x.dtype), x, *rest

    return pool_samples(rank, call, special=False)


def of_ranks(name: str, samples: Mapping[int, list[Sample]]) -> Callable[[Function], Function]:
    """Register ``function(b, rank, ...)`` as the lowering of ``name`` (``"avg_pool{}d"``) over as many
    dimensions, for each number of them that there are ``samples`` of."""

    def register(function: Function) -> Function:
        for rank, given in samples.items():

            def lower(b: Builder, *args: Any, rank: int = rank, **kwargs: Any) -> Any:
                return function(b, rank, *args, **kwargs)

            lowering(overload(name.format(rank)), samples=given)(lower)
        return function

    return register


# -- averages -----------------------------------------------------------------------------------


def _divisor(
    windows: Windows, place: Places, dtype: torch.dtype, include_pad: bool, override: int | None
) -> Expr:
    """How many elements the window of ``place`` counts."""
    if override is not None:
        return constant(override, dtype)
    whole, total = 1, None
    for dim, size in enumerate(windows.kernel):
        first = windows.first(place, dim)
        last, extent = first + size, windows.input[dim]
        low, high = (first, extent + windows.padding[dim]) if include_pad else (ZERO, extent)
        fits = not windows.overhang and (include_pad or not windows.padding[dim])
        if fits or (at_least(first, low) and at_least(high, last)):
            whole *= size
            continue
        start, stop = index_value(first), index_value(last)
        start = start if at_least(first, low) else op("maximum", start, index_value(low))
        stop = stop if at_least(high, last) else op("minimum", stop, index_value(high))
        total = stop - start if total is None else total * (stop - start)
    if total is None:
        return constant(whole, dtype)
    return (total * whole if whole != 1 else total).cast(dtype)


def _average(rank: int) -> list[Sample]:
    plain = pool_samples(rank, lambda g, x, *plan: (x, *plan), special=True)
    inside = pool_samples(rank, lambda g, x, *plan: (x, *plan, False), special=False)
    divided = pool_samples(rank, lambda g, x, *plan: (x, *plan, True, 7), special=False)
    return [*plain, *inside[: len(_PLANS[rank])], *divided[:1]]


@of_ranks("avg_pool{}d", {rank: _average(rank) for rank in _PLANS})
def avg_pool(
    b: Builder, rank: int, x: View, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> View:  # fmt: skip
    """The sum of each window, with 0 for padding, divided by ``divisor_override`` or the number of its
    elements: those in the padding count if ``count_include_pad``, those beyond it (``ceil_mode``) never.
    LoweringError for integers, symbolic windows, and more than ``MOST_UNROLLED`` elements in one, or along
    one dimension on a CPU."""
    shape, compute = b.result_shape(), compute_dtype(x.dtype)
    if not compute.is_floating_point:
        raise LoweringError("average pooling of integers")
    windows = Windows.of(b, x, shape, rank, kernel, stride, padding, overhang=ceil_mode)

    def total(x: View, along: Windows, shape: Places, last: bool) -> View:
        def body(*place: IndexExpr) -> Expr:
            lead, spot = place[:-rank], place[-rank:]
            total: Expr | None = None
            for source, inside in along.members(spot):
                value = guarded(inside, lambda source=source: b.element(x, (*lead, *source), compute), 0.0)  # type: ignore[misc]
                total = value if total is None else total + value
            assert total is not None
            if not last:
                return total
            return total / _divisor(windows, spot, compute, count_include_pad, divisor_override)

        return b.generate(shape, b.result_dtype() if last else compute, body)

    return pooled(b, x, windows, shape, total)


@of_ranks(
    "avg_pool{}d_backward",
    {
        2: _gradient_samples(2, aten.avg_pool2d) + _gradient_samples(2, aten.avg_pool2d, False),
        3: _gradient_samples(3, aten.avg_pool3d),
    },
)
def avg_pool_backward(
    b: Builder, rank: int, grad: View, x: View, kernel: Any, stride: Any, padding: Any, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> View:  # fmt: skip
    """The sum, for each element, of ``grad / divisor`` of the windows that cover it. LoweringError for
    symbolic windows, and where more than ``MOST_UNROLLED`` may cover an element."""
    shape, compute = b.result_shape(), compute_dtype(x.dtype)
    windows = Windows.of(b, x, grad.shape, rank, kernel, stride, padding, overhang=ceil_mode)

    def body(*place: IndexExpr) -> Expr:
        lead, spot = place[:-rank], place[-rank:]
        total: Expr | None = None
        for window, inside in windows.covering(spot):

            def part(window: Places = window) -> Expr:
                divisor = _divisor(windows, window, compute, count_include_pad, divisor_override)
                return b.element(grad, (*lead, *window), compute) / divisor

            value = guarded(inside, part, 0.0)
            total = value if total is None else total + value
        assert total is not None
        return total

    return b.generate(shape, b.result_dtype(), body)


# -- averages of as many windows as asked for ---------------------------------------------------


def _adaptive_samples(*shapes: tuple[tuple[int, ...], list[int]]) -> list[Sample]:
    def make(shape: tuple[int, ...], size: list[int], dtype: torch.dtype) -> Sample:
        return Sample(f"{shape}-{size}-{dtype}", lambda g: ((tensor(g, *shape, dtype=dtype), size), {}))

    return [make(*item, torch.float32) for item in shapes] + [make(*shapes[0], torch.bfloat16)]


def _adaptive_sizes(x: View, out: Sequence[IndexExpr], rank: int) -> list[tuple[int, int]]:
    """(input, output) extents of the last dimensions, which must be plain numbers."""
    if not x.dtype.is_floating_point:
        raise LoweringError("pooling of integers")
    pairs = []
    for extent, count in zip(x.shape[-rank:], out[-rank:], strict=True):
        if extent.constant is None or count.constant is None or not count.constant:
            raise LoweringError("adaptive pooling of a symbolic size")
        if not extent.constant:
            raise LoweringError("adaptive pooling of no elements, which eager refuses")
        pairs.append((extent.constant, count.constant))
    return pairs


@of_ranks(
    "_adaptive_avg_pool{}d",
    {
        2: _adaptive_samples(
            ((2, 3, 8, 6), [2, 3]), ((2, 3, 5, 7), [1, 1]), ((3, 7, 5), [3, 2]), ((1, 2, 3, 4), [5, 4])
        ),
        3: _adaptive_samples(
            ((1, 2, 4, 6, 2), [2, 3, 1]), ((2, 3, 2, 3, 4), [1, 1, 1]), ((1, 2, 3, 2, 2), [2, 2, 2])
        ),
    },
)
def adaptive_avg_pool(b: Builder, rank: int, x: View, size: Any) -> View:
    """Averages of windows that cover the input: of ``n`` elements, window ``i`` of ``m`` has those from
    ``i * n // m`` to before ``ceil((i + 1) * n / m)``. LoweringError for integers, symbolic sizes, an empty
    result, and more than ``MOST_UNROLLED`` elements in windows that differ in size."""
    shape, compute = b.result_shape(), compute_dtype(x.dtype)
    pairs = _adaptive_sizes(x, shape, rank)
    lead_rank = len(shape) - rank
    if all(extent % count == 0 for extent, count in pairs):  # windows of one size: a reduction
        sizes = [extent // count for extent, count in pairs]
        count = math.prod(sizes)

        def window(*place: IndexExpr) -> list[IndexExpr]:
            lead, spot, offset = place[:lead_rank], place[lead_rank:-rank], place[-rank:]
            return [*lead, *(s * n + o for s, n, o in zip(spot, sizes, offset, strict=True))]

        split = b.view(x, [*shape, *map(index, sizes)], window)
        dims = range(len(shape), len(shape) + rank)
        total = fold(b, "sum", split, dims, dtype=compute, name="sum")
        return b.pointwise(lambda total: total / count, total)

    _few([-(-extent // count) + 1 for extent, count in pairs])

    def body(*place: IndexExpr) -> Expr:
        lead, spot = place[:-rank], place[-rank:]
        spans = [_adaptive_window(s, n, m) for s, (n, m) in zip(spot, pairs, strict=True)]
        total: Expr = constant(0.0, compute)
        for offsets in itertools.product(*(range(-(-n // m) + 1) for n, m in pairs)):
            source = tuple(start + offset for (start, _), offset in zip(spans, offsets, strict=True))
            inside = tuple((value, ZERO, stop) for value, (_, stop) in zip(source, spans, strict=True))
            total = total + guarded(inside, lambda s=source: b.element(x, (*lead, *s), compute), 0.0)  # type: ignore[misc]
        for start, stop in spans:
            total = total / index_value(stop - start).cast(compute)
        return total

    return b.generate(shape, b.result_dtype(), body)


def _adaptive_gradient_samples(*shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> list[Sample]:
    return [
        Sample(f"{grad}-{x}", lambda g, grad=grad, x=x: ((tensor(g, *grad), tensor(g, *x)), {}))  # type: ignore[misc]
        for grad, x in shapes
    ]


@of_ranks(
    "_adaptive_avg_pool{}d_backward",
    {
        2: _adaptive_gradient_samples(
            ((2, 3, 2, 3), (2, 3, 8, 6)), ((2, 3, 1, 1), (2, 3, 5, 7)), ((1, 2, 3, 4), (1, 2, 8, 6)),
            ((3, 5, 2), (3, 3, 5)),
        ),
        3: _adaptive_gradient_samples(
            ((1, 2, 2, 3, 1), (1, 2, 4, 6, 2)), ((2, 3, 1, 1, 1), (2, 3, 2, 3, 4))
        ),
    },
)  # fmt: skip
def adaptive_avg_pool_backward(b: Builder, rank: int, grad: View, x: View) -> View:
    """The sum, for each element, of ``grad / size`` of the windows that cover it. LoweringError as for
    :func:`adaptive_avg_pool`, but by how many may cover an element."""
    shape, compute = b.result_shape(), compute_dtype(x.dtype)
    pairs = _adaptive_sizes(x, grad.shape, rank)
    if any(extent % count for extent, count in pairs):
        return _uneven_gradient(b, rank, grad, x, pairs)
    sizes = [extent // count for extent, count in pairs]
    count = math.prod(sizes)

    def body(*place: IndexExpr) -> Expr:
        spot = (p // index(size) for p, size in zip(place[-rank:], sizes, strict=True))
        return b.element(grad, (*place[:-rank], *spot), compute) / count

    return b.generate(shape, b.result_dtype(), body)


def _uneven_gradient(b: Builder, rank: int, grad: View, x: View, pairs: list[tuple[int, int]]) -> View:
    """The gradient where windows differ in size and overlap: of ``n`` elements in ``m`` windows, window
    ``w`` is ``w * n // m <= i < -(-(w + 1) * n // m)``, so element ``i`` is in the windows from
    ``i * m // n`` to ``((i + 1) * m - 1) // n``."""
    compute = compute_dtype(x.dtype)
    counts = [-(-m // n) + 1 for n, m in pairs]
    _few(counts)

    def body(*place: IndexExpr) -> Expr:
        lead, spot = place[:-rank], place[-rank:]
        total: Expr = constant(0.0, compute)
        for offsets in itertools.product(*map(range, counts)):
            windows = tuple(i * m // index(n) + o for i, o, (n, m) in zip(spot, offsets, pairs, strict=True))
            lasts = [((i + 1) * m - 1) // index(n) + 1 for i, (n, m) in zip(spot, pairs, strict=True)]

            def part(windows: Places = windows) -> Expr:
                value = b.element(grad, (*lead, *windows), compute)
                for window, (n, m) in zip(windows, pairs, strict=True):
                    start, stop = _adaptive_window(window, n, m)
                    value = value / index_value(stop - start).cast(compute)
                return value

            inside = tuple((w, ZERO, last) for w, last in zip(windows, lasts, strict=True))
            total = total + guarded(inside, part, 0.0)
        return total

    return b.generate(b.result_shape(), b.result_dtype(), body)


def _adaptive_window(window: IndexExpr, extent: int, count: int) -> tuple[IndexExpr, IndexExpr]:
    """First and one past the last of ``extent`` elements in one of ``count`` windows."""
    return window * extent // index(count), ((window + 1) * extent + (count - 1)) // index(count)
