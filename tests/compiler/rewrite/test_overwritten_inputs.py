"""Backward of what forward made from an input before it overwrote that input."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor


def distance(x: Tensor, y: Tensor) -> Tensor:
    found = torch.hypot(x, y)
    x.sub_(x)
    return found * 1


def twice(x: Tensor, y: Tensor) -> Tensor:
    found = torch.hypot(x[1:], y[1:]) + torch.hypot(x[:-1], y[1:])
    x[1:].mul_(3)
    x.copy_(x.flip(0))
    return found


@few(2)
@pytest.mark.parametrize("function", [distance, twice])
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_are_of_the_old_numbers(function: Callable[..., Tensor], dynamic: bool) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(function, dynamic=dynamic, options={"cache": False})
    for size in (5, 8):
        x, y = torch.rand(size) + 1, (torch.rand(size) + 1).requires_grad_()
        again = x.clone()
        (found,) = torch.autograd.grad(run(x, y).sum(), y)
        (expected,) = torch.autograd.grad(function(again, y).sum(), y)
        torch.testing.assert_close(found, expected)
        assert torch.equal(x, again)
        assert run.ran_compiled, run.eager_reason


@pytest.mark.parametrize("part", ["partial", "whole"])
def test_an_input_that_is_given_a_gradient(part: str) -> None:
    """AOTAutograd overwrites it after the graph: what was saved of it autograd would refuse to read."""

    def step(x: Tensor, bias: Tensor) -> Tensor:
        found = torch.sin(x + bias)
        if part == "whole":
            bias += found.sum()
        else:
            bias[1:] *= found[0, 1:]
        return found

    run = nbcompile.compile(step, options={"cache": False})
    results = []
    for called in (run, step):
        torch.manual_seed(0)
        x, bias = torch.randn(4, 1, requires_grad=True), torch.randn(4)
        (gradient,) = torch.autograd.grad(called(x, bias).sum() + bias.sum(), x)
        results.append((gradient, bias.detach()))
    torch.testing.assert_close(results[0], results[1])
    assert run.ran_compiled, run.eager_reason
