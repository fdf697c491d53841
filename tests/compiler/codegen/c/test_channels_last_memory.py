"""Rows of several axes, and sums over everything, are walked in the order of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor


def images(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(shape).to(dtype).to(memory_format=torch.channels_last)


def kernel(function: Callable[..., Any], *inputs: Tensor) -> str:
    """The one kernel of a program, whose numbers are eager's, and those of float64."""
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False, "verify": True})
    found, expected = run(*inputs), function(*inputs)
    exact = function(*(x.double() if x.is_floating_point() else x for x in inputs))
    near = {torch.bfloat16: 2e-2}.get(inputs[0].dtype, 1e-4)
    torch.testing.assert_close(found, expected, rtol=near, atol=near, equal_nan=True)
    torch.testing.assert_close(found, exact, rtol=near, atol=near, equal_nan=True, check_dtype=False)
    assert run.ran_compiled, run.eager_reason
    (only,) = run.compilation.kernels
    return str(only.sources["c"])


@few(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [1, 3, 32])
def test_a_sum_over_everything_is_one_walk(channels: int, dtype: torch.dtype) -> None:
    code = kernel(lambda x: (x * x).sum(), images(2, channels, 48, 40, dtype=dtype))
    assert " j" not in code and f"i_block < {2 * channels * 48 * 40};" in code, code


def test_so_is_one_with_a_store_beside() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(x > 0, y, 0.5 * y), torch.where(x > 0, 0.0, x * y).sum()

    code = kernel(function, images(2, 32, 48, 40), images(2, 32, 48, 40) + 1)
    assert " j" not in code, code


def test_tensors_in_two_orders_are_not_one_walk() -> None:
    plain = torch.randn(2, 32, 24, 20)
    code = kernel(lambda x, y: (x * y).sum(), images(2, 32, 24, 20), plain)
    assert code.count("for (") > 1, code


def test_the_gradient_of_a_batch_norm_walks_its_channels_last() -> None:
    def function(grad: Tensor, x: Tensor, mean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        kept = torch.where(x > 0, grad, 0.0)
        return kept, kept.sum((0, 2, 3)), (kept * (x - mean[:, None, None])).sum((0, 2, 3))

    x = images(4, 32, 40, 40)
    code = kernel(function, x + 1, x, torch.randn(32))
    loops = [line for line in code.partition(" += ")[0].splitlines() if "for (" in line]
    assert "< 32;" in loops[-1] and "< 1600;" in loops[-2], code


def test_of_equal_numbers_the_first_is_found_in_the_programs_order() -> None:
    x = images(2, 3, 16, 16)
    x[:, 1, 3, 5] = x[:, 2, 0, 0] = x[:, 0, 9, 9] = 9
    run = nbcompile.compile(lambda x: (x * 2).argmax(), options={"cache": False})
    assert run(x) == (x * 2).argmax()
    run = nbcompile.compile(lambda x: (x * 2).flatten(1).argmax(1), options={"cache": False})
    assert torch.equal(run(x), (x * 2).flatten(1).argmax(1))


def test_special_numbers_and_empty_images() -> None:
    x = images(2, 3, 8, 8)
    x[0, 1, 2, 3] = torch.nan
    kernel(lambda x: x.amax(), x)
    x[0, 1, 2, 3] = torch.inf
    kernel(lambda x: x.sum(), x)
    run = nbcompile.compile(lambda x: x.sum(), options={"cache": False})
    assert run(images(0, 3, 8, 8)) == 0
