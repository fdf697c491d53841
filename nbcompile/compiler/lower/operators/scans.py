"""Scans: each element is made of those up to it along one dimension.

On a GPU they are loops. On the CPU they are ATen's: one thread walks a row there, and a kernel of ours would
do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, as_held, compute_dtype, constant
from nbcompile.compiler.loop_ir.index import ONE, ZERO
from nbcompile.compiler.loop_ir.nodes import ScanKind, View
from nbcompile.compiler.lower.builder import Builder, check_dtype
from nbcompile.compiler.lower.registry import Sample, lowering, overload
from nbcompile.compiler.lower.samples import tensor
from nbcompile.errors import LoweringError

aten = torch.ops.aten

_ON_CPU = "scan: each element needs the one before it, so a CPU's core walks a row as ATen does"
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_INTS = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool)
_NARROW = (torch.int8, torch.int16, torch.uint8)  # a GPU's lanes hand each other 32 bits


def _samples(
    dtypes: Sequence[torch.dtype], *options: dict[str, Any], low: float = -4, high: float = 4
) -> list[Sample]:
    """Samples of ``f(x, dim, **options)``: along every kind of dimension for each dtype, then the awkward
    inputs: special values, ties, strided, reversed, expanded, empty, 0-d, one element, a row of one value."""
    made: list[Sample] = []

    def add(name: str, view: Callable[[torch.Generator], torch.Tensor], dim: int, **kwargs: Any) -> None:
        made.append(Sample(name, lambda g: ((view(g), dim), kwargs)))

    def draw(
        g: torch.Generator, *shape: int, dtype: torch.dtype = dtypes[0], special: bool = False
    ) -> torch.Tensor:
        return tensor(g, *shape, dtype=dtype, special=special, low=low, high=high)

    def drawn(*shape: int, dtype: torch.dtype) -> Callable[[torch.Generator], torch.Tensor]:
        return lambda g: draw(g, *shape, dtype=dtype)

    for dtype in dtypes:
        for dim in (1, -1, 0):
            add(f"{dtype}-{dim}", drawn(3, 7, 5, dtype=dtype), dim)
        add(f"{dtype}-line", drawn(40, dtype=dtype), 0)
    for kwargs in options:
        add(f"{kwargs}", lambda g: draw(g, 3, 7, 5), 1, **kwargs)
        add(f"{kwargs}-0-d", lambda g: draw(g), -1, **kwargs)
    add("special-rows", lambda g: draw(g, 4, 15, special=True), 1)
    add("special-columns", lambda g: draw(g, 15, 4, special=True), 0)
    add("special-shuffled", lambda g: draw(g, 40, special=True)[torch.randperm(40, generator=g)], 0)
    add("ties", lambda g: torch.randint(-1, 2, (4, 30), generator=g).to(dtypes[0]), 1)
    add("transposed", lambda g: draw(g, 5, 7, 3).transpose(0, 2), 0)
    add("strided", lambda g: draw(g, 3, 14, 9)[:, ::2, 1:6], 1)
    add("reversed", lambda g: draw(g, 3, 14).flip(1), 1)
    add("expanded", lambda g: draw(g, 3, 1, 5).expand(3, 7, 5), 1)
    add("expanded-whole", lambda g: draw(g, 1, 1).expand(4, 9), 1)
    add("several-blocks", lambda g: draw(g, 2, 300), 1)
    add("0-d", lambda g: draw(g), 0)
    add("one", lambda g: draw(g, 4, 1), 1)
    add("empty", lambda g: draw(g, 3, 0, 5), 1)
    add("empty-rows", lambda g: draw(g, 0, 5), 1)
    return made


def _in_aten(b: Builder, target: Any, x: View, dim: int, **kwargs: Any) -> Any:
    """The call itself, on the CPU."""
    return b.call(target, (x, dim), kwargs, reason=_ON_CPU)


def _along(x: View, dim: int) -> int | None:
    """The dimension to go along; None if each element has none before it, or there is none."""
    if not x.axes or any(extent == ZERO for extent in x.shape):
        return None
    place = dim % len(x.axes)
    return None if x.shape[place] == ONE else place


def _accumulated(
    b: Builder, target: Any, kind: ScanKind, x: View, dim: int, dtype: torch.dtype | None = None
) -> View:
    if not b.options.chip.is_gpu:
        result: View = _in_aten(b, target, x, dim, **({} if dtype is None else {"dtype": dtype}))
        return result
    wide = b.result_dtype()
    if wide == torch.bool:
        raise LoweringError("a running sum or product kept as bool")
    check_dtype(wide)

    def body(value: Expr) -> Expr:
        return value if x.dtype == wide else value.cast(wide).cast(compute_dtype(wide))

    place = _along(x, dim)
    if place is None:
        return b.generate(x.shape, wide, lambda *where: body(b.element(x, where)))
    widened = wide in _NARROW

    def widen(value: Expr) -> Expr:
        return body(value).cast(torch.int32) if widened else body(value)

    return b.scan(kind, x, place, widen, wide)[0]


@lowering(
    aten.cumsum.default,
    samples=_samples(
        (*_FLOATS, *_INTS), {"dtype": torch.float64}, {"dtype": torch.bfloat16}, {"dtype": torch.int32},
        {"dtype": torch.int8},
    ),
)  # fmt: skip
def cumsum(b: Builder, x: View, dim: int, *, dtype: torch.dtype | None = None) -> View:
    """Running sums along ``dim``; elements are converted to the result's dtype first. On a GPU LoweringError
    for sums kept as bool."""
    return _accumulated(b, aten.cumsum.default, "sum", x, dim, dtype)


@lowering(
    aten.cumprod.default,
    samples=_samples(
        (*_FLOATS, *_INTS), {"dtype": torch.float64}, {"dtype": torch.bfloat16}, {"dtype": torch.int32},
        low=-1.6, high=1.6,
    ),
)  # fmt: skip
def cumprod(b: Builder, x: View, dim: int, *, dtype: torch.dtype | None = None) -> View:
    """Running products along ``dim``; dtypes and errors as for :func:`cumsum`."""
    return _accumulated(b, aten.cumprod.default, "prod", x, dim, dtype)


@lowering(aten.logcumsumexp.default, overload("_logcumsumexp"), samples=_samples(_FLOATS))
def logcumsumexp(b: Builder, x: View, dim: int) -> View:
    """``log`` of the running sums of ``exp(x)`` along ``dim``."""
    return _accumulated(b, aten.logcumsumexp.default, "logsumexp", x, dim)


def _extreme(b: Builder, target: Any, kind: ScanKind, x: View, dim: int) -> tuple[View, View]:
    if not b.options.chip.is_gpu:
        found: tuple[View, View] = _in_aten(b, target, x, dim)
        return found
    check_dtype(x.dtype)
    place = _along(x, dim)
    if place is None:
        first = b.generate(x.shape, torch.int64, lambda *where: constant(0, torch.int64), output=1)
        return b.copy(x), first
    if x.dtype == torch.bool:
        values, places = b.scan(
            kind, x, place, lambda value: value.cast(torch.int32), torch.uint8, torch.int64
        )
        return b.pointwise(lambda value: value.ne(0), values, compute=torch.uint8), places
    narrow = x.dtype in _NARROW

    def body(value: Expr) -> Expr:
        return value.cast(torch.int32) if narrow else as_held(value, x.dtype)

    values, places = b.scan(kind, x, place, body, x.dtype, torch.int64)
    return values, places


@lowering(aten.cummax.default, samples=_samples((*_FLOATS, *_INTS)))
def cummax(b: Builder, x: View, dim: int) -> tuple[View, View]:
    """Of equals the last; once a NaN has come it stays, at the place of the last one."""
    return _extreme(b, aten.cummax.default, "max", x, dim)


@lowering(aten.cummin.default, samples=_samples((*_FLOATS, *_INTS)))
def cummin(b: Builder, x: View, dim: int) -> tuple[View, View]:
    """The smallest up to each element and its place; of equals and of NaN as :func:`cummax`."""
    return _extreme(b, aten.cummin.default, "min", x, dim)
