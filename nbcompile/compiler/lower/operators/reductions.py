"""Reductions: one loop each, or two where the result is a function of a sum (mean, var, norms).

Selections (sort, topk, median, mode, kthvalue, nonzero ...) are library calls, see
:mod:`nbcompile.compiler.lower.operators.library`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from nbcompile.compiler.loop_ir.expr import Expr, Number, as_held, compute_dtype, constant, index_value, op
from nbcompile.compiler.loop_ir.index import ONE, ZERO, IndexExpr, Size, product
from nbcompile.compiler.loop_ir.nodes import ReductionKind, View
from nbcompile.compiler.lower.builder import Builder, normalize_dims, unsqueeze_dims
from nbcompile.compiler.lower.registry import Sample, lowering, overload
from nbcompile.compiler.lower.samples import tensor
from nbcompile.errors import LoweringError

aten = torch.ops.aten

Dims = Sequence[int] | int | None
MANY_ROWS = 256
"""Elements of a column from which two sums, shared out along them, are faster than a strip at a time."""
_FLOAT_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def fold(
    b: Builder,
    kind: ReductionKind,
    x: View,
    dims: Dims,
    *,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
    body: Callable[..., Expr] | None = None,
    name: str = "",
    output: int = 0,
) -> View:
    """:meth:`Builder.reduce`, also of a 0-d tensor: a reduction over no axis is a pointwise loop."""
    places = normalize_dims(dims, len(x.axes))
    if places:
        return b.reduce(kind, x, places, keepdim=keepdim, dtype=dtype, body=body, name=name, output=output)
    dtype = dtype if dtype is not None else b.result_dtype(output)

    def single(*where: IndexExpr) -> Expr:
        if kind in ("argmax", "argmin"):
            return constant(0, torch.int64)
        value = b.element(x, where)
        return body(value, *where) if body is not None else value

    return b.generate(x.shape, dtype, single, name=name, output=output)


def count_value(count: IndexExpr, dtype: torch.dtype, less: Number = 0) -> Expr:
    """The number of elements ``count``, less ``less`` but at least 0, as a scalar of ``dtype``."""
    if count.constant is not None:
        return constant(max(count.constant - less, 0), dtype)
    value = index_value(count).cast(dtype)
    return op("maximum", value - less, 0) if less else value


def spread_out(result: View, x: View, dims: Dims, keepdim: bool = True) -> View:
    """``result``, reduced from ``x`` over ``dims``, with these as dimensions of extent 1 again.

    What is computed of a reduction's result is computed without them, then shown with them: so its
    loop has the very axes that the reduction keeps.
    """
    return unsqueeze_dims(result, normalize_dims(dims, len(x.axes))) if keepdim else result


def counted(x: View, places: Sequence[int]) -> IndexExpr:
    """How many elements of ``x`` are reduced into one over the dimensions at ``places``: 1 if there are
    none. (ATen's ``dims``, where an empty list means all, go through ``normalize_dims`` first.)"""
    return product(x.shape[place] for place in places)


def _conversion(x: View, dtype: torch.dtype) -> Callable[..., Expr]:
    """What eager does to each element first where the result's ``dtype`` is not that of ``x``: convert
    it, with rounding, and then to the type that values of ``dtype`` are computed in."""

    def body(value: Expr, *where: IndexExpr) -> Expr:
        return value if x.dtype == dtype else value.cast(dtype).cast(compute_dtype(dtype))

    return body


# -- samples ------------------------------------------------------------------------------------


def _samples(
    calls: Sequence[tuple[tuple[Any, ...], dict[str, Any]]],
    dtypes: Sequence[torch.dtype] = _FLOAT_TYPES,
    *,
    empty: Sequence[tuple[Any, ...]] = (),
    scalar: tuple[Any, ...] | None = (),
    low: float = -4,
    high: float = 4,
) -> list[Sample]:
    """Samples of ``f(x, *args, **kwargs)`` of a 3-d ``x`` for each call and dtype, and with awkward
    inputs for the first call: special values, strided, expanded, 0-d, empty."""
    made: list[Sample] = []

    def add(name: str, view: Callable[[torch.Generator], torch.Tensor], args: Any, kwargs: Any) -> None:
        made.append(Sample(name, lambda g: ((view(g), *args), kwargs)))

    def draw(g: torch.Generator, *shape: int, dtype: torch.dtype = dtypes[0], special: bool = False) -> Any:
        return tensor(g, *shape, dtype=dtype, special=special, low=low, high=high)

    first_args, first_kwargs = calls[0]
    for place, (args, kwargs) in enumerate(calls):
        for dtype in dtypes if place == 0 else dtypes[:1]:
            add(f"{dtype}-{args}-{kwargs}", lambda g, d=dtype: draw(g, 3, 7, 5, dtype=d), args, kwargs)  # type: ignore[misc]
    add("special", lambda g: draw(g, 3, 7, 5, special=True), *calls[0])
    add("special-last", lambda g: draw(g, 3, 7, 5, special=True), *calls[-1])
    add("transposed", lambda g: draw(g, 5, 7, 3).transpose(0, 2), first_args, first_kwargs)
    add("strided", lambda g: draw(g, 3, 14, 9)[:, ::2, 1:6], first_args, first_kwargs)
    add("expanded", lambda g: draw(g, 1, 7, 1).expand(3, 7, 5), first_args, first_kwargs)
    if scalar is not None:
        add("0-d", lambda g: draw(g), scalar, {})
    for args in empty:
        add(f"empty-{args}", lambda g: draw(g, 3, 0, 5), args, {})
    return made


_DIMS = [
    (([1],), {}), (([-1],), {"keepdim": True}), (([0, 2],), {}), (([0, 1],), {"keepdim": True}),
    ((None,), {}), (([],), {"keepdim": True}),
]  # fmt: skip
_DIM = [((1,), {}), ((-1,), {"keepdim": True}), ((0,), {})]
_INTS = (torch.int64, torch.int32, torch.uint8, torch.bool)


# -- sums and products --------------------------------------------------------------------------


def _folded(b: Builder, kind: ReductionKind, x: View, dims: Dims, keepdim: bool) -> View:
    wide = b.result_dtype()
    if wide == torch.bool:
        raise LoweringError("a sum or product kept as bool")
    return fold(b, kind, x, dims, keepdim=keepdim, body=_conversion(x, wide))


@lowering(
    aten.sum.dim_IntList,
    samples=_samples(
        [*_DIMS, (([1],), {"dtype": torch.float64}), (([1],), {"dtype": torch.bfloat16}),
         (([1],), {"dtype": torch.int32})],
        (*_FLOAT_TYPES, *_INTS), empty=[([1],), ([0],)], scalar=([0],),
    ),
)  # fmt: skip
def sum_dims(
    b: Builder, x: View, dims: Dims, keepdim: bool = False, dtype: torch.dtype | None = None
) -> View:
    """The sum over ``dims``, all of them for None or an empty list; 0 of nothing. Elements are converted to
    the result's dtype first (integers to int64 by default). LoweringError for a sum kept as bool."""
    return _folded(b, "sum", x, dims, keepdim)


_WIDENED: list[Any] = [((), {}), ((), {"dtype": torch.float64})]


@lowering(
    aten.prod.dim_int,
    samples=_samples(
        [*_DIM, ((1,), {"dtype": torch.float64})], (*_FLOAT_TYPES, *_INTS), empty=[(1,)], scalar=(0,)
    ),
)
@lowering(
    aten.prod.default, samples=_samples(_WIDENED, (*_FLOAT_TYPES, *_INTS), empty=[()], low=-1.5, high=1.5)
)
def prod(
    b: Builder, x: View, dims: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> View:
    """The product over one dimension or all; 1 of nothing. Dtypes as for :func:`sum_dims`."""
    return _folded(b, "prod", x, dims, keepdim)


@lowering(
    aten.mean.dim,
    samples=_samples([*_DIMS, (([1],), {"dtype": torch.float64})], empty=[([1],), ([0],)], scalar=([-1],)),
)
@lowering(aten.mean.default, samples=_samples(_WIDENED, empty=[()]))
def mean(
    b: Builder, x: View, dims: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> View:
    """The sum over ``dims`` (None or empty: all) by the count, in float32 for half types; NaN of nothing."""
    wide = b.result_dtype()
    compute = compute_dtype(wide)
    count = counted(x, normalize_dims(dims, len(x.axes)))
    total = fold(b, "sum", x, dims, dtype=compute, body=_conversion(x, wide), name="sum")
    average = b.pointwise(lambda total: total / count_value(count, compute), total)
    return spread_out(average, x, dims, keepdim)


# -- extremes -----------------------------------------------------------------------------------


_EXTREME_TYPES = (*_FLOAT_TYPES, *_INTS)
_TIES = [Sample("ties", lambda g: ((torch.randint(0, 3, (4, 30), generator=g).float(), 1), {}))]
_PLACES = [*_DIM, ((), {}), ((None, True), {})]


def _check_not_empty(x: View, dims: Dims) -> None:
    """LoweringError where there are no elements, or may be none, as data decide: eager raises an error."""
    for place in normalize_dims(dims, len(x.axes)):
        if x.shape[place] == ZERO or any(
            isinstance(atom, Size) and not atom.least for atom in x.shape[place].atoms()
        ):
            raise LoweringError("there may be no elements, and eager refuses an extreme of none")


def _extremes(kind: Literal["max", "min"], of_bool: ReductionKind, place: ReductionKind) -> None:
    """The reductions of one ``kind``: its values, their places (``place``), and both."""

    @lowering(
        overload(f"a{kind}"),
        samples=_samples([*_DIMS[:4], (([],), {})], _EXTREME_TYPES, scalar=([0],), empty=[([0],)]),
    )
    @lowering(overload(kind), samples=_samples([((), {})], _EXTREME_TYPES))
    def values(b: Builder, x: View, dims: Dims = (), keepdim: bool = False) -> View:
        _check_not_empty(x, dims)
        return fold(b, of_bool if x.dtype == torch.bool else kind, x, dims, keepdim=keepdim)

    @lowering(overload(f"arg{kind}"), samples=[*_samples(_PLACES, _EXTREME_TYPES[:-1], empty=[(0,)]), *_TIES])
    def place_alone(b: Builder, x: View, dim: int | None = None, keepdim: bool = False) -> View:
        if x.dtype == torch.bool:
            raise LoweringError(f"eager has no arg{kind} of bools")
        return places(b, x, dim, keepdim)

    def places(b: Builder, x: View, dim: int | None = None, keepdim: bool = False, output: int = 0) -> View:
        def body(value: Expr, *where: IndexExpr) -> Expr:
            return value.cast(torch.uint8) if value.dtype == torch.bool else as_held(value, x.dtype)

        _check_not_empty(x, dim)
        name = f"{b.op}_place"
        return fold(b, place, x, dim, keepdim=keepdim, dtype=torch.int64, body=body, name=name, output=output)

    @lowering(
        overload(f"{kind}.dim"), samples=[*_samples(_DIM, _EXTREME_TYPES, scalar=(0,), empty=[(0,)]), *_TIES]
    )
    def both(b: Builder, x: View, dim: int, keepdim: bool = False) -> tuple[View, View]:
        return values(b, x, dim, keepdim), places(b, x, dim, keepdim, output=1)


_extremes("max", "any", "argmax")
_extremes("min", "all", "argmin")


# -- truth --------------------------------------------------------------------------------------


def _truth_samples(calls: Any, scalar: Any, empty: Any) -> list[Sample]:
    def sparse(args: Any, kwargs: Any) -> Sample:
        name = f"sparse-{args}-{kwargs}"
        return Sample(name, lambda g: ((torch.rand(5, 6, 4, generator=g) > 0.8, *args), kwargs))

    dtypes = (torch.bool, torch.float32, torch.uint8, torch.int64)
    return _samples(calls, dtypes, scalar=scalar, empty=empty) + [sparse(*call) for call in calls]


@lowering(aten.any.default, samples=_truth_samples([((), {})], (), [()]))
@lowering(aten.any.dim, samples=_truth_samples(_DIM, (0,), [(1,)]))
@lowering(aten.any.dims, samples=_truth_samples(_DIMS, ([0],), [([1],)]))
def any_(b: Builder, x: View, dim: Dims = None, keepdim: bool = False) -> View:
    """Whether any element is not 0, as NaN is not; None is all dimensions, but an empty list is none."""

    def body(value: Expr, *where: IndexExpr) -> Expr:
        return value if value.dtype == torch.bool else as_held(value, x.dtype).ne(0)

    if isinstance(dim, Sequence) and not dim:  # nothing is reduced then, though None is all dimensions
        return b.pointwise(body, x, compute=compute_dtype(x.dtype))
    return fold(b, "any", x, dim, keepdim=keepdim, body=body)


# -- spread -------------------------------------------------------------------------------------


def moments(b: Builder, x: View, dims: Dims, *, wide: bool = False) -> tuple[View, View, IndexExpr]:
    """Mean and sum of squared deviations over ``dims`` in the type ``x`` is computed in, or both in float64
    if ``wide``, and how many elements; of a 0-d tensor or of none as well."""
    places = normalize_dims(dims, len(x.axes))
    compute = compute_dtype(x.dtype)
    if not compute.is_floating_point:
        raise LoweringError("the variance of integers")
    count = counted(x, places)
    if places and count != ZERO:
        return _apart(b, x, places, wide) if wide or _lies_across(b, x, places) else b.welford(x, places)
    if not places:
        mean = b.generate(x.shape, compute, lambda *where: b.element(x, where), name="mean")
        # 0 for a finite x, else NaN
        return mean, b.pointwise(lambda x: x - x, mean, dtype=compute, name="m2"), count
    total = fold(b, "sum", x, dims, dtype=compute, name="sum")
    none = b.pointwise(lambda s: s / 0, total, dtype=compute, name="mean")
    return none, none, count


def _lies_across(b: Builder, x: View, places: Sequence[int]) -> bool:
    """Whether a CPU walks ``x`` along memory for what is not reduced, and many times. Then its threads share
    the rows of each of two sums, where one loop for both would go down a few columns at a time."""
    layout = None if b.options.chip.is_gpu else x.strided()
    if layout is None or counted(x, places).hint() < MANY_ROWS:
        return False
    lanes = [place for place, stride in enumerate(layout[0]) if stride == ONE and x.shape[place] != ONE]
    return bool(lanes) and lanes[0] not in places


def _apart(b: Builder, x: View, places: Sequence[int], wide: bool) -> tuple[View, View, IndexExpr]:
    """:func:`moments` as two sums. The first is kept in float64: of equal numbers the mean is that number."""
    count, double = counted(x, places), torch.float64
    total = b.reduce("sum", x, places, dtype=double, body=lambda value, *_: value.cast(double), name="sum")
    mean = b.pointwise(
        lambda s: s / count_value(count, double),
        total,
        dtype=double if wide else compute_dtype(x.dtype),
        compute=double,
        name="mean",
    )

    def deviation(value: Expr, *where: IndexExpr) -> Expr:
        off = value.cast(mean.dtype) - b.element(
            mean, tuple(place for n, place in enumerate(where) if n not in places)
        )
        return off * off

    return mean, b.reduce("sum", x, places, dtype=mean.dtype, body=deviation, name="m2"), count


_SPREADS: list[Any] = [
    ((), {"dim": [1]}), ((), {"dim": [-1], "keepdim": True, "correction": 0}),
    ((), {"dim": [0, 2], "correction": 2}), ((), {"correction": 0.5}), ((None,), {"keepdim": True}),
    ((), {"dim": [0], "correction": 5}), ((), {"dim": []}), ((), {"dim": [0], "correction": 3}),
]  # fmt: skip
_FAR = [
    Sample("far-from-zero", lambda g: ((tensor(g, 4, 50) + 1000, [1]), {"correction": 0})),
    Sample("one", lambda g: ((tensor(g, 4, 1), [1]), {"correction": 1})),
    Sample("nan", lambda g: ((tensor(g, 4, 9).masked_fill(torch.eye(4, 9) == 1, math.nan)[:, :6], [1]), {})),
]
_FAR_OUT = [
    Sample(f"{scale}-{dtype}", lambda g, s=scale, d=dtype: (((tensor(g, 4, 50) * s).to(d), [1]), {}))  # type: ignore[misc]
    for scale in (1e-30, 1e30)
    for dtype in (torch.float32, torch.bfloat16)
]
_SPREAD_SAMPLES = [*_samples(_SPREADS, empty=[([1],), ([0],)]), *_FAR]
# the mean of a row with an infinity is NaN or that infinity in eager, depending on where it stands
_FINITE_SPREAD_SAMPLES = [sample for sample in _SPREAD_SAMPLES if not sample.name.startswith("special")]


def _variance(
    b: Builder, x: View, dims: Dims, correction: Number | None, keepdim: bool, *, root: bool = False
) -> tuple[View, View]:
    """The variance, or with ``root`` the deviation, and the mean. On a CPU both are counted in float64, as
    eager's kernels for it have them: far from 0 a float32 mean is off by as much as the deviations are, and
    under a root squares beyond float32, or below, are numbers again. Of half types float32 is enough for
    their variance. A GPU's kernels have float32 (and torch rewrites ``std`` there)."""
    wide = root or (x.dtype == torch.float32 and not b.options.chip.is_gpu)
    mean, square, count = moments(b, x, dims, wide=wide)
    less, dtype = 1 if correction is None else correction, b.result_dtype()

    def body(square: Expr) -> Expr:
        value = square / count_value(count, square.dtype, less)
        return op("sqrt", value) if root else value

    value = b.pointwise(body, square, dtype=dtype, compute=square.dtype)
    mean = mean if mean.dtype == dtype else b.copy(mean, dtype, name="mean")
    return spread_out(value, x, dims, keepdim), spread_out(mean, x, dims, keepdim)


@lowering(aten.var.correction, samples=_SPREAD_SAMPLES)
def var(
    b: Builder, x: View, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> View:
    """Squared deviations from the mean, summed and divided by ``n - correction`` (default 1): where that is 0
    or less, by 0. LoweringError for integers."""
    return _variance(b, x, dim, correction, keepdim)[0]


@lowering(aten.var_mean.correction, samples=_FINITE_SPREAD_SAMPLES)
def var_mean(
    b: Builder, x: View, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> tuple[View, View]:
    """The variance as :func:`var` has it, and the mean that it was computed with."""
    return _variance(b, x, dim, correction, keepdim)


@lowering(aten.std.correction, samples=[*_SPREAD_SAMPLES, *_FAR_OUT])
def std(
    b: Builder, x: View, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> View:
    """The square root of :func:`var`, which may be beyond the type of ``x``, or below."""
    return _variance(b, x, dim, correction, keepdim, root=True)[0]


@lowering(aten.std_mean.correction, samples=[*_FINITE_SPREAD_SAMPLES, *_FAR_OUT])
def std_mean(
    b: Builder, x: View, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> tuple[View, View]:
    """The deviation as :func:`std` has it, and the mean that it was computed with."""
    return _variance(b, x, dim, correction, keepdim, root=True)


# -- lengths ------------------------------------------------------------------------------------


@lowering(
    aten.linalg_vector_norm.default,
    samples=[
        *_samples(
            [((2,), {"dim": [1]}), ((2,), {}), ((2,), {"dim": [0, -1], "keepdim": True}),
             ((0,), {"dim": [1]}), ((1,), {"dim": [1]}), ((3,), {"dim": [1]}), ((-2,), {"dim": [1]}),
             ((0.5,), {"dim": [0, 1]}),
             ((float("inf"),), {"dim": [1]}), ((-float("inf"),), {"dim": [1], "keepdim": True}),
             ((1.5,), {"dim": [1], "dtype": torch.float64})],
            empty=[(2, [1]), (0, [1]), (3, [1]), (float("inf"), [0])], scalar=(2,),
        ),
        *(
            Sample(f"0-d-{ord}", lambda g, ord=ord: ((tensor(g), ord), {}))  # type: ignore[misc]
            for ord in (0, 1, 3, -1, math.inf)
        ),
    ],
)  # fmt: skip
def vector_norm(
    b: Builder, x: View, ord: Number = 2, dim: Dims = None, keepdim: bool = False, *,
    dtype: torch.dtype | None = None,
) -> View:  # fmt: skip
    """``sum(abs(x)**ord) ** (1 / ord)``, or the largest (inf) or smallest (-inf) magnitude, or the number of
    elements that are not 0 (``ord`` 0). Squares are summed unscaled, so they may overflow; of one element
    there is no square."""
    compute = compute_dtype(b.result_dtype())
    places = normalize_dims(dim, len(x.axes))

    def reduced(kind: ReductionKind, each: Callable[[Expr], Expr], result: torch.dtype | None = None) -> View:
        def body(value: Expr, *where: IndexExpr) -> Expr:
            return each(value.cast(compute))

        name = "" if result is None else "sum"
        return fold(b, kind, x, places, dtype=result, body=body, name=name)

    if math.isinf(ord):
        result = reduced("max" if ord > 0 else "min", lambda v: op("abs", v))
    elif ord == 0:
        result = reduced("sum", lambda v: as_held(v, x.dtype).ne(0).cast(compute))
    elif ord == 1 or all(x.shape[place] == ONE for place in places):
        result = reduced("sum", lambda v: op("abs", v))
    elif ord == 2:
        result = b.pointwise(lambda s: op("sqrt", s), reduced("sum", lambda v: v * v, compute))
    else:
        total = reduced("sum", lambda v: op("pow", op("abs", v), float(ord)), compute)
        result = b.pointwise(lambda s: op("pow", s, 1.0 / float(ord)), total)
    return spread_out(result, x, places, keepdim) if places else result


@lowering(
    aten.dist.default,
    samples=[
        Sample(f"{p}-{shape}", lambda g, p=p, shape=shape: ((tensor(g, 4, 5), tensor(g, *shape), p), {}))  # type: ignore[misc]
        for p in (2, 1, 0, float("inf"), -float("inf"), 3)
        for shape in ((4, 5), (5,), ())
    ],
)
def dist(b: Builder, x: View, y: View, p: Number = 2) -> View:
    """The norm of ``x - y``, broadcast together, over all elements: :func:`vector_norm` with ``ord=p``."""
    difference = b.pointwise(lambda x, y: x - y, x, y, name="difference")
    result: View = vector_norm(b, difference, p)
    return result
