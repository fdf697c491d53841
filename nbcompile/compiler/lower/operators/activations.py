"""Activation functions and their derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, as_held, compute_dtype, constant_like, op, scalar, where
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.fitting import require_number
from nbcompile.compiler.lower.operators.arithmetic import check_ends, clamp
from nbcompile.compiler.lower.registry import Sample, lowering
from nbcompile.compiler.lower.samples import FLOATS, INTS, Call, Draw, call, calls, unary

aten = torch.ops.aten


_CORNERS = (-3.0, 3.0, 0.0, 1.0, -1.0, 6.0, 0.5)


def _pairs(*numbers: Any, dtypes: Sequence[torch.dtype] = FLOATS, **options: Any) -> list[Sample]:
    """Samples of ``f(grad, x, *numbers, **options)``: each float type, corners, strides, empty. Where
    ATen's vector and scalar paths differ on NaN, the lowerings follow the vector path."""

    def pair(dtype: torch.dtype) -> Any:
        def make(draw: Draw) -> Call:
            return call(draw(7, 34, dtype=dtype), draw(7, 34, dtype=dtype, special=True), *numbers, **options)

        return make

    return calls(
        **{str(dtype): pair(dtype) for dtype in dtypes},
        transposed=lambda draw: call(draw(5, 7), draw(7, 5).t(), *numbers, **options),
        expanded=lambda draw: call(draw().expand(7, 5), draw(7, 5), *numbers, **options),
        empty=lambda draw: call(draw(0, 5), draw(0, 5), *numbers, **options),
        scalar=lambda draw: call(draw(), draw(), *numbers, **options),
        corners=lambda draw: call(draw(7), torch.tensor(_CORNERS), *numbers, **options),
    )


# -- pieces of lines --------------------------------------------------------------------------


@lowering(aten.relu.default, samples=unary((*FLOATS, *INTS)))
def relu(b: Builder, x: View) -> View:
    """The larger of ``x`` and 0; NaN stays NaN."""
    return b.pointwise(lambda x: op("maximum", x, 0), x)


@lowering(aten.leaky_relu.default, samples=unary(FLOATS, negative_slope=[0.01, -0.5]))
def leaky_relu(b: Builder, x: View, negative_slope: float = 0.01) -> View:
    """``x`` above 0, else ``negative_slope * x``."""
    return b.pointwise(lambda x: where(x > 0, x, x * negative_slope), x)


@lowering(aten.threshold.default, samples=unary((*FLOATS, torch.int64), threshold=[0, 0.5], value=[-0.3, 2]))
def threshold(b: Builder, x: View, threshold: Any, value: Any) -> View:
    """``value``, as the dtype holds it, where ``x <= threshold``, else ``x``: also where it is NaN."""
    dtype = b.result_dtype()
    check_ends(dtype, value)
    check_ends(compute_dtype(dtype), threshold)  # compared as it is

    def body(x: Expr) -> Expr:
        filled = as_held(constant_like(value, x), dtype)
        return where(as_held(x, dtype) <= constant_like(threshold, x), filled, x)

    return b.pointwise(body, x)


@lowering(aten.threshold_backward.default, samples=_pairs(0) + _pairs(0.5))
def threshold_backward(b: Builder, grad: View, x: View, threshold: Any) -> View:
    """0 where ``x <= threshold``, else ``grad``: also where ``x`` is NaN."""
    return _gated(b, grad, x, lambda grad, x: where(x <= threshold, 0, grad))


# -- the sigmoid's inverse --------------------------------------------------------------------

# of half types an end as near as 1e-3 is another on a GPU
_EDGES = (0.0, -0.0, 1.0, 0.9995, math.inf, -math.inf, math.nan)
_SHARES = [
    sample
    for dtype in (*FLOATS, torch.int64, torch.bool)
    for eps in (None, -1.0, 0.3, *(() if dtype in FLOATS[2:] else (1e-9, 1e-3)))
    for sample in calls(**{
        f"{dtype}_{eps}": lambda draw, dtype=dtype, eps=eps: call(
            torch.cat([draw(40, low=-0.2, high=1.2), torch.tensor(_EDGES)]).to(dtype), eps
        ),
    })
]  # fmt: skip


def _ends(b: Builder, x: View, eps: Any) -> tuple[Callable[[Expr], Expr], Any, Any]:
    """What a CPU does to each step of a half type, and the ends ``eps`` and ``1 - eps`` so rounded: a GPU
    computes in float32."""
    dtype = b.result_dtype()

    def held(value: Expr) -> Expr:
        return value if b.options.chip.is_gpu else as_held(value, dtype)

    if eps is None:
        return held, None, None
    require_number(eps, dtype)
    low = held(scalar(eps, compute_dtype(dtype)))
    return held, low, held(1 - low)


@lowering(aten.logit.default, samples=_SHARES)
def logit(b: Builder, x: View, eps: Any = None) -> View:
    """``log(x / (1 - x))``, of an ``x`` that is limited to [``eps``, ``1 - eps``]. A negative ``eps``
    is none, as what is outside of [0, 1] is NaN either way."""
    held, low, high = _ends(b, x, eps)

    def body(x: Expr) -> Expr:
        if low is not None:
            x = where(x < low, low, where(x > high, high, x))
        return op("log", held(x / held(1 - x)))

    return b.pointwise(body, x)


@lowering(aten.logit_backward.default, samples=_pairs() + _pairs(1e-3) + _pairs(-1.0))
def logit_backward(b: Builder, grad: View, x: View, eps: Any = None) -> View:
    """``grad / (x * (1 - x))`` from end to end, else 0; NaN where there is no ``eps``, or a negative one.
    At NaN eager's is 0 on a CPU (but for the last few elements of a tensor) and NaN on a GPU."""
    none = eps is None or (isinstance(eps, int | float) and eps < 0)
    held, low, high = _ends(b, x, 0.0 if none else eps)

    def body(grad: Expr, x: Expr) -> Expr:
        slope = grad / held(x * held(1 - x))
        outside = math.nan if none else 0.0
        if b.device.type == "cuda":
            return where(op("or", x < low, x > high), outside, slope)
        return where(op("and", x >= low, x <= high), slope, outside)

    return _gated(b, grad, x, body)


def _gated(b: Builder, grad: View, x: View, body: Callable[[Expr, Expr], Expr]) -> View:
    """``body(grad, x)``, which decides by ``x``."""
    return b.pointwise(lambda grad, each: body(grad, as_held(each, x.dtype)), grad, x)


@lowering(aten.hardtanh.default, samples=unary((*FLOATS, torch.int64), min_val=[-1, 0], max_val=[1]))
def hardtanh(b: Builder, x: View, min_val: Any = -1, max_val: Any = 1) -> View:
    """``x`` limited to [``min_val``, ``max_val``], of integers too; NaN stays NaN."""
    result: View = clamp(b, x, min_val, max_val)
    return result


@lowering(aten.hardtanh_backward.default, samples=_pairs(-1, 1) + _pairs(0, 6))
def hardtanh_backward(b: Builder, grad: View, x: View, min_val: Any, max_val: Any) -> View:
    """``grad`` where ``min_val < x < max_val``, else 0: at both ends too, and on a CPU where ``x`` is NaN."""

    def body(grad: Expr, x: Expr) -> Expr:
        if b.device.type == "cuda":
            return where(op("or", x <= min_val, x >= max_val), 0, grad)
        return where(op("and", x > min_val, x < max_val), grad, 0)

    return _gated(b, grad, x, body)


@lowering(aten.hardswish_backward.default, samples=_pairs())
def hardswish_backward(b: Builder, grad: View, x: View) -> View:
    """0 for ``x <= -3``, ``grad`` for ``x >= 3``, else ``grad * (x / 3 + 0.5)``. Where ``x`` is NaN that is
    NaN on a CPU, and ``grad`` on a GPU."""

    def body(grad: Expr, x: Expr) -> Expr:
        inside = grad * (x / 3 + 0.5)
        if b.device.type == "cuda":
            return where(x <= -3, 0, where(x < 3, inside, grad))
        return where(x <= -3, 0, where(x >= 3, grad, inside))

    return _gated(b, grad, x, body)


@lowering(aten.hardshrink_backward.default, aten.softshrink_backward.default, samples=_pairs(0.5))
def shrink_backward(b: Builder, grad: View, x: View, lambd: float) -> View:
    """``grad`` where ``abs(x) > lambd``, else 0, on a CPU at NaN too: of hardshrink and softshrink alike."""

    def body(grad: Expr, x: Expr) -> Expr:
        if b.device.type == "cuda":
            return where(op("and", x >= -lambd, x <= lambd), 0, grad)
        return where(op("or", x < -lambd, x > lambd), grad, 0)

    return _gated(b, grad, x, body)


# -- smooth ones ------------------------------------------------------------------------------


@lowering(aten.elu.default, samples=unary(FLOATS, alpha=[1, 0.7], scale=[1, 1.3], input_scale=[1, 0.5]))
def elu(b: Builder, x: View, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> View:
    """``scale * x`` above 0, else ``scale * alpha * expm1(input_scale * x)``."""
    return b.pointwise(lambda x: _elu(x, alpha, scale, input_scale), x)


def _elu(x: Expr, alpha: float, scale: float, input_scale: float) -> Expr:
    below = op("expm1", x if input_scale == 1 else x * input_scale)
    slope = alpha * scale
    return where(x > 0, x if scale == 1 else x * scale, below if slope == 1 else below * slope)


@lowering(aten.elu_backward.default, samples=calls(
    argument=lambda draw: call(draw(7, 34), 0.7, 1.3, 0.5, False, draw(7, 34, special=True)),
    result=lambda draw: call(draw(7, 34), 1, 1, 1, True, draw(7, 34, low=-1)),
    half=lambda draw: call(draw(7, dtype=torch.bfloat16), 1, 1, 1, False, draw(7, dtype=torch.bfloat16)),
))  # fmt: skip
def elu_backward(
    b: Builder, grad: View, alpha: float, scale: float, input_scale: float, is_result: bool, x: View
) -> View:
    """``grad`` times the slope of elu; ``x`` is its argument or, with ``is_result``, its result, of which the
    slope is a function too. At NaN it is NaN on a CPU, and that above 0 on a GPU."""

    def body(grad: Expr, x: Expr) -> Expr:
        if is_result:
            below = (x + alpha * scale) * input_scale
        else:
            below = op("exp", x * input_scale) * (alpha * scale * input_scale)
        if b.device.type == "cuda":
            return where(x <= 0, grad * below, grad * scale)
        return where(x > 0, grad * scale, grad * below)

    return b.pointwise(body, grad, x)


_KAPPA = 0.044715
_BETA = math.sqrt(2 / math.pi)


def _tanh_argument(x: Expr) -> Expr:
    """u of ``(1 + tanh(u)) / 2``, which is ``sigmoid(2 * u)``: nothing cancels there, and it is less work."""
    return (x + x * x * x * _KAPPA) * _BETA


@lowering(aten.gelu.default, samples=unary(approximate=["none", "tanh"]))
def gelu(b: Builder, x: View, approximate: str = "none") -> View:
    """``x`` times the normal distribution function at ``x`` (Hendrycks and Gimpel, 2016): by ``erf``, or with
    ``approximate="tanh"`` by ``(1 + tanh(u)) / 2``, where ``u = sqrt(2 / pi) * (x + 0.044715 * x**3)``."""

    def body(x: Expr) -> Expr:
        if approximate == "tanh":
            return x * op("sigmoid", _tanh_argument(x) * 2)
        return x * 0.5 * (op("erf", x * math.sqrt(0.5)) + 1)

    return b.pointwise(body, x)


@lowering(aten.gelu_backward.default, samples=_pairs() + _pairs(approximate="tanh"))
def gelu_backward(b: Builder, grad: View, x: View, approximate: str = "none") -> View:
    """``grad * (cdf(x) + x * pdf(x))`` of the normal distribution, or ``grad`` times the derivative of the
    tanh formula."""

    def body(grad: Expr, x: Expr) -> Expr:
        if approximate == "tanh":
            s = op("sigmoid", _tanh_argument(x) * 2)
            slope = (x * x * (3 * _KAPPA) + 1) * (2 * _BETA)
            return grad * (
                s * (x * (1 - s)) * slope + s
            )  # 0 before it is infinite: x**3 leaves the type first
        below = (op("erf", x * math.sqrt(0.5)) + 1) * 0.5
        density = op("exp", x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
        return grad * (below + x * density)

    return b.pointwise(body, grad, x)


@lowering(aten.silu_backward.default, samples=_pairs())
def silu_backward(b: Builder, grad: View, x: View) -> View:
    """``grad * s * (1 + x * (1 - s))`` with ``s = sigmoid(x)``."""

    def body(grad: Expr, x: Expr) -> Expr:
        s = op("sigmoid", x)
        return grad * s * (x * (1 - s) + 1)

    return b.pointwise(body, grad, x)


@lowering(aten.sigmoid_backward.default, samples=_pairs())
def sigmoid_backward(b: Builder, grad: View, y: View) -> View:
    """``grad * (1 - y) * y``, where ``y`` is the result of sigmoid."""
    return b.pointwise(lambda grad, y: grad * ((1 - y) * y), grad, y)


@lowering(aten.tanh_backward.default, samples=_pairs())
def tanh_backward(b: Builder, grad: View, y: View) -> View:
    """``grad * (1 - y**2)``, where ``y`` is the result of tanh."""
    return b.pointwise(lambda grad, y: grad * (1 - y * y), grad, y)
