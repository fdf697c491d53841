"""Activation functions and their derivatives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, Guard, compute_dtype, constant, op, where
from nbcompile.compiler.loop_ir.index import ZERO
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.registry import Sample, lowering
from nbcompile.compiler.lower.samples import FLOATS, INTS, Call, Draw, call, calls, unary
from nbcompile.errors import LoweringError

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


def _times_sigmoid(x: Expr) -> Expr:
    return x * op("sigmoid", x)


# -- pieces of lines --------------------------------------------------------------------------


def _clip(x: Expr, low: float, high: float) -> Expr:
    return op("minimum", op("maximum", x, low), high)


@lowering(aten.relu.default, samples=unary((*FLOATS, *INTS)))
def relu(b: Builder, x: View) -> View:
    return b.pointwise(lambda x: op("maximum", x, 0), x)


@lowering(aten.relu6.default, samples=unary(FLOATS, -9, 9))
def relu6(b: Builder, x: View) -> View:
    return b.pointwise(lambda x: _clip(x, 0, 6), x)


@lowering(aten.leaky_relu.default, samples=unary(FLOATS, negative_slope=[0.01, -0.5]))
def leaky_relu(b: Builder, x: View, negative_slope: float = 0.01) -> View:
    return b.pointwise(lambda x: where(x > 0, x, x * negative_slope), x)


@lowering(aten.leaky_relu_backward.default, samples=_pairs(0.1, False))
def leaky_relu_backward(b: Builder, grad: View, x: View, negative_slope: float, is_result: bool) -> View:
    return b.pointwise(lambda grad, x: where(x > 0, grad, grad * negative_slope), grad, x)


@lowering(aten.threshold.default, samples=calls(
    plain=lambda draw: call(draw(7, 34, special=True), 0.5, -2.0),
    half=lambda draw: call(draw(7, 34, dtype=torch.bfloat16), 0.5, -2.0),
    whole=lambda draw: call(draw(7, dtype=torch.int64), 1, -2),
))  # fmt: skip
def threshold(b: Builder, x: View, threshold: Any, value: Any) -> View:
    return b.pointwise(lambda x: where(x <= threshold, value, x), x)


@lowering(aten.threshold_backward.default, samples=_pairs(0) + _pairs(0.5))
def threshold_backward(b: Builder, grad: View, x: View, threshold: Any) -> View:
    return b.pointwise(lambda grad, x: where(x <= threshold, 0, grad), grad, x)


@lowering(aten.hardtanh.default, samples=unary((*FLOATS, torch.int64), min_val=[-1, 0], max_val=[1]))
def hardtanh(b: Builder, x: View, min_val: Any = -1, max_val: Any = 1) -> View:
    return b.pointwise(lambda x: _clip(x, min_val, max_val), x)


@lowering(aten.hardtanh_backward.default, samples=_pairs(-1, 1) + _pairs(0, 6))
def hardtanh_backward(b: Builder, grad: View, x: View, min_val: Any, max_val: Any) -> View:
    return b.pointwise(lambda grad, x: where(op("and", x > min_val, x < max_val), grad, 0), grad, x)


@lowering(aten.hardsigmoid.default, samples=unary())
def hardsigmoid(b: Builder, x: View) -> View:
    return b.pointwise(lambda x: _clip(x + 3, 0, 6) / 6, x)


# no float64 sample: there ATen multiplies by the float32 nearest to 1/6
@lowering(aten.hardsigmoid_backward.default, samples=_pairs(dtypes=(torch.float32, *FLOATS[2:])))
def hardsigmoid_backward(b: Builder, grad: View, x: View) -> View:
    return b.pointwise(lambda grad, x: where(op("and", x > -3, x < 3), grad / 6, 0), grad, x)


@lowering(aten.hardswish.default, samples=unary())
def hardswish(b: Builder, x: View) -> View:
    return b.pointwise(lambda x: x * _clip(x + 3, 0, 6) / 6, x)


@lowering(aten.hardswish_backward.default, samples=_pairs())
def hardswish_backward(b: Builder, grad: View, x: View) -> View:
    def body(grad: Expr, x: Expr) -> Expr:
        return where(x <= -3, 0, where(x >= 3, grad, grad * (x / 3 + 0.5)))

    return b.pointwise(body, grad, x)


@lowering(aten.hardshrink.default, samples=unary(lambd=[0.5, 2]))
def hardshrink(b: Builder, x: View, lambd: float = 0.5) -> View:
    return b.pointwise(lambda x: where(op("and", x >= -lambd, x <= lambd), 0, x), x)


@lowering(aten.softshrink.default, samples=unary(lambd=[0.5, 2]))
def softshrink(b: Builder, x: View, lambd: float = 0.5) -> View:
    def body(x: Expr) -> Expr:
        return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, x * 0))

    return b.pointwise(body, x)


@lowering(aten.hardshrink_backward.default, aten.softshrink_backward.default, samples=_pairs(0.5))
def shrink_backward(b: Builder, grad: View, x: View, lambd: float) -> View:
    return b.pointwise(lambda grad, x: where(op("or", x < -lambd, x > lambd), grad, 0), grad, x)


_PRELU = calls(
    plain=lambda draw: call(draw(2, 3, 5, special=True), draw(1, 3, 1)),
    half=lambda draw: call(draw(2, 3, dtype=torch.bfloat16), draw(1, 3, dtype=torch.bfloat16)),
    one=lambda draw: call(draw(2, 3), draw(1, 1)),
    empty=lambda draw: call(draw(0, 3), draw(1, 3)),
)


@lowering(aten._prelu_kernel.default, samples=_PRELU)
def prelu(b: Builder, x: View, weight: View) -> View:
    return b.pointwise(lambda x, weight: where(x > 0, x, weight * x), x, weight)


@lowering(aten._prelu_kernel_backward.default, samples=calls(
    plain=lambda draw: call(draw(2, 3, 5), draw(2, 3, 5, special=True), draw(1, 3, 1)),
    half=lambda draw: call(*(draw(3, 3, dtype=torch.bfloat16) for _ in range(3))),
))  # fmt: skip
def prelu_backward(b: Builder, grad: View, x: View, weight: View) -> tuple[View, View]:
    def to_input(grad: Expr, x: Expr, weight: Expr) -> Expr:
        return where(x > 0, grad, weight * grad)

    def to_weight(grad: Expr, x: Expr) -> Expr:
        return where(x > 0, 0, x * grad)

    return b.pointwise(to_input, grad, x, weight), b.pointwise(to_weight, grad, x, output=1)


# -- smooth ones ------------------------------------------------------------------------------


@lowering(aten.elu.default, samples=unary(FLOATS, alpha=[1, 0.7], scale=[1, 1.3], input_scale=[1, 0.5]))
def elu(b: Builder, x: View, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> View:
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
    def body(grad: Expr, x: Expr) -> Expr:
        if is_result:
            below = (x + alpha * scale) * input_scale
        else:
            below = op("exp", x * input_scale) * (alpha * scale * input_scale)
        return where(x > 0, grad * scale, grad * below)

    return b.pointwise(body, grad, x)


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@lowering(aten.selu.default, samples=unary())
def selu(b: Builder, x: View) -> View:
    return elu(b, x, _SELU_ALPHA, _SELU_SCALE)


@lowering(aten.celu.default, samples=unary(alpha=[1, 0.7]))
def celu(b: Builder, x: View, alpha: float = 1) -> View:
    return elu(b, x, alpha, 1, 1 / alpha)


_KAPPA = 0.044715
_BETA = math.sqrt(2 / math.pi)


def _tanh_argument(x: Expr) -> Expr:
    """u of ``(1 + tanh(u)) / 2``, which is ``sigmoid(2 * u)``: nothing cancels there, and it is less work."""
    return (x + x * x * x * _KAPPA) * _BETA


@lowering(aten.gelu.default, samples=unary(approximate=["none", "tanh"]))
def gelu(b: Builder, x: View, approximate: str = "none") -> View:
    def body(x: Expr) -> Expr:
        if approximate == "tanh":
            return x * op("sigmoid", _tanh_argument(x) * 2)
        return x * 0.5 * (op("erf", x * math.sqrt(0.5)) + 1)

    return b.pointwise(body, x)


@lowering(aten.gelu_backward.default, samples=_pairs() + _pairs(approximate="tanh"))
def gelu_backward(b: Builder, grad: View, x: View, approximate: str = "none") -> View:
    def body(grad: Expr, x: Expr) -> Expr:
        if approximate == "tanh":
            s = op("sigmoid", _tanh_argument(x) * 2)
            slope = (x * x * (3 * _KAPPA) + 1) * (2 * _BETA)
            return grad * s * (x * (1 - s) * slope + 1)
        below = (op("erf", x * math.sqrt(0.5)) + 1) * 0.5
        density = op("exp", x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
        return grad * (below + x * density)

    return b.pointwise(body, grad, x)


@lowering(aten.silu.default, samples=unary())
def silu(b: Builder, x: View) -> View:
    return b.pointwise(_times_sigmoid, x)


@lowering(aten.silu_backward.default, samples=_pairs())
def silu_backward(b: Builder, grad: View, x: View) -> View:
    def body(grad: Expr, x: Expr) -> Expr:
        s = op("sigmoid", x)
        return grad * s * (x * (1 - s) + 1)

    return b.pointwise(body, grad, x)


@lowering(aten.mish.default, samples=unary())
def mish(b: Builder, x: View) -> View:
    return b.pointwise(lambda x: x * op("tanh", op("log1p", op("exp", x))), x)


@lowering(aten.mish_backward.default, samples=_pairs())
def mish_backward(b: Builder, grad: View, x: View) -> View:
    def body(grad: Expr, x: Expr) -> Expr:
        s = op("sigmoid", x)
        t = op("tanh", op("log1p", op("exp", x)))
        return grad * (t + x * s * (1 - t * t))

    return b.pointwise(body, grad, x)


@lowering(aten.softplus.default, samples=unary(beta=[1, 2], threshold=[20, 3]))
def softplus(b: Builder, x: View, beta: float = 1, threshold: float = 20) -> View:
    def body(x: Expr) -> Expr:
        scaled = x if beta == 1 else x * beta
        soft = op("log1p", op("exp", scaled))
        return where(scaled > threshold, x, soft if beta == 1 else soft / beta)

    return b.pointwise(body, x)


@lowering(aten.softplus_backward.default, samples=_pairs(1, 20) + _pairs(2, 3))
def softplus_backward(b: Builder, grad: View, x: View, beta: float, threshold: float) -> View:
    def body(grad: Expr, x: Expr) -> Expr:
        scaled = x if beta == 1 else x * beta
        return where(scaled > threshold, grad, grad * op("sigmoid", scaled))

    return b.pointwise(body, grad, x)


@lowering(aten.sigmoid_backward.default, samples=_pairs())
def sigmoid_backward(b: Builder, grad: View, y: View) -> View:
    return b.pointwise(lambda grad, y: grad * ((1 - y) * y), grad, y)


@lowering(aten.tanh_backward.default, samples=_pairs())
def tanh_backward(b: Builder, grad: View, y: View) -> View:
    return b.pointwise(lambda grad, y: grad * (1 - y * y), grad, y)


# CPU kernels keep exp(-|x|) for the backward pass; nothing else may read it
@lowering(aten.log_sigmoid_forward.default, samples=unary())
def log_sigmoid(b: Builder, x: View) -> tuple[View, View]:
    kept = b.pointwise(lambda x: op("exp", -op("abs", x)), x, output=1)
    return b.pointwise(lambda x: op("minimum", x, 0) - op("log1p", op("exp", -op("abs", x))), x), kept


@lowering(aten.log_sigmoid_backward.default, samples=calls(
    plain=lambda draw: _log_sigmoid_call(draw(7, 34), draw(7, 34)),
    half=lambda draw: _log_sigmoid_call(draw(7, dtype=torch.bfloat16), draw(7, dtype=torch.bfloat16)),
))  # fmt: skip
def log_sigmoid_backward(b: Builder, grad: View, x: View, kept: View) -> View:
    return b.pointwise(lambda grad, x: grad * op("sigmoid", -x), grad, x)


def _log_sigmoid_call(grad: torch.Tensor, x: torch.Tensor) -> Call:
    return call(grad, x, torch.exp(-x.abs()))


# -- halves of one dimension ------------------------------------------------------------------


def _half(b: Builder, x: View, dim: int, second: bool) -> View:
    """The first or second half of ``x`` along ``dim``, as a view."""
    dim %= len(x.axes)
    extent = b.size(x.shape[dim])
    if extent.constant is None or extent.constant % 2:
        raise LoweringError("half of a symbolic size")
    middle = extent.constant // 2
    shape = [*x.shape[:dim], b.size(middle), *x.shape[dim + 1 :]]
    shift = middle if second else 0
    return b.view(x, shape, lambda *at: (*at[:dim], at[dim] + shift, *at[dim + 1 :]))


@lowering(aten.glu.default, samples=calls(
    first=lambda draw: call(draw(4, 3, 2), 0),
    last=lambda draw: call(draw(3, 8, special=True)),
    half=lambda draw: call(draw(3, 8, dtype=torch.bfloat16)),
    transposed=lambda draw: call(draw(8, 3).t(), 1),
    empty=lambda draw: call(draw(0, 8), 1),
))  # fmt: skip
def glu(b: Builder, x: View, dim: int = -1) -> View:
    first, second = _half(b, x, dim, False), _half(b, x, dim, True)
    return b.pointwise(lambda x, gate: x * op("sigmoid", gate), first, second)


@lowering(aten.glu_backward.default, samples=calls(
    last=lambda draw: call(draw(3, 4), draw(3, 8), -1),
    first=lambda draw: call(draw(2, 3, dtype=torch.bfloat16), draw(4, 3, dtype=torch.bfloat16), 0),
))  # fmt: skip
def glu_backward(b: Builder, grad: View, x: View, dim: int) -> View:
    first, second = _half(b, x, dim, False), _half(b, x, dim, True)
    dim %= len(x.axes)
    middle = first.shape[dim]
    compute = compute_dtype(b.result_dtype())

    def body(*at: Any) -> Expr:
        def other(shift: Any) -> tuple[Any, ...]:
            return (*at[:dim], at[dim] - shift, *at[dim + 1 :])

        gate = op("sigmoid", b.element(second, at, compute))
        to_first = b.element(grad, at, compute) * gate
        back = other(middle)
        gate = op("sigmoid", b.element(second, back, compute))
        to_second = b.element(grad, back, compute) * b.element(first, back, compute) * gate * (1 - gate)
        rest = Guard(((at[dim], middle, 2 * middle),), to_second, constant(0, compute))
        return Guard(((at[dim], ZERO, middle),), to_first, rest)

    return b.generate(x.shape, b.result_dtype(), body)
