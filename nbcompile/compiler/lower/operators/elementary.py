"""Functions of one number: powers and logarithms, circles and hyperbolas, rounding, tests."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from nbcompile.compiler.loop_ir.expr import Expr, as_held, compute_dtype, constant, constant_like, op, where
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.registry import Sample, lowering, overload
from nbcompile.compiler.lower.samples import FLOATS, INTS, call, calls, unary
from nbcompile.errors import LoweringError

aten = torch.ops.aten
ALL = (*FLOATS, *INTS, torch.bool)

# ATen's name: (our scalar operation, range to sample in)
_SAME: dict[str, tuple[str, float, float]] = {
    **{name: (name, -4, 4) for name in (
        "exp exp2 expm1 sin cos tan atan sinh cosh tanh asinh erf erfc sigmoid reciprocal log log2 log10 "
        "log1p sqrt rsqrt lgamma"
    ).split()},
    **{name: (name, -1, 1) for name in ("asin", "acos", "atanh", "erfinv")},
    "acosh": ("acosh", 1, 9),
    "digamma": ("digamma", 0.1, 9),
    "i0": ("i0", -4, 4),
    "special_i0e": ("i0e", -4, 4),
    "special_i1": ("i1", -4, 4),
    "special_i1e": ("i1e", -4, 4),
    "special_ndtri": ("ndtri", 0.01, 0.99),
    "special_log_ndtr": ("log_ndtr", -4, 4),
    "special_modified_bessel_i0": ("i0", -4, 4),
    "special_modified_bessel_i1": ("i1", -4, 4),
    "special_erfcx": ("erfcx", -1, 4),
}  # fmt: skip


def _same(target: str, name: str, low: float, high: float) -> None:
    half = () if target.startswith("special_") else FLOATS[2:]
    samples = unary((torch.float32, torch.float64, *half, torch.int64, torch.bool), low, high)

    @lowering(overload(target), samples=samples)
    def function(b: Builder, x: View) -> View:
        return b.pointwise(lambda x: op(name, x), x)


for _target, (_name, _low, _high) in _SAME.items():
    _same(_target, _name, _low, _high)


def _unary(
    *targets: str, samples: list[Sample] | None = None
) -> Callable[[Callable[[Expr], Expr]], Callable[[Expr], Expr]]:
    """Register a function of one expression as the lowering of ``targets``."""

    def register(function: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
        for target in targets:
            lowering(overload(target), samples=samples or unary(FLOATS))(
                lambda b, x: b.pointwise(function, x)
            )
        return function

    return register


# -- signs ------------------------------------------------------------------------------------

_NUMBERS = unary((*FLOATS, *INTS, torch.int8))


@_unary("neg", samples=_NUMBERS)
def neg(x: Expr) -> Expr:
    """``-x``: 0.0 becomes -0.0."""
    return -x


@_unary("abs", samples=_NUMBERS)
def absolute(x: Expr) -> Expr:
    """The magnitude; bool and uint8 as they are."""
    return x if x.dtype in (torch.bool, torch.uint8) else op("abs", x)


@lowering(aten.sign.default, aten.sgn.default, samples=unary(ALL))
def sign(b: Builder, x: View) -> View:
    """-1, 0 or 1: 0 for NaN; bools as they are."""
    return b.pointwise(lambda each: each if x.dtype == torch.bool else op("sign", as_held(each, x.dtype)), x)


@_unary("_conj_physical", samples=_NUMBERS)
def same(x: Expr) -> Expr:
    """``x`` itself: the conjugate of a real number."""
    return x


@_unary("angle", samples=unary((*FLOATS, *INTS)))
def angle(x: Expr) -> Expr:
    """The angle of a real number: pi below 0, else 0 (of -0.0 too), NaN for NaN."""
    return where(op("isnan", x), x, where(x < 0, math.pi, constant(0.0, x.dtype)))


# -- rounding ---------------------------------------------------------------------------------


def _rounding(name: str) -> None:
    @lowering(overload(name), samples=_NUMBERS)
    def function(b: Builder, x: View) -> View:
        def body(each: Expr) -> Expr:  # of a number that the tensor's type can hold, which decides
            whole = as_held(each, x.dtype)
            return op(name, whole) if each.dtype.is_floating_point else each

        return b.pointwise(body, x)


for _name in ("floor", "ceil", "trunc", "round"):
    _rounding(_name)


@lowering(aten.round.decimals, samples=unary(FLOATS, decimals=[2, 0, -1], low=-40, high=40))
def round_decimals(b: Builder, x: View, decimals: int = 0) -> View:
    """``x * 10**decimals`` rounded half to even, then scaled back; integers as they are."""
    dtype = b.result_dtype()
    if not dtype.is_floating_point:
        return b.pointwise(same, x)
    power = 10.0 ** abs(decimals)

    def body(each: Expr) -> Expr:
        each = as_held(each, dtype)
        return op("round", each * power) / power if decimals >= 0 else op("round", each / power) * power

    return b.pointwise(body, x)


# Quotients of two tensors of a half type: ATen's kernels round each step to that type, and a quotient that is
# rounded up to a whole number becomes that one. The steps are those of ``div_floor_floating``
# (c10/util/generic_math.h).


def truncated_quotient(x: Expr, y: Expr, dtype: torch.dtype) -> Expr:
    """``x / y`` without its fraction, both as a tensor of ``dtype`` holds them."""
    return op("trunc", as_held(x / y, dtype))


def floored_quotient(x: Expr, y: Expr, dtype: torch.dtype) -> Expr:
    """``x / y`` rounded down, both as a tensor of ``dtype`` holds them."""

    def held(value: Expr) -> Expr:
        return as_held(value, dtype)

    rest = held(op("fmod", x, y))
    quotient = held(held(x - rest) / y)
    other_sign = op("and", rest.ne(0), (y < 0).ne(rest < 0))
    quotient = where(other_sign, held(quotient - 1), quotient)
    whole = op("floor", quotient)
    whole = where(held(quotient - whole) > 0.5, whole + 1, whole)
    none = op("copysign", constant(0.0, x.dtype), x / y)
    return where(y.eq(0), x / y, where(quotient.eq(0), none, whole))


# -- tests ------------------------------------------------------------------------------------


def _test(target: str, name: str, *given: float) -> None:
    @lowering(overload(target), samples=unary(ALL))
    def lower(b: Builder, x: View) -> View:
        def body(each: Expr) -> Expr:
            floating = each.dtype.is_floating_point
            return op(name, as_held(each, x.dtype), *given) if floating else constant(False, torch.bool)

        return b.pointwise(body, x, compute=compute_dtype(x.dtype))


_test("isnan", "isnan")
_test("isinf", "isinf")
_test("isposinf", "eq", math.inf)
_test("isneginf", "eq", -math.inf)


@lowering(aten.signbit.default, samples=unary(ALL))
def signbit(b: Builder, x: View) -> View:
    """Whether the sign bit is set, as it is in -0.0; of integers ``x < 0``."""

    def body(x: Expr) -> Expr:
        if x.dtype.is_floating_point:
            return op("signbit", x)
        return x < 0 if x.dtype.is_signed and x.dtype != torch.bool else constant(False, torch.bool)

    return b.pointwise(body, x, compute=compute_dtype(x.dtype))


@lowering(aten.nan_to_num.default, samples=unary((*FLOATS, torch.int64)) + calls(
    given=lambda draw: call(draw(7, 34, special=True), 0.5, 2.0, -3.0),
    some=lambda draw: call(draw(7, 34, special=True), nan=1.0),
    swapped=lambda draw: call(draw(7, 34, special=True), -0.0, -math.inf, math.nan),
))  # fmt: skip
def nan_to_num(
    b: Builder, x: View, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> View:
    """``nan`` (default 0) for NaN, ``posinf`` and ``neginf`` for infinities (default the largest and the
    least finite number of the dtype); integers as they are."""
    dtype = b.result_dtype()
    if not dtype.is_floating_point:
        return b.pointwise(same, x)
    limits = torch.finfo(dtype)

    def body(each: Expr) -> Expr:
        x = as_held(each, dtype)

        def filled(given: float | None, default: float) -> Expr:
            return as_held(constant_like(default if given is None else given, x), dtype)

        found = where(x.eq(-math.inf), filled(neginf, limits.min), x)
        found = where(x.eq(math.inf), filled(posinf, limits.max), found)
        return where(op("isnan", x), filled(nan, 0.0), found)

    return b.pointwise(body, x)


# -- special functions ------------------------------------------------------------------------


def trigamma(x: Expr) -> Expr:
    """The derivative of digamma: reflection below 1/2, six steps up, then the asymptotic series."""
    reflected = x < 0.5
    turned = op("sin", x * math.pi)
    start = where(reflected, -(math.pi**2) / (turned * turned), 0)
    x = where(reflected, 1 - x, x)
    total = start
    for _ in range(6):
        total = total + 1 / (x * x)
        x = x + 1
    rest = 1 / (x * x)
    series = 1 + 1 / (2 * x) + rest * (1 / 6 - rest * (1 / 30 - rest * (1 / 42)))
    total = total + series / x
    return where(reflected, -total, total)


@lowering(aten.polygamma.default, samples=calls(
    zero=lambda draw: call(0, draw(7, 34, low=0.1, high=9)),
    poles=lambda draw: call(0, draw(7, 34, low=-4, high=0)),
    one=lambda draw: call(1, draw(7, 34, low=0.1, high=9)),
    below=lambda draw: call(1, draw(7, 34, low=-3)),
    whole=lambda draw: call(1, draw(9, dtype=torch.int64).abs() + 1),
    half=lambda draw: call(1, draw(9, dtype=torch.bfloat16, low=1)),
))  # fmt: skip
def polygamma(b: Builder, order: int, x: View) -> View:
    """Digamma for order 0, trigamma for order 1. LoweringError for higher orders."""
    if order > 1:
        raise LoweringError("polygamma of order 2 and up needs the Hurwitz zeta function")
    return b.pointwise(trigamma if order else lambda x: op("digamma", x), x)


@_unary("special_spherical_bessel_j0", samples=unary((torch.float32, torch.float64)))
def spherical_bessel_j0(x: Expr) -> Expr:
    """``sin(x) / x``, below 1/2 in magnitude by its Taylor series: 1 at 0, and 0 at infinity."""
    square = x * x
    series: Expr = constant(1.0, x.dtype)
    for n in range(12, 0, -2):  # Taylor, enough of it for |x| < 1/2
        series = 1 - square / ((n * (n + 1)) * 1.0) * series
    return where(op("isinf", x), 0, where(op("abs", x) < 0.5, series, op("sin", x) / x))
