"""Arithmetic of two tensors, or of a tensor and a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import (
    HALF,
    Constant,
    Expr,
    SizeNumber,
    as_held,
    compute_dtype,
    constant,
    op,
    where,
)
from nbcompile.compiler.loop_ir.index import Index, IndexExpr
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.loop_ir.proofs import proves
from nbcompile.compiler.lower.builder import Builder, Operand
from nbcompile.compiler.lower.fitting import require_number
from nbcompile.compiler.lower.operators.elementary import floored_quotient, truncated_quotient
from nbcompile.compiler.lower.registry import lowering
from nbcompile.compiler.lower.samples import FLOATS, INTS, binary, call, calls, with_numbers
from nbcompile.errors import LoweringError

aten = torch.ops.aten
SIGNED = (torch.int64, torch.int32, torch.int8)


def _factor(b: Builder, alpha: Any) -> Any:
    """What the second operand of a sum is multiplied by: on a CPU as the type of the result holds it.
    LoweringError for a number too large for that."""
    dtype = b.result_dtype()
    require_number(alpha, dtype)
    rounded = dtype in HALF and not b.options.chip.is_gpu and isinstance(alpha, int | float)
    return float(torch.tensor(alpha, dtype=dtype)) if rounded else alpha


def _plus(x: Expr, y: Expr, alpha: Any) -> Expr:
    scaled = y if alpha == 1 else y * alpha
    return op("or", x, scaled) if x.dtype == torch.bool else x + scaled


@lowering(
    aten.add.Tensor,
    samples=binary(alpha=[1, 2])
    + calls(
        bool=lambda draw: call(draw(5, dtype=torch.bool), draw(5, dtype=torch.bool)),
        mixed=lambda draw: call(draw(5, dtype=torch.int32), draw(3, 5), alpha=0.5),
    ),
)
@lowering(aten.add.Scalar, samples=with_numbers(2, 0.3, alpha=[1, 3]))
def add(b: Builder, x: Operand, y: Operand, alpha: Any = 1) -> View:
    """``x + alpha * y``; of bools the logical or. LoweringError for an ``alpha`` too large for the type."""
    factor = _factor(b, alpha)
    return b.pointwise(lambda x, y: _plus(x, y, factor), x, y)


@lowering(aten.sub.Tensor, samples=binary(alpha=[1, 3]))
@lowering(aten.sub.Scalar, samples=with_numbers(2, 0.3, alpha=[1, 3]))
def sub(b: Builder, x: Operand, y: Operand, alpha: Any = 1) -> View:
    """``x - alpha * y``, in the type of the result. LoweringError for bools, which eager refuses, and for an
    ``alpha`` too large for the type."""
    if any(isinstance(each, bool) or getattr(each, "dtype", None) == torch.bool for each in (x, y)):
        raise LoweringError("a bool is subtracted, or subtracted from")
    factor = _factor(b, alpha)
    return b.pointwise(lambda x, y: x - (y if factor == 1 else y * factor), x, y)


@lowering(aten.mul.Tensor, samples=binary((*FLOATS, *INTS, torch.bool)))
@lowering(aten.mul.Scalar, samples=with_numbers(3, -0.3))
def mul(b: Builder, x: Operand, y: Operand) -> View:
    """``x * y``; of bools the logical and."""
    return b.pointwise(lambda x, y: op("and", x, y) if x.dtype == torch.bool else x * y, x, y)


# -- division ---------------------------------------------------------------------------------


def _nearly_whole() -> tuple[torch.Tensor, torch.Tensor]:
    """Half numbers with a quotient of 17.94, which rounds to 18."""
    return torch.full([9], 4.6250, dtype=torch.bfloat16), torch.full([9], 0.25734, dtype=torch.bfloat16)


def _divisor_is_safe(b: Builder, y: Operand) -> None:
    """Eager raises on an integer division by zero, which no loop can: only known divisors are native."""
    if b.result_dtype().is_floating_point:
        return
    size = isinstance(y, IndexExpr) and not proves(y - 1, b.sizes.facts())
    if isinstance(y, View) or size or y == 0:
        raise LoweringError("an integer division that may raise ZeroDivisionError")


_ROUNDED_STEPS = {"truncdiv": truncated_quotient, "floordiv": floored_quotient}


def _quotient(b: Builder, x: Operand, y: Operand, name: str) -> View:
    _divisor_is_safe(b, y)
    if y == -1 and not b.result_dtype().is_floating_point:
        return b.pointwise(lambda x: -x, x)  # min / -1 wraps; in C it would trap
    dtype = b.result_dtype()
    stepwise = compute_dtype(dtype) != dtype and isinstance(y, View) and y.axes

    def body(left: Expr, right: Expr) -> Expr:
        if isinstance(x, View) and dtype.is_floating_point:
            left = as_held(left, dtype)
        if isinstance(y, View) and dtype.is_floating_point:
            right = as_held(right, dtype)
        return _ROUNDED_STEPS[name](left, right, dtype) if stepwise else op(name, left, right)

    return b.pointwise(body, x, y)


@lowering(aten.div.Tensor, samples=binary((*FLOATS, *INTS, torch.bool)))
@lowering(aten.div.Scalar, samples=with_numbers(3, 0.7, 0))
def div(b: Builder, x: Operand, y: Operand) -> View:
    """True division: integers give a floating-point number, and a divisor of 0 an infinity or NaN."""
    return b.pointwise(lambda x, y: x / y, x, y)


@lowering(
    aten.div.Tensor_mode,
    samples=binary(FLOATS, rounding_mode=[None, "trunc", "floor"])
    + calls(half=lambda draw: call(*_nearly_whole(), rounding_mode="trunc")),
)
@lowering(
    aten.div.Scalar_mode,
    samples=with_numbers(3, 0.7, rounding_mode=[None, "trunc", "floor"])
    + with_numbers(-3, -1, dtypes=SIGNED, rounding_mode=["trunc", "floor"]),
)
def div_mode(b: Builder, x: Operand, y: Operand, rounding_mode: str | None = None) -> View:
    """The quotient as it is (None), rounded towards 0 ("trunc") or down ("floor"). LoweringError for integers
    rounded so that are divided by a tensor or by 0: eager may raise ZeroDivisionError."""
    if rounding_mode is None:
        return div(b, x, y)
    return _quotient(b, x, y, {"trunc": "truncdiv", "floor": "floordiv"}[rounding_mode])


@lowering(aten.remainder.Tensor, samples=binary(FLOATS))
@lowering(
    aten.remainder.Scalar, samples=with_numbers(3, 0.7) + with_numbers(-3, -1, dtypes=(*FLOATS, *SIGNED))
)
@lowering(aten.remainder.Scalar_Tensor, samples=with_numbers(3, -0.7, dtypes=FLOATS, swap=True))
def remainder(b: Builder, x: Operand, y: Operand) -> View:
    """The rest of a division, with the sign of ``y`` (Python's ``%``); both are rounded to the result's dtype
    first. LoweringError for integers divided by a tensor or by 0."""
    return _rest(b, x, y, "remainder")


@lowering(aten.fmod.Tensor, samples=binary(FLOATS))
@lowering(aten.fmod.Scalar, samples=with_numbers(3, 0.7) + with_numbers(-3, -1, dtypes=(*FLOATS, *SIGNED)))
def fmod(b: Builder, x: Operand, y: Operand) -> View:
    """The rest of a division, with the sign of ``x`` (C's ``fmod``); otherwise as :func:`remainder`."""
    return _rest(b, x, y, "fmod")


def _rest(b: Builder, x: Operand, y: Operand, name: str) -> View:
    _divisor_is_safe(b, y)
    if y == -1 and not b.result_dtype().is_floating_point:
        return b.pointwise(lambda x: x * 0, x)  # as above: min % -1 traps in C
    dtype = b.result_dtype()

    def body(x: Expr, y: Expr) -> Expr:
        # a divisor that was rounded to a half type has quite another rest
        return op(name, as_held(x, dtype), as_held(y, dtype))

    return b.pointwise(body, x, y)


# -- powers -----------------------------------------------------------------------------------


@lowering(
    aten.pow.Tensor_Scalar,
    samples=with_numbers(2, 3, 0.5, -0.5, -1, -2, 0, 1, 4, 2.5, dtypes=FLOATS)
    + with_numbers(2, 3, 5, 0, 0.5, dtypes=INTS),
)
def pow_number(b: Builder, x: View, exponent: Any) -> View:
    """``x ** exponent``: 0 to 4 by products (the power 0 is 1, of NaN too), -1 to -4 by their reciprocals,
    0.5 and -0.5 by square roots. LoweringError for an integer to a negative power, and for a power that a
    half type does not hold."""
    if b.result_dtype() in HALF:
        require_number(exponent, b.result_dtype())
    if not b.result_dtype().is_floating_point and exponent < 0:
        raise LoweringError("an integer to a negative power raises")
    if exponent in (0.5, -0.5) and x.dtype == torch.float16 and not b.options.chip.is_gpu:
        return b.pointwise(lambda x: _root_of_half(x, exponent), x)
    return b.pointwise(lambda x: _power(x, exponent), x)


def _root_of_half(x: Expr, exponent: float) -> Expr:
    """ATen calls pow() for these on a CPU, of which -0 is 0 and -inf is inf."""
    return where(op("eq", x, -math.inf), math.inf if exponent > 0 else 0.0, _power(x + 0.0, exponent))


def _power(x: Expr, exponent: Any) -> Expr:
    if isinstance(exponent, SizeNumber):
        return op("pow", x, exponent)
    if exponent in range(5):
        return _whole_power(x, int(exponent))
    if -exponent in range(5) and x.dtype.is_floating_point:
        return op("reciprocal", _whole_power(x, -int(exponent)))
    if exponent == 0.5:
        return op("sqrt", x)
    if exponent == -0.5:
        return op("rsqrt", x)
    return op("pow", x, exponent)


def _whole_power(x: Expr, exponent: int) -> Expr:
    """``x`` to a small power by squaring; exactly 1 for the power 0, of NaN too."""
    if exponent < 2:
        return x if exponent else constant(1, x.dtype)
    half = _whole_power(x, exponent // 2)
    return half * half * x if exponent % 2 else half * half


@lowering(aten.pow.Tensor_Tensor, samples=binary())
@lowering(aten.pow.Scalar, samples=with_numbers(2, 0.7, 1, swap=True))
def power(b: Builder, x: Operand, y: Operand) -> View:
    """``x ** y``. An integer to a negative power is 0, unless it is 1 or -1."""
    return b.pointwise(lambda x, y: op("pow", x, y), x, y)


def _far() -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of either size, zeros and what is none, and exponents with a power that no float32 holds."""
    numbers = [1e-30, 1e30, -1.5, 4 / 3, 3e-39, 0.0, -0.0, math.inf, -math.inf, math.nan]
    exponents = [-9999, -2000, -260, -203, -149, -140, -127, -1, 0, 150, 255, 300, 2000, 2**31 - 1, -(2**31)]
    far = torch.tensor(numbers).repeat_interleave(len(exponents))
    return far, torch.tensor(exponents).repeat(len(numbers))


@lowering(
    aten.ldexp.Tensor,
    samples=binary()
    + [
        sample
        for dtype in FLOATS
        for sample in calls(**{
            f"{dtype}_far": lambda draw, dtype=dtype: call(_far()[0].to(dtype), _far()[1]),
            f"{dtype}_int32": lambda draw, dtype=dtype: call(_far()[0].to(dtype), _far()[1].int()),
        })
    ]
    + calls(
        wraps=lambda draw: call(draw(4), torch.tensor([2**32 + 3, -(2**32), 2**31, 2**40])),
        double=lambda draw: call(
            torch.tensor([3.0, 4 / 3, 4 / 3, 1e-300], dtype=torch.float64),
            torch.tensor([-1030, -1050, 1000, 1100]),
        ),
        bytes=lambda draw: call(draw(7) * 1e-30, torch.full([7], 150, dtype=torch.uint8)),
        whole=lambda draw: call(draw(7, dtype=torch.int32), torch.tensor([[127], [-149], [20]])),
        number=lambda draw: call(draw(7) * 1e-30, torch.tensor(150)),
    ),
)  # fmt: skip
def ldexp(b: Builder, x: View, exponent: View) -> View:
    """``x * 2**exponent``: rounded once for a floating-point ``x`` and an integer exponent, of which the last
    32 bits count. Of others the power is rounded to a dtype of its own first: it may overflow where the
    product would not. LoweringError for a bool as the exponent of a floating-point number."""
    if x.dtype.is_floating_point and not exponent.dtype.is_floating_point:
        if exponent.dtype == torch.bool:
            raise LoweringError("a bool is the exponent of a power of two")
        return _scaled(b, x, exponent)
    scale = b.promote(exponent, 2.0)  # the power of two is a tensor of its own in ATen
    return b.pointwise(
        lambda x, e: x * op("exp2", e.cast(compute_dtype(scale))).cast(scale).cast(x.dtype),
        x, exponent, compute=compute_dtype(b.result_dtype()),
    )  # fmt: skip


def _scaled(b: Builder, x: View, exponent: View) -> View:
    """C's ``ldexp``, whose exponent is an int. Beyond 9999 nothing of the largest type is left."""
    dtype = b.result_dtype()

    def body(*at: IndexExpr) -> Expr:
        number, power = b.element(x, at, compute_dtype(dtype)), b.element(exponent, at, torch.int32)
        held = op("minimum", op("maximum", power, -9999), 9999)
        return op("ldexp", number, held.cast(number.dtype))

    return b.generate(b.result_shape(), dtype, body)


# -- the smaller and the larger ---------------------------------------------------------------


def chosen(b: Builder, operand: Operand, at: Sequence[Index], dtype: torch.dtype) -> Expr:
    """An element of what an operator may choose as its result, in the type that ``dtype`` is computed in: a
    number, or an element of another type, becomes what ``dtype`` can hold, also where that is a half type."""
    value = b.element(operand, at, compute_dtype(dtype))
    return value if isinstance(operand, View) and operand.dtype == dtype else as_held(value, dtype)


def _choice(b: Builder, function: Callable[..., Expr], *operands: Operand) -> View:
    dtype = b.result_dtype()

    def body(*at: IndexExpr) -> Expr:
        return function(*(chosen(b, operand, at, dtype) for operand in operands))

    return b.generate(b.result_shape(), dtype, body)


def _larger(x: Expr, y: Expr) -> Expr:
    return op("or", x, y) if x.dtype == torch.bool else op("maximum", x, y)


def _smaller(x: Expr, y: Expr) -> Expr:
    return op("and", x, y) if x.dtype == torch.bool else op("minimum", x, y)


@lowering(aten.maximum.default, samples=binary((*FLOATS, *INTS, torch.bool)))
def maximum(b: Builder, x: View, y: View) -> View:
    """The larger one, NaN if either is; of bools the logical or."""
    return _choice(b, _larger, x, y)


@lowering(aten.minimum.default, samples=binary((*FLOATS, *INTS, torch.bool)))
def minimum(b: Builder, x: View, y: View) -> View:
    """The smaller one, NaN if either is; of bools the logical and."""
    return _choice(b, _smaller, x, y)


@lowering(aten.fmax.default, samples=binary((*FLOATS, *INTS, torch.bool)))
def fmax(b: Builder, x: View, y: View) -> View:
    """The larger one; where one is NaN, the other."""
    return _choice(b, lambda x, y: op("fmax", x, y) if x.dtype.is_floating_point else _larger(x, y), x, y)


@lowering(aten.fmin.default, samples=binary((*FLOATS, *INTS, torch.bool)))
def fmin(b: Builder, x: View, y: View) -> View:
    """The smaller one; where one is NaN, the other."""
    return _choice(b, lambda x, y: op("fmin", x, y) if x.dtype.is_floating_point else _smaller(x, y), x, y)


_CLAMPS = calls(
    both=lambda draw: call(draw(7, 34, special=True), -1.5, 2),
    low=lambda draw: call(draw(7, 34, special=True), -1.5),
    high=lambda draw: call(draw(7, 34, special=True), None, 0.5),
    crossed=lambda draw: call(draw(7), 2.0, -1.0),
    nan=lambda draw: call(draw(7), float("nan"), 1.0),
    whole=lambda draw: call(draw(7, dtype=torch.int64), -1, 2),
    promoted=lambda draw: call(draw(7, dtype=torch.int32), -0.5, 1.5),
    half=lambda draw: call(draw(7, 34, dtype=torch.bfloat16, special=True), -0.3, 0.7),
    empty=lambda draw: call(draw(0, 3), 0.0),
    scalar=lambda draw: call(draw(), 0.0),
)
_TENSOR_CLAMPS = calls(
    both=lambda draw: call(draw(7, 34, special=True), draw(34), draw(7, 1)),
    low=lambda draw: call(draw(7, 34, special=True), draw(34), None),
    high=lambda draw: call(draw(7, 34, special=True), None, draw()),
    nan=lambda draw: call(draw(4, 4), draw(4, 4, special=True)),
    whole=lambda draw: call(draw(7, dtype=torch.int64), draw(7, dtype=torch.int32), draw(7)),
    broadcast=lambda draw: call(draw(7), draw(2, 7)),
)


def check_ends(dtype: torch.dtype, *ends: Any) -> None:
    """LoweringError for a number that this type does not hold. Of floating-point types eager refuses it; of
    integers by torch 2.14 it wraps round or is refused, from 2.15 on it is no end at all."""
    if dtype == torch.bool:
        return
    if dtype.is_floating_point:
        for end in ends:
            require_number(end, dtype)
        return
    limits = torch.iinfo(dtype)
    if not all(limits.min <= end <= limits.max for end in ends if isinstance(end, int)):
        raise LoweringError(f"a bound that {str(dtype).removeprefix('torch.')} does not hold")


@lowering(aten.clamp.default, samples=_CLAMPS)
@lowering(aten.clamp.Tensor, samples=_TENSOR_CLAMPS)
def clamp(b: Builder, x: View, low: Operand | None = None, high: Operand | None = None) -> View:
    """``min(max(x, low), high)``; the ends are numbers, tensors or None. NaN if any of the three is, else
    ``high`` where ``low`` is above it."""
    ends = [end for end in (low, high) if end is not None]
    check_ends(b.promote(x, *ends), *ends)

    def body(x: Expr, *ends: Expr) -> Expr:
        rest = iter(ends)
        if low is not None:
            x = _larger(x, next(rest))
        return _smaller(x, next(rest)) if high is not None else x

    return _choice(b, body, x, *ends)


# -- three operands ---------------------------------------------------------------------------

_TERNARY = [
    sample
    for dtype in FLOATS
    for sample in calls(**{
        f"{dtype}": lambda draw, dtype=dtype: call(
            draw(7, 34, dtype=dtype, special=True), draw(34, dtype=dtype), draw(7, 1, dtype=dtype, low=1)
        ),
        f"{dtype}_value": lambda draw, dtype=dtype: call(
            draw(7, 9, dtype=dtype).t(), draw(9, 7, dtype=dtype), draw(dtype=dtype), value=0.3
        ),
    })
]  # fmt: skip


@lowering(
    aten.addcmul.default,
    samples=_TERNARY
    + calls(whole=lambda draw: call(*(draw(7, dtype=torch.int64) for _ in range(3)), value=3)),
)
def addcmul(b: Builder, x: View, y: View, z: View, value: Any = 1) -> View:
    """``x + (value * y) * z``, multiplied in this order."""
    return b.pointwise(lambda x, y, z: x + (y if value == 1 else y * value) * z, x, y, z)


@lowering(aten.addcdiv.default, samples=_TERNARY)
def addcdiv(b: Builder, x: View, y: View, z: View, value: Any = 1) -> View:
    """``x + (value * y) / z``, in this order."""
    return b.pointwise(lambda x, y, z: x + (y if value == 1 else y * value) / z, x, y, z)


def _lerp(start: Expr, end: Expr, weight: Expr) -> Expr:
    near = start + weight * (end - start)
    far = end - (end - start) * (1 - weight)
    if isinstance(weight, Constant):
        return near if abs(weight.value) < 0.5 else far
    return where(op("lt", op("abs", weight), 0.5), near, far)


@lowering(aten.lerp.Scalar, samples=[
    sample for dtype in FLOATS for weight in (0.3, 0.5, 1.7) for sample in calls(**{
        f"{dtype}_{weight}": lambda draw, dtype=dtype, weight=weight: call(
            draw(7, 34, dtype=dtype, special=True), draw(34, dtype=dtype), weight
        ),
    })
])  # fmt: skip
@lowering(aten.lerp.Tensor, samples=calls(
    plain=lambda draw: call(draw(7, 34, special=True), draw(7, 34), draw(34)),
    half=lambda draw: call(*(draw(7, 34, dtype=torch.bfloat16) for _ in range(3))),
    double=lambda draw: call(*(draw(2, 7, dtype=torch.float64) for _ in range(3))),
))  # fmt: skip
def lerp(b: Builder, start: View, end: View, weight: Operand) -> View:
    """``start + weight * (end - start)`` for weights below 0.5 in magnitude, else
    ``end - (end - start) * (1 - weight)``: of finite numbers both ends are met exactly."""
    return b.pointwise(_lerp, start, end, weight)


# -- other functions of two numbers -----------------------------------------------------------


@lowering(aten.hypot.default, samples=binary(FLOATS))
def hypot(b: Builder, x: View, y: View) -> View:
    """``sqrt(x**2 + y**2)``."""
    return b.pointwise(lambda x, y: op("hypot", x, y), x, y)


@lowering(aten.atan2.default, samples=binary((*FLOATS, *INTS, torch.bool)))
def atan2(b: Builder, y: View, x: View) -> View:
    """The angle of the point (``x``, ``y``), from -pi to pi; integers give a floating-point number."""
    return b.pointwise(lambda y, x: op("atan2", y, x), y, x)


@lowering(aten.copysign.Tensor, samples=binary((*FLOATS, *INTS, torch.bool)))
@lowering(aten.copysign.Scalar, samples=with_numbers(2, -0.0))
def copysign(b: Builder, x: View, sign: Operand) -> View:
    """The magnitude of ``x`` with the sign bit of ``sign``, also of -0.0; integers give a float."""
    return b.pointwise(lambda x, sign: op("copysign", x, sign), x, sign)


@lowering(aten.nextafter.default, samples=binary((torch.float32, torch.float64)))
def nextafter(b: Builder, x: View, y: View) -> View:
    """The number next to ``x`` on the way to ``y``. LoweringError for half types: float32 has others."""
    if compute_dtype(b.result_dtype()) != b.result_dtype():
        raise LoweringError("nextafter of a half type is not that of float32")
    return b.pointwise(lambda x, y: op("nextafter", x, y), x, y)


@lowering(aten.logaddexp.default, samples=binary(FLOATS))
def logaddexp(b: Builder, x: View, y: View) -> View:
    """``log(exp(x) + exp(y))``, by the larger plus ``log1p(exp(-abs(x - y)))``; equal infinities stay."""

    def body(x: Expr, y: Expr) -> Expr:
        total = op("maximum", x, y) + op("log1p", op("exp", -op("abs", x - y)))
        # two equal infinities have no difference
        return where(op("and", op("isinf", x), x.eq(y)), x, total)

    return b.pointwise(body, x, y)


@lowering("prims.fma")  # torch defines it when Dynamo first meets addcmul_ or addcdiv_
def fma(b: Builder, x: Operand, y: Operand, z: Operand) -> View:
    """``x * y + z`` in one operation: the product is not rounded by itself. Nothing of integers is."""
    return b.pointwise(
        lambda x, y, z: op("fma", x, y, z) if x.dtype.is_floating_point else x * y + z, x, y, z
    )
