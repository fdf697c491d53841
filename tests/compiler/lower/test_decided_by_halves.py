"""What decides by a number of a half type decides by what the type holds of it, as eager does, although a
kernel goes on with it in float32: is it infinite, is it 0, is it above 1, which is the first of equals. What
chooses a number (a bound, a value to fill in) has what the type holds of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from tests.nightly import few

TINY = 1e-9  # what float16 rounds to 0, when it is a product of two steps

OVERFLOW: dict[str, Callable[[Any], Any]] = {
    "isinf": torch.isinf,
    "isposinf": torch.isposinf,
    "isneginf": lambda v: torch.isneginf(-v),
    "isfinite": torch.isfinite,
    "nan_to_num": torch.nan_to_num,
    "where it is infinite": lambda v: torch.where(v.isinf(), 0, v),
    "an infinite maximum": lambda v: v.amax(-1) == float("inf"),
    "the place of the maximum": lambda v: v.argmax(-1),
    "maximum and place": lambda v: v.max(0),
}
UNDERFLOW: dict[str, Callable[[Any], Any]] = {
    "sign": torch.sign,
    "not": torch.logical_not,
    "and": lambda v: torch.logical_and(v, v),
    "bool": lambda v: v.bool(),
    "any": lambda v: v.any(-1),
    "count_nonzero": torch.count_nonzero,
    "how many": lambda v: torch.linalg.vector_norm(v, 0),
    "relu's gradient": lambda v: torch.ops.aten.threshold_backward(torch.ones_like(v), v, 0),
}
EQUALS: dict[str, Callable[[Any], Any]] = {
    "argmax": lambda v: v.argmax(-1),
    "argmin": lambda v: v.argmin(0),
    "max": lambda v: v.max(-1).indices,
    "max_pool1d": lambda v: F.max_pool1d(v, 3, return_indices=True)[1],
    "max_pool1d of one": lambda v: F.max_pool1d(v, 1, return_indices=True),
    "max_pool2d": lambda v: F.max_pool2d(v[None], 2, return_indices=True)[1],
    "threshold": lambda v: F.threshold(v, 1.0, 0) > 0,
    "hardtanh's gradient": lambda v: torch.ops.aten.hardtanh_backward(torch.ones_like(v), v, -1, 1),
    "hardshrink's gradient": lambda v: torch.ops.aten.hardshrink_backward(torch.ones_like(v), v, 1.0),
    "hardswish's gradient": lambda v: torch.ops.aten.hardswish_backward(torch.ones_like(v), v * 3) != 0,
}
CHOSEN: dict[str, Callable[[Any], Any]] = {
    "clamp": lambda v: v.clamp(-0.1, 0.3),
    "clamp from below": lambda v: v.clamp(min=0.1),
    "clamp by a tensor": lambda v: v.clamp(max=torch.tensor(0.1, dtype=torch.float64)),
    "hardtanh": lambda v: F.hardtanh(v, -0.1, 0.1),
    "maximum": lambda v: torch.maximum(v, torch.tensor(0.1)),
    "fmin": lambda v: torch.fmin(v, torch.tensor(0.1)),
    "masked_fill": lambda v: v.masked_fill(v > 0, 0.1),
    "where": lambda v: torch.where(v > 0, 0.1, v),
    "full": lambda v: torch.full_like(v, 0.1),
    "scalar_tensor": lambda v: torch.scalar_tensor(0.1, dtype=v.dtype),
    "nan_to_num": lambda v: (v / 0 * 0).nan_to_num(0.1),
}
WHOLE: dict[str, Callable[[Any], Any]] = {
    "floor": lambda v: (v[0] * 3.1).floor(),
    "decimals": lambda v: torch.round(v[0] * 3.1, decimals=1),
    "tens": lambda v: torch.round(v[0] * 31, decimals=-1),
    "a quotient rounded down": lambda v: torch.div(v[0] * 3.1, v[1] * 0.3, rounding_mode="floor"),
    "a quotient cut off": lambda v: torch.div(v[0] * 3.1, v[1] * 0.3, rounding_mode="trunc"),
    "tensors rounded down": lambda v: v[0] // v[1],
    "divided by a number": lambda v: (v[0] * 3.1) // 0.3,
    "a number divided": lambda v: 2.5 // (v[0] * 3.1),
    "divided by zeros": lambda v: (v[0] * 3.1) // (v[1] * 0.0),
}


def _check(function: Callable[[Any], Any], x: torch.Tensor) -> None:
    def compiled(x: torch.Tensor) -> Any:
        torch._dynamo.reset()
        return torch.compile(function, backend="nbcompile")(x)

    want, got = function(x), compiled(x)
    for expected, actual in zip(_leaves(want), _leaves(got), strict=True):
        assert expected.dtype == actual.dtype
        rtol = 2e-3 if expected.dtype == torch.float16 else 0  # numbers in between are not rounded
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=0, equal_nan=True)


def _leaves(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple) else [result]


def _numbers(dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(8, 33, generator=torch.Generator().manual_seed(3)) * scale).to(dtype)


@few(2)
@pytest.mark.parametrize("name", OVERFLOW)
def test_beyond_the_largest(name: str) -> None:
    _check(lambda x: OVERFLOW[name](x * x * 4e4), _numbers(torch.float16))


@few(2)
@pytest.mark.parametrize("name", UNDERFLOW)
def test_what_is_rounded_to_nothing(name: str) -> None:
    _check(lambda x: UNDERFLOW[name](x * 1e-3 * TINY), _numbers(torch.float16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@few(2)
@pytest.mark.parametrize("name", EQUALS)
def test_equal_once_rounded(name: str, dtype: torch.dtype) -> None:
    # of many numbers around 1 most are rounded to the same few, 1 itself among them
    x = (1 + _numbers(torch.float32, 3e-3)).to(dtype).repeat(4, 1)
    y = (1 + _numbers(torch.float32, 3e-3).flip(1)).to(dtype).repeat(4, 1)
    _check(lambda x: EQUALS[name](x[0] * x[1]), torch.stack([x, y]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@few(2)
@pytest.mark.parametrize("name", CHOSEN)
def test_what_is_chosen(name: str, dtype: torch.dtype) -> None:
    _check(lambda x: CHOSEN[name](x).float(), _numbers(dtype))


@few(4)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", WHOLE)
def test_which_whole_number(name: str, dtype: torch.dtype) -> None:
    run = nbcompile.compile(WHOLE[name], options={"cache": False})
    x = torch.randn(2, 4000, generator=torch.Generator().manual_seed(5)).to(dtype)
    torch.testing.assert_close(run(x), WHOLE[name](x), rtol=0, atol=0, equal_nan=True)
    assert run.ran_compiled and not run.compilation.library_calls


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_number_that_is_computed_of_sizes_is_chosen_too(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.threshold(x, 0.5, x.shape[0]) + x.clamp(max=x.shape[0] / 10)

    run = nbcompile.compile(function, dynamic=True, options={"cache": False})
    for rows in (3, 5):
        x = _numbers(dtype)[:rows]
        torch.testing.assert_close(run(x), function(x))
    assert not run.compilation.library_calls
