"""Backward of what forward made from an input before it overwrote that input."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import nbcompile

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
