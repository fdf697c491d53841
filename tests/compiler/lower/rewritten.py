"""Samples of the operators that torch rewrites before lowering sees them, by composition or by its own table
of decompositions: they need no lowering of ours, and are compiled all the same."""

from __future__ import annotations

from typing import Any

import torch

from nbcompile.compiler.lower.operators.activations import _pairs
from nbcompile.compiler.lower.operators.comparison import _BITS
from nbcompile.compiler.lower.operators.creation import _LIKE, _SIZES, _ranges, _with
from nbcompile.compiler.lower.operators.elementary import _NUMBERS
from nbcompile.compiler.lower.operators.gather import _INDEX, some
from nbcompile.compiler.lower.operators.reductions import (
    _DIM,
    _DIMS,
    _EXTREME_TYPES,
    _FINITE_SPREAD_SAMPLES,
    _FLOAT_TYPES,
    _INTS,
    _SPREAD_SAMPLES,
    _samples,
    _truth_samples,
)  # fmt: skip
from nbcompile.compiler.lower.operators.scatter import _INDEX_PUT
from nbcompile.compiler.lower.operators.shape import same
from nbcompile.compiler.lower.registry import Sample, lowered
from nbcompile.compiler.lower.samples import (
    FLOATS,
    INTS,
    Call,
    binary,
    call,
    calls,
    of_view,
    unary,
    with_numbers,
)

aten = torch.ops.aten

_PRELU = calls(
    plain=lambda draw: call(draw(2, 3, 5, special=True), draw(1, 3, 1)),
    half=lambda draw: call(draw(2, 3, dtype=torch.bfloat16), draw(1, 3, dtype=torch.bfloat16)),
    one=lambda draw: call(draw(2, 3), draw(1, 1)),
    empty=lambda draw: call(draw(0, 3), draw(1, 3)),
)
_MASKED = calls(
    plain=lambda draw: call(draw(7, 34, special=True), draw(7, 34, dtype=torch.bool), -1.5),
    infinite=lambda draw: call(draw(2, 5, 5), draw(5, 5, dtype=torch.bool), float("-inf")),
    broadcast=lambda draw: call(draw(5), draw(3, 1, dtype=torch.bool), 0.25),
    whole=lambda draw: call(draw(9, dtype=torch.int64), draw(9, dtype=torch.bool), 3),
    half=lambda draw: call(draw(9, dtype=torch.bfloat16), draw(9, dtype=torch.bool), 0.1),
    empty=lambda draw: call(draw(0, 9), draw(9, dtype=torch.bool), 1.0),
    transposed=lambda draw: call(draw(9, 7).t(), draw(7, 9, dtype=torch.bool), 1),
)
_NEW = calls(
    plain=lambda draw: call(draw(3, 5), [2, 4]),
    whole=lambda draw: call(draw(3, dtype=torch.int64), [2]),
    given=lambda draw: call(draw(3), [2, 1], dtype=torch.bfloat16),
    empty=lambda draw: call(draw(3), [0]),
)


def _log_sigmoid_call(grad: torch.Tensor, x: torch.Tensor) -> Call:
    return call(grad, x, torch.exp(-x.abs()))


SAMPLES: dict[Any, list[Sample]] = {
    # activations
    aten.relu6.default: unary(FLOATS, -9, 9),
    aten.leaky_relu_backward.default: _pairs(0.1, False),
    aten.hardsigmoid.default: unary(),
    aten.hardsigmoid_backward.default: _pairs(dtypes=(torch.float32, *FLOATS[2:])),
    aten.hardswish.default: unary(),
    aten.hardshrink.default: unary(lambd=[0.5, 2]),
    aten.softshrink.default: unary(lambd=[0.5, 2]),
    aten._prelu_kernel.default: _PRELU,
    aten._prelu_kernel_backward.default: calls(
        plain=lambda draw: call(draw(2, 3, 5), draw(2, 3, 5, special=True), draw(1, 3, 1)),
        half=lambda draw: call(*(draw(3, 3, dtype=torch.bfloat16) for _ in range(3))),
    ),
    aten.selu.default: unary(),
    aten.celu.default: unary(alpha=[1, 0.7]),
    aten.silu.default: unary(),
    aten.mish.default: unary(),
    aten.mish_backward.default: _pairs(),
    aten.softplus.default: unary(beta=[1, 2], threshold=[20, 3]),
    aten.softplus_backward.default: _pairs(1, 20) + _pairs(2, 3),
    aten.log_sigmoid_forward.default: unary(),
    aten.log_sigmoid_backward.default: calls(
        plain=lambda draw: _log_sigmoid_call(draw(7, 34), draw(7, 34)),
        half=lambda draw: _log_sigmoid_call(draw(7, dtype=torch.bfloat16), draw(7, dtype=torch.bfloat16)),
    ),
    aten.glu.default: calls(
        first=lambda draw: call(draw(4, 3, 2), 0),
        last=lambda draw: call(draw(3, 8, special=True)),
        half=lambda draw: call(draw(3, 8, dtype=torch.bfloat16)),
        transposed=lambda draw: call(draw(8, 3).t(), 1),
        empty=lambda draw: call(draw(0, 8), 1),
    ),
    aten.glu_backward.default: calls(
        last=lambda draw: call(draw(3, 4), draw(3, 8), -1),
        first=lambda draw: call(draw(2, 3, dtype=torch.bfloat16), draw(4, 3, dtype=torch.bfloat16), 0),
    ),
    # arithmetic
    aten.rsub.Tensor: binary(alpha=[1, 3]),
    aten.rsub.Scalar: with_numbers(2, 0.3),
    aten.floor_divide.default: binary(FLOATS),
    aten.floor_divide.Scalar: with_numbers(3, 0.7),
    aten.float_power.Tensor_Scalar: with_numbers(2, -0.5),
    aten.float_power.Tensor_Tensor: binary(),
    aten.float_power.Scalar: with_numbers(2, swap=True),
    aten.max.other: binary((*FLOATS, *INTS, torch.bool)),
    aten.min.other: binary((*FLOATS, *INTS, torch.bool)),
    aten.clamp_min.default: with_numbers(1, 0.5),  # of uint8 and -1: test_refused
    aten.clamp_min.Tensor: binary(),
    aten.clamp_max.default: with_numbers(1, 0.5),
    aten.clamp_max.Tensor: binary(),
    aten.heaviside.default: binary((*FLOATS, *INTS)),
    aten.xlogy.Tensor: binary((*FLOATS, *INTS)),
    aten.xlogy.Scalar_Other: with_numbers(2, 0, float("nan")),
    aten.xlogy.Scalar_Self: with_numbers(2, 0, swap=True),
    aten.special_xlog1py.default: binary((*FLOATS[:2], *INTS)),
    aten.special_xlog1py.other_scalar: with_numbers(2, 0, dtypes=FLOATS[:2]),
    aten.special_xlog1py.self_scalar: with_numbers(2, 0, dtypes=FLOATS[:2], swap=True),
    aten.logaddexp2.default: binary(FLOATS),
    # comparison
    aten.masked_fill.Scalar: _MASKED,
    aten.masked_fill.Tensor: calls(
        plain=lambda draw: call(draw(7, 34), draw(7, 34, dtype=torch.bool), draw()),
        whole=lambda draw: call(
            draw(9, dtype=torch.int64), draw(9, dtype=torch.bool), draw(dtype=torch.int32)
        ),
        half=lambda draw: call(draw(9, dtype=torch.float16), draw(3, 9, dtype=torch.bool), draw()),
    ),
    # creation
    aten.fill.Scalar: _with(unary((torch.float32, torch.bfloat16, torch.int64)), 2, -0.7),
    aten.fill.Tensor: calls(
        plain=lambda draw: call(draw(3, 5), draw()),
        whole=lambda draw: call(draw(3, 5, dtype=torch.int64), draw()),
    ),
    aten.new_full.default: _with(_NEW, 2, -0.7),
    aten.zeros.default: _SIZES,
    aten.zeros_like.default: _LIKE,
    aten.new_zeros.default: _NEW,
    aten.zero.default: unary(),
    aten.empty_like.default: calls(plain=lambda draw: call(draw(0, 5), dtype=torch.bool)),
    aten.new_empty.default: calls(plain=lambda draw: call(draw(3), [0, 5])),
    aten.ones.default: _SIZES,
    aten.ones_like.default: _LIKE,
    aten.new_ones.default: _NEW,
    aten.arange.default: _ranges((5,), (2.5,), (0,)),
    aten.arange.start: _ranges((2, 7), (0.5, 3.2), (3, 3)),
    aten.eye.default: calls(
        plain=lambda draw: call(4),
        empty=lambda draw: call(0),
        whole=lambda draw: call(3, dtype=torch.int64),
        half=lambda draw: call(3, dtype=torch.bfloat16),
    ),
    aten.eye.m: calls(
        wide=lambda draw: call(2, 4),
        tall=lambda draw: call(4, 2, dtype=torch.bool),
    ),
    # elementary
    aten.square.default: unary((*FLOATS, *INTS)),
    aten.positive.default: _NUMBERS,
    aten.conj_physical.default: _NUMBERS,
    aten.deg2rad.default: unary((*FLOATS, torch.int64)),
    aten.rad2deg.default: unary((*FLOATS, torch.int64)),
    aten.fix.default: unary(FLOATS),
    aten.frac.default: unary(FLOATS),
    aten.sinc.default: unary((*FLOATS, torch.int64)),
    aten.special_sinc.default: unary((*FLOATS, torch.int64)),
    aten.logit.default: unary(FLOATS, 0.01, 0.99)
    + calls(
        clamped=lambda draw: call(draw(7, 34, special=True), 0.1),
        loose=lambda draw: call(draw(7, 34, special=True)),
        whole=lambda draw: call(draw(9, dtype=torch.int64)),
    ),
    aten.logit_backward.default: calls(
        loose=lambda draw: call(draw(7, 34), draw(7, 34, low=-0.2, high=1.2)),
        clamped=lambda draw: call(draw(7, 34), draw(7, 34, low=-0.2, high=1.2), 0.1),
    ),
    aten.special_entr.default: unary((torch.float32, torch.float64, torch.int64)),
    # gather
    aten._unsafe_index.Tensor: _INDEX,
    aten.take.default: calls(
        matrix=lambda draw: call(draw(7, 5, special=True), some(draw, 3, 4, below=35, negative=True)),
        transposed=lambda draw: call(draw(5, 7).t(), some(draw, 9, below=35)),
        scalar=lambda draw: call(draw(), some(draw, 2, below=1, negative=True)),
        none=lambda draw: call(draw(7, 5), some(draw, 0, below=7)),
        half=lambda draw: call(draw(4, 5, 6, dtype=torch.float16), some(draw, 3, below=120)),
    ),
    # joining
    aten.stack.default: calls(
        first=lambda draw: call([draw(3, 5, special=True), draw(3, 5)]),
        last=lambda draw: call([draw(3, 5), draw(5, 3).t(), draw(3, 5)], -1),
        numbers=lambda draw: call([draw(), draw()]),
        mixed=lambda draw: call([draw(3, dtype=torch.int32), draw(3)], 1),
        one=lambda draw: call([draw(3)], 1),
    ),
    aten.tile.default: of_view((same, [2, 1, 3]), (same, [2]), (lambda x: x[0, 0], [2, 2])),
    aten.repeat_interleave.self_int: of_view(
        (same, 2, 1), (same, 3, -1), (same, 1, 0), (same, 2), (lambda x: x[:, :0], 2, 1), (same, 0, 2)
    ),
    aten.diag_embed.default: of_view(
        (same,), (same, 2), (same, -1, 0, 2), (lambda x: x[0, 0], 0, 1, 0), (lambda x: x[:, :0],)
    ),
    # random
    aten.native_dropout_backward.default: calls(
        plain=lambda draw: call(draw(7, 34), draw(7, 34, dtype=torch.bool), 1.25),
        half=lambda draw: call(draw(7, 34, dtype=torch.bfloat16), draw(7, 34, dtype=torch.bool), 1.25),
    ),
    # reductions
    aten.sum.default: _samples(
        [((), {}), ((), {"dtype": torch.float64})], (*_FLOAT_TYPES, *_INTS), empty=[()]
    ),
    aten.aminmax.default: _samples(
        [((), {"dim": 1}), ((), {"dim": -1, "keepdim": True}), ((), {})], _EXTREME_TYPES
    ),
    aten.all.default: _truth_samples([((), {})], (), [()]),
    aten.all.dim: _truth_samples(_DIM, (0,), [(1,)]),
    aten.all.dims: _truth_samples(_DIMS, ([0],), [([1],)]),
    aten.std.correction: _SPREAD_SAMPLES,
    aten.std_mean.correction: _FINITE_SPREAD_SAMPLES,
    # scatter
    aten._unsafe_index_put.default: _INDEX_PUT,
    # shape
    aten._reshape_alias.default: of_view((same, [24, 5], [5, 1]), (lambda x: x[:, 0, :1], [2, 2], [60, 30])),
    aten.squeeze.default: of_view((lambda x: x[:1, :, :1],), (lambda x: x[:1, :1, :1],), (same,)),
    aten.squeeze.dim: of_view(
        (lambda x: x[:1], 0), (same, 0), (lambda x: x[:, :1], -2), (lambda x: x[0, 0, 0], 0)
    ),
    aten.transpose.int: of_view(
        (same, 0, 2), (same, -1, -2), (lambda x: x[0, 0, 0], 0, -1), (lambda x: x[:, ::2], 1, 1)
    ),
    aten.t.default: of_view((lambda x: x[0],), (lambda x: x[0, 0],), (lambda x: x[0, 0, 0],)),
    aten.movedim.intlist: of_view((same, [0, 1], [-1, 0]), (same, [2], [0])),
    aten.movedim.int: of_view((same, 0, -1), (same, 2, 0)),
    aten.unsafe_split.Tensor: of_view((same, 2), (same, 4, 1), (same, 3, -1), (same, 100, 2)),
    aten.chunk.default: of_view((same, 2), (same, 4, 1), (same, 3, -1), (same, 100, 2)),
    aten.split.sizes: of_view((same, [1, 3]), (same, [2, 0, 4], 1), (same, [5], -1)),
    aten.unsafe_split_with_sizes.default: of_view((same, [1, 3]), (same, [2, 0, 4], 1), (same, [5], -1)),
    aten.__and__.Tensor: binary(_BITS),
    aten.__and__.Scalar: with_numbers(5, dtypes=_BITS),
    aten.__or__.Tensor: binary(_BITS),
    aten.__xor__.Tensor: binary(_BITS),
    aten.isfinite.default: unary((*FLOATS, *INTS, torch.bool)),
    **{
        getattr(aten, f"{view}_copy").default: lowered(getattr(aten, view).default).samples
        for view in ("expand", "unsqueeze", "diagonal", "unfold", "split_with_sizes")
    },
    aten.squeeze_copy.dims: lowered(aten.squeeze.dims).samples,
}
