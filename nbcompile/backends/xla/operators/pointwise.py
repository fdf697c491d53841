"""Element by element: arithmetic, comparison, logic, rounding and the elementary functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from nbcompile.backends.xla.registry import Traced, dtype_name, lower_each, lowers

Array = Any


def computed(out: Traced, value: Any) -> Array:
    """An operand in the dtype that ATen computes in."""
    if isinstance(value, jax.Array) and jnp.iscomplexobj(value) and "complex" not in out.compute:
        return value
    return number(value, out.compute)


def number(value: Any, dtype: str) -> Array:
    """An array, or a Python number, in a dtype: out of range it wraps, as it does in torch."""
    return jnp.asarray(value).astype(dtype)


def _register(names: str, function: Callable[..., Array], *, rounded: bool = False) -> None:
    """``function`` of all positional arguments, which are operands. ``rounded``: numbers become tensors of
    the result's dtype first, where most operators take them as they are."""

    def lower(out: Traced, *operands: Any) -> Array:
        given = [number(each, out.dtype) if rounded else each for each in operands]
        return function(*(computed(out, operand) for operand in given))

    lowers(*names.split())(lower)


def _both(name: str) -> str:
    return f"{name}.Tensor {name}.Scalar"


for _name in (
    "acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor log log10 log1p log2 sin sinh sqrt tan "
    "tanh trunc exp2 isfinite isnan isinf signbit deg2rad rad2deg sinc i0"
).split():
    _register(_name, getattr(jnp, _name))
_register("abs", jnp.abs)
_register("neg", jnp.negative)
_register("erf", jax.scipy.special.erf)
_register("erfc", jax.scipy.special.erfc)
_register("erfinv", jax.scipy.special.erfinv)
_register("lgamma", jax.scipy.special.gammaln)
_register("sigmoid", jax.nn.sigmoid)
_register("rsqrt", lax.rsqrt)
_register("reciprocal", lambda x: 1 / x)
_register("relu", lambda x: jnp.maximum(x, jnp.zeros((), x.dtype)))
_register("real", jnp.real)
_register("imag", jnp.imag)
_register("atan2", jnp.arctan2)
_register("hypot", jnp.hypot)
_register("nextafter", jnp.nextafter)
_register("copysign.Tensor copysign.Scalar", jnp.copysign)
_register("maximum", jnp.maximum)
_register("minimum", jnp.minimum)
_register("fmax", jnp.fmax)
_register("fmin", jnp.fmin)
_register(_both("mul"), lambda x, y: jnp.logical_and(x, y) if x.dtype == bool else jnp.multiply(x, y))
_register(_both("fmod"), lambda x, y: lax.rem(*jnp.broadcast_arrays(x, y)), rounded=True)
_register(f"{_both('remainder')} remainder.Scalar_Tensor", jnp.remainder, rounded=True)
_register(_both("eq"), jnp.equal)
_register(_both("ne"), jnp.not_equal)
_register(_both("lt"), jnp.less)
_register(_both("le"), jnp.less_equal)
_register(_both("gt"), jnp.greater)
_register(_both("ge"), jnp.greater_equal)
_register("logical_not", jnp.logical_not)
_register("logical_and", jnp.logical_and)
_register("logical_or", jnp.logical_or)
_register("logical_xor", jnp.logical_xor)
_register(f"{_both('bitwise_and')} bitwise_and.Scalar_Tensor", jnp.bitwise_and)
_register(f"{_both('bitwise_or')} bitwise_or.Scalar_Tensor", jnp.bitwise_or)
_register(f"{_both('bitwise_xor')} bitwise_xor.Scalar_Tensor", jnp.bitwise_xor)
_register("bitwise_not", jnp.bitwise_not)
_register("bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar __lshift__.Scalar", jnp.left_shift)
_register("bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar __rshift__.Scalar", jnp.right_shift)


@lowers("digamma")
def digamma(out: Traced, x: Array) -> Array:
    """The derivative of lgamma; at 0 an infinity with the sign that ATen gives it."""
    x = computed(out, x)
    return jnp.where(x == 0, jnp.copysign(jnp.inf, -x).astype(x.dtype), jax.scipy.special.digamma(x))


@lowers("sign", "sgn")
def sign(out: Traced, x: Array) -> Array:
    """-1, 0 or 1."""
    if x.dtype == bool:
        return x
    # torch says 0 where x is NaN
    return jnp.where(jnp.isnan(x), 0, jnp.sign(x)) if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.sign(x)


def _scaled(out: Traced, value: Any, alpha: Any) -> Array:
    made = computed(out, value)
    return made if alpha == 1 and isinstance(alpha, int) else made * number(alpha, out.compute)


@lowers("div.Tensor_mode", "div.Scalar_mode")
def div_mode(out: Traced, x: Array, y: Any, rounding_mode: str | None = None) -> Array:
    """The quotient, as it is (``None``), towards minus infinity (``floor``) or towards zero (``trunc``)."""
    x, y = computed(out, x), computed(out, y)
    if rounding_mode is None:
        return jnp.true_divide(x, y)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return jnp.floor_divide(x, y) if rounding_mode == "floor" else lax.div(*jnp.broadcast_arrays(x, y))
    if rounding_mode == "trunc":
        # ATen rounds the quotient of two half tensors before it truncates.
        return jnp.trunc(number(number(x / y, out.dtype), out.compute))
    # As ATen does it: through the remainder, so that the quotient is exact.
    rest = lax.rem(*jnp.broadcast_arrays(x, y))
    quotient = (x - rest) / y
    quotient = jnp.where((rest != 0) & ((rest < 0) != (y < 0)), quotient - 1, quotient)
    rounded = jnp.floor(quotient)
    rounded = jnp.where(quotient - rounded > 0.5, rounded + 1, rounded)
    rounded = jnp.where(quotient == 0, jnp.copysign(jnp.zeros((), x.dtype), x / y), rounded)
    return jnp.where(y == 0, x / y, rounded)


@lowers("pow.Tensor_Scalar")
def power(out: Traced, x: Array, exponent: Any) -> Array:
    """``x`` to a number."""
    x = computed(out, x)
    if exponent == 2:
        return x * x
    if exponent in (0.5, -0.5) and out.dtype != "float16":
        return jnp.sqrt(x) if exponent > 0 else lax.rsqrt(x)
    return power_of(out, x, exponent)


@lowers("pow.Tensor_Tensor", "pow.Scalar")
def power_of(out: Traced, x: Any, exponent: Any) -> Array:
    """``x`` to a tensor, or a number to one."""
    x, exponent = (computed(out, number(each, out.dtype)) for each in (x, exponent))
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return jnp.power(x, exponent)
    # Of whole numbers, negative powers of all but 1 and -1 are 0.
    made = jnp.power(x, jnp.maximum(exponent, 0))
    sign = jnp.where(exponent % 2 == 0, 1, x)
    return jnp.where(exponent < 0, jnp.where(jnp.abs(x) == 1, sign, 0), made)


@lowers("round", "round.decimals")
def rounded(out: Traced, x: Array, decimals: int = 0) -> Array:
    """To the nearest, ties to even, at so many ``decimals``."""
    x = computed(out, x)
    if not decimals:
        return jnp.round(x)
    scale = 10 ** abs(decimals)
    return jnp.round(x * scale) / scale if decimals > 0 else jnp.round(x / scale) * scale


@lowers("clamp", "clamp.Tensor")
def clamp(out: Traced, x: Array, low: Any = None, high: Any = None) -> Array:
    """No less than ``low`` and no more than ``high``; NaN stays."""
    x = computed(out, x)
    if low is not None:
        x = jnp.maximum(x, computed(out, low))
    return x if high is None else jnp.minimum(x, computed(out, high))


@lowers("gelu")
def gelu(out: Traced, x: Array, approximate: str = "none") -> Array:
    """By erf, or by its approximation with tanh."""
    x = computed(out, x)
    if approximate == "tanh":
        return jax.nn.gelu(x, approximate=True)
    return x * 0.5 * (1 + jax.scipy.special.erf(x * math.sqrt(0.5)))


def converted(x: Array, dtype: str) -> Array:
    """``x.to(dtype)``: to an unsigned type through int64, as C does on the processors we know (XLA clips)."""
    wanted = jnp.dtype(dtype)
    if jnp.iscomplexobj(x) and not jnp.issubdtype(wanted, jnp.complexfloating):
        x = x if wanted == "bool" else jnp.real(x)
    if jnp.issubdtype(x.dtype, jnp.floating) and jnp.issubdtype(wanted, jnp.integer):
        return x.astype("int64").astype(wanted) if wanted.itemsize < 8 else x.astype(wanted)
    return x.astype(wanted)


_register("conj _conj _conj_physical", jnp.conj)
_register("xlogy.Tensor", jax.scipy.special.xlogy)
_register("logaddexp", jnp.logaddexp)
_register("prims.fma", lambda x, y, z: x * y + z)


lower_each(
    {
        "_to_copy prims.convert_element_type": lambda out, x, *_, **options: converted(x, out.dtype),
        "add.Tensor add.Scalar": lambda out, x, y, alpha=1: computed(out, x) + _scaled(out, y, alpha),
        "alias clone detach lift_fresh_copy contiguous": lambda out, x, **options: x,
        "complex": lambda out, real, imaginary: lax.complex(*jnp.broadcast_arrays(real, imaginary)),
        "copy": lambda out, x, source, *_, **options: jnp.broadcast_to(converted(source, out.dtype), x.shape),
        "div.Tensor div.Scalar": div_mode,
        "floor_divide floor_divide.Scalar": lambda out, x, y: div_mode(out, x, y, "floor"),
        "masked_fill.Scalar masked_fill.Tensor": (
            lambda out, x, mask, value: jnp.where(mask, number(value, out.dtype), x)
        ),
        "rsub.Tensor rsub.Scalar": lambda out, x, y, alpha=1: computed(out, y) - _scaled(out, x, alpha),
        "sub.Tensor sub.Scalar": lambda out, x, y, alpha=1: computed(out, x) - _scaled(out, y, alpha),
        "view.dtype": lambda out, x, dtype: lax.bitcast_convert_type(x, dtype_name(dtype)),
        "view_as_complex": lambda out, x: lax.complex(x[..., 0], x[..., 1]),
        "view_as_real": lambda out, x: jnp.stack([jnp.real(x), jnp.imag(x)], -1),
        "where.self where.ScalarSelf where.ScalarOther where.Scalar": lambda out, condition, x, y: jnp.where(
            condition.astype(bool), number(x, out.dtype), number(y, out.dtype)
        ),
    }
)
