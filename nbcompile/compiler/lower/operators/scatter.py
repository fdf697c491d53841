"""Tensors of which the elements named by tensors of indices are replaced or added to.

The points of a scatter are taken in row-major order, one after the other, so that where two points
name one element the result is always the same: the last one stays, sums are made in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from nbcompile.compiler.loop_ir.expr import Expr, Number, compute_dtype, constant, index_value, op
from nbcompile.compiler.loop_ir.expr import where as choose
from nbcompile.compiler.loop_ir.index import ONE, ZERO, IndexExpr, product
from nbcompile.compiler.loop_ir.nodes import ScatterMode, View
from nbcompile.compiler.lower import unread_indices
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.fitting import require, require_fit, require_number
from nbcompile.compiler.lower.operators.creation import filled
from nbcompile.compiler.lower.operators.gather import along, indexed, position, some
from nbcompile.compiler.lower.operators.shape import Place, expand_to, regroup, wrap_dim
from nbcompile.compiler.lower.registry import Sample, lowering
from nbcompile.compiler.lower.samples import call, calls
from nbcompile.compiler.lower.scatter_to_gather import scattered
from nbcompile.errors import LoweringError

aten = torch.ops.aten
MODES: dict[str, ScatterMode] = {
    "add": "add", "sum": "add", "mean": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min",
}  # fmt: skip


# -- x[indices] = values --------------------------------------------------------------------------
_INDEX_PUT = calls(
    set=lambda draw: call(draw(7, 5, special=True), [some(draw, 3, below=7, negative=True)], draw(3, 5)),
    add=lambda draw: call(draw(7, 5), [some(draw, 9, below=7, negative=True)], draw(9, 5), True),
    number=lambda draw: call(draw(7, 5), [some(draw, 3, below=7), None], draw()),
    broadcast=lambda draw: call(draw(7, 5), [some(draw, 3, below=7)], draw(5), True),
    second=lambda draw: call(draw(4, 5), [None, some(draw, 2, 3, below=5)], draw(4, 1, 3), True),
    both=lambda draw: call(draw(7, 5), [some(draw, 4, 1, below=7), some(draw, 3, below=5)], draw(4, 3)),
    apart=lambda draw: call(
        draw(4, 5, 6), [some(draw, 3, below=4), None, some(draw, 2, 1, below=6)], draw(2, 3, 5), True
    ),
    transposed=lambda draw: call(draw(5, 7).t(), [some(draw, 9, below=7)], draw(9, 5), True),
    integers=lambda draw: call(
        draw(7, dtype=torch.int32), [some(draw, 9, below=7)], draw(9, dtype=torch.int32), True
    ),
    half=lambda draw: call(
        draw(7, dtype=torch.bfloat16), [some(draw, 9, below=7)], draw(9, dtype=torch.bfloat16), True
    ),
    bools=lambda draw: call(
        draw(7, dtype=torch.bool), [some(draw, 4, below=7)], draw(4, dtype=torch.bool), True
    ),
    scalar_index=lambda draw: call(draw(7, 5), [some(draw, below=7)], draw(5)),
    none=lambda draw: call(draw(7, 5), [some(draw, 0, below=7)], draw(0, 5)),
    mask_number=lambda draw: call(draw(7, 5, special=True), [draw(7, 5, dtype=torch.bool)], draw()),
    mask_one=lambda draw: call(draw(7, 5), [draw(7, 5, dtype=torch.bool)], draw(1), True),
    mask_rows=lambda draw: call(draw(7, 5), [draw(7, dtype=torch.bool)], draw(1, 5)),
    mask_columns=lambda draw: call(draw(7, 5), [None, draw(5, dtype=torch.bool)], draw(7, 1)),
    mask_integers=lambda draw: call(
        draw(7, dtype=torch.uint8), [draw(7, dtype=torch.bool)], draw(dtype=torch.uint8)
    ),
)


@lowering(aten.index_put.default, samples=_INDEX_PUT)
def index_put(
    b: Builder, x: View, indices: Sequence[View | None], values: View, accumulate: bool = False
) -> View:
    """``x[indices] = values`` or ``+=``. LoweringError for values that may not fit, and for most masks."""
    given = [(dim, picked) for dim, picked in enumerate(indices) if picked is not None]
    if len(given) == 1 and given[0][1].dtype == torch.bool:
        return _masked_put(b, x, *given[0], values, accumulate)
    shape, place = indexed(b, x.shape, indices)
    require(b, values.shape, shape, "values", broadcast=True)
    shown = expand_to(b, values, shape)
    return scattered(b, x, shape, "add" if accumulate else "set", place, elements(b, shown, x))


def elements(b: Builder, source: View, x: View) -> Callable[..., Expr]:
    """The elements of ``source``, in the type that values of ``x`` are computed in."""
    return lambda *where: b.element(source, where, compute_dtype(x.dtype))


def _masked_put(b: Builder, x: View, dim: int, mask: View, values: View, accumulate: bool) -> View:
    """``x[mask] = values`` where the values do not depend on how many elements the mask picks."""
    dims = range(dim, dim + len(mask.axes))
    picked = dim - (len(x.axes) - len(dims) + 1 - len(values.axes))  # the picked dimension in values
    if picked >= 0 and values.shape[picked] != ONE:
        raise LoweringError("which value goes where depends on the mask's data")
    require_fit(values.dtype, x.dtype)
    require(b, mask.shape, x.shape[dim : dims.stop], "a mask")
    require(b, values.shape, (*x.shape[:dim], ONE, *x.shape[dims.stop :]), "values", broadcast=True)

    def body(*where: IndexExpr) -> Expr:
        new = b.element(values, (*where[:dim], ZERO, *where[dims.stop :]), compute_dtype(x.dtype))
        old = b.element(x, where)
        if accumulate:
            new = op("or", old, new) if x.dtype == torch.bool else old + new
        return choose(b.element(mask, where[dim : dims.stop]), new, old)

    return b.generate(x.shape, x.dtype, body)


@lowering(
    aten.put.default,
    samples=calls(
        set=lambda draw: call(
            draw(7, 5), some(draw, 2, 2, below=35, negative=True), draw(2, 2, special=True)
        ),
        add=lambda draw: call(draw(7, 5), some(draw, 20, below=35), draw(20), True),
        reshaped=lambda draw: call(draw(7, 5), some(draw, 2, 3, below=35), draw(3, 2).t().t(), True),
        none=lambda draw: call(draw(7, 5), some(draw, 0, below=35), draw(0)),
    ),
)
def put(b: Builder, x: View, picked: View, source: View, accumulate: bool = False) -> View:
    """``x.view(-1)[picked] = source`` or ``+=``. LoweringError unless both surely have as many elements."""
    size = product(x.shape)
    require(b, (product(source.shape),), (product(picked.shape),), "a source")

    def target(*where: IndexExpr) -> Place:
        at = position(b, picked, where, size, wrap=True)
        if size == ONE:
            unread_indices.require_checked(b, at)
        return regroup(x.shape, (size,), (at,))

    return scattered(
        b,
        x,
        picked.shape,
        "add" if accumulate else "set",
        target,
        lambda *where: b.element(source, regroup(source.shape, picked.shape, where), compute_dtype(x.dtype)),
    )


# -- along one dimension --------------------------------------------------------------------------


def target_along(b: Builder, x: View, dim: int, picked: View) -> Callable[..., Place]:
    """The place in ``x`` of a point of ``picked``: its own, but for ``dim``."""

    def target(*where: IndexExpr) -> Place:
        if x.axes:
            return along(dim, where, position(b, picked, where, x.shape[dim]))
        unread_indices.require_checked(b, position(b, picked, where if picked.axes else (), ONE))
        return ()

    return target


def of_point(b: Builder, src: View, where: Sequence[IndexExpr], compute: torch.dtype) -> Expr:
    """Element ``where`` of ``src``; a 0-d tensor and one of one element stand for each other."""
    return b.element(src, where if len(where) == len(src.axes) else [ZERO] * len(src.axes), compute)


def _scattered(b: Builder, x: View, dim: int, picked: View, src: View | Number, mode: ScatterMode) -> View:
    dim = wrap_dim(dim, len(x.axes))
    compute = compute_dtype(x.dtype)

    def value(*where: IndexExpr) -> Expr:
        if isinstance(src, View):
            return of_point(b, src, where, compute)
        return constant(constant(src, x.dtype).value, compute)

    if ZERO in picked.shape:
        return b.copy(x)  # whatever its rank, no index names nothing
    if b.options.chip.is_gpu and mode in ("set", "add") and _one_a_line(x, dim, picked):
        return _chosen(b, x, dim, picked, value, mode)
    return scattered(b, x, picked.shape, mode, target_along(b, x, dim, picked), value, wide=True)


def _one_a_line(x: View, dim: int, picked: View) -> bool:
    """Whether exactly one element of each line along ``dim`` is named."""
    if len(picked.axes) != len(x.axes) or not x.axes or picked.shape[dim] != ONE:
        return False
    return all(n == dim or picked.shape[n] == extent for n, extent in enumerate(x.shape))


def _chosen(
    b: Builder, x: View, dim: int, picked: View, value: Callable[..., Expr], mode: ScatterMode
) -> View:
    """A choice at each element, fused with what stands around it. An index out of range names none."""
    compute = compute_dtype(x.dtype)

    def body(*where: IndexExpr) -> Expr:
        first = (*where[:dim], ZERO, *where[dim + 1 :])
        new, old = value(*first), b.element(x, where, compute)
        if mode == "add":
            new = op("or", old, new) if x.dtype == torch.bool else old + new
        return choose(b.element(picked, first, torch.int64).eq(index_value(where[dim])), new, old)

    return b.generate(x.shape, x.dtype, body)


_SCATTER_SRC = calls(
    rows=lambda draw: call(draw(7, 5), 0, distinct(7, 3, 5), draw(3, 5, special=True)),
    columns=lambda draw: call(draw(5, 7).t(), -1, distinct(5, 5, 6).t(), draw(8, 9)),
    middle=lambda draw: call(draw(4, 5, 6), 1, some(draw, 2, 3, 4, below=5), draw(2, 3, 4)),
    vector=lambda draw: call(draw(5), 0, some(draw, below=5), draw()),
    none=lambda draw: call(draw(7, 5), 0, some(draw, 0, below=7), draw(3, 5)),
    half=lambda draw: call(
        draw(7, dtype=torch.float16), 0, some(draw, 4, below=7), draw(4, dtype=torch.float16)
    ),
    integers=lambda draw: call(
        draw(7, dtype=torch.int64), 0, some(draw, 4, below=7), draw(9, dtype=torch.int64)
    ),
)
_SCATTER_VALUE = calls(
    rows=lambda draw: call(draw(7, 5, special=True), 0, some(draw, 3, 5, below=7), 1.5),
    integers=lambda draw: call(draw(7, dtype=torch.int32), 0, some(draw, 3, below=7), 2.75),
    nan=lambda draw: call(draw(4, 5), 1, some(draw, 4, 2, below=5), float("nan")),
    half=lambda draw: call(draw(7, dtype=torch.bfloat16), 0, some(draw, 3, below=7), 0.1),
    one_a_row=lambda draw: call(draw(7, 5), 1, some(draw, 7, 1, below=5), -1.0),
    one_a_column=lambda draw: call(draw(7, 5).t(), 1, some(draw, 5, 1, below=7), 0.5),
)


def distinct(below: int, *shape: int) -> torch.Tensor:
    """Indices that do not repeat along the first dimension."""
    step = torch.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    return ((step * 2 + 1) % below).expand(shape).contiguous()


@lowering(aten.scatter.src, samples=_SCATTER_SRC)
def scatter_src(b: Builder, x: View, dim: int, picked: View, src: View) -> View:
    """``out[picked[i, j], j] = src[i, j]`` for ``dim`` 0; negative indices do not count from the end."""
    return _scattered(b, x, dim, picked, src, "set")


@lowering(aten.scatter.value, samples=_SCATTER_VALUE)
def scatter_value(b: Builder, x: View, dim: int, picked: View, value: Number) -> View:
    """As :func:`scatter_src` with one number, converted to the dtype of ``x``."""
    require_number(value, x.dtype)
    return _scattered(b, x, dim, picked, value, "set")


def _with_reduce(samples: Sequence[Sample]) -> list[Sample]:
    def reducing(sample: Sample, reduce: str) -> Sample:
        return Sample(f"{sample.name}-{reduce}", lambda g: (sample.make(g)[0], {"reduce": reduce}))

    return [reducing(sample, reduce) for sample in samples for reduce in ("add", "multiply")]


@lowering(aten.scatter.reduce, samples=_with_reduce(_SCATTER_SRC))
@lowering(aten.scatter.value_reduce, samples=_with_reduce(_SCATTER_VALUE))
def scatter_with(b: Builder, x: View, dim: int, picked: View, src: View | Number, *, reduce: str) -> View:
    """As :func:`scatter_src`, but what is there is added to or multiplied ("add" or "multiply")."""
    return _scattered(b, x, dim, picked, src, MODES[reduce])


@lowering(aten.scatter_add.default, samples=_SCATTER_SRC)
def scatter_add(b: Builder, x: View, dim: int, picked: View, src: View) -> View:
    """``out[picked[i, j], j] += src[i, j]`` for ``dim`` 0; of bools the logical or."""
    return _scattered(b, x, dim, picked, src, "add")


# -- any reduction --------------------------------------------------------------------------------


def neutral(mode: ScatterMode, dtype: torch.dtype) -> Number:
    """What leaves every value as it is when combined with it."""
    if mode in ("add", "set"):
        return 0
    if mode == "mul":
        return 1
    if dtype == torch.bool:
        return mode == "min"
    if dtype.is_floating_point:
        return float("-inf") if mode == "max" else float("inf")
    info = torch.iinfo(dtype)
    return info.min if mode == "max" else info.max


def reduced(
    b: Builder, x: View, shape: Sequence[IndexExpr], reduce: str, include_self: bool,
    target: Callable[..., Place], value: Callable[..., Expr],
) -> View:  # fmt: skip
    """``x`` with points combined into their targets, which start from nothing if not ``include_self``."""
    b.check_native(x)
    mode, compute, start = MODES[reduce], compute_dtype(x.dtype), x
    if not include_self:
        nothing = constant(neutral(mode, x.dtype), compute)
        start = scattered(b, x, shape, "set", target, lambda *_: nothing)
    made = scattered(b, start, shape, mode, target, value, wide=True)
    if reduce != "mean":
        return made
    first = filled(b, x.shape, int(include_self), torch.int64)
    count = scattered(b, first, shape, "add", target, lambda *_: constant(1, torch.int64))

    def divide(*where: IndexExpr) -> Expr:
        times = op("maximum", b.element(count, where), constant(1, torch.int64)).cast(compute)
        return op("div" if compute.is_floating_point else "floordiv", b.element(made, where), times)

    return b.generate(x.shape, x.dtype, divide)


def _each_reduction(samples: Callable[[str, bool], Sequence[Sample]], *names: str) -> list[Sample]:
    return [
        Sample(f"{sample.name}-{name}-{'with' if include else 'without'}-self", sample.make)
        for name in names
        for include in (True, False)
        for sample in samples(name, include)
    ]


@lowering(
    aten.scatter_reduce.two,
    samples=_each_reduction(
        lambda name, include: calls(
            rows=lambda draw: call(
                draw(7, 5, special=True), 0, some(draw, 9, 5, below=7), draw(9, 5), name, include_self=include
            ),
            special=lambda draw: call(
                draw(5, 3), 1, some(draw, 4, 9, below=3), draw(4, 9, special=True), name, include_self=include
            ),
            integers=lambda draw: call(
                draw(5, dtype=torch.int64), -1, some(draw, 9, below=5), draw(9, dtype=torch.int64), name,
                include_self=include,
            ),
            half=lambda draw: call(
                draw(5, dtype=torch.bfloat16), 0, some(draw, 4, below=5), draw(4, dtype=torch.bfloat16), name,
                include_self=include,
            ),
            none=lambda draw: call(
                draw(7, 5), 0, some(draw, 0, below=7), draw(3, 5), name, include_self=include
            ),
        ),
        "sum", "prod", "amax", "amin", "mean",
    ),
)  # fmt: skip
def scatter_reduce(
    b: Builder, x: View, dim: int, picked: View, src: View, reduce: str, *, include_self: bool = True
) -> View:
    """By "sum", "prod", "amax", "amin", or "mean", which rounds integers down; see :func:`reduced`."""
    dim = wrap_dim(dim, len(x.axes))
    if ZERO in picked.shape:
        return b.copy(x)
    return reduced(
        b, x, picked.shape, reduce, include_self,
        target_along(b, x, dim, picked),
        lambda *where: of_point(b, src, where, compute_dtype(x.dtype)),
    )  # fmt: skip
