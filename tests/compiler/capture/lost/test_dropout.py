"""Dropout that is turned off is its input, and what is written to it is written to that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import nbcompile


def added(x: Tensor) -> Tensor:
    h = F.dropout(x, 0.5, training=False)
    h += 1
    return h * x


def module(x: Tensor) -> Tensor:
    h = DROP(x)
    h.mul_(2)
    return h + x


def shown(x: Tensor) -> Tensor:
    F.alpha_dropout(x, 0.5, training=False)[0] = 7
    return x.sin()


def channels(x: Tensor) -> Tensor:
    h = F.dropout1d(x, 0.5, False)
    h.relu_()
    return h - x


def never(x: Tensor) -> Tensor:
    h = F.dropout(x, 0.0, training=True)
    h += 1
    return h * x


def by_name(x: Tensor) -> Tensor:
    h = F.dropout(training=False, input=x, p=0.5)
    h += 1
    return h * x


DROP = torch.nn.Dropout(0.3).eval()


@pytest.mark.parametrize("function", [added, module, shown, channels, never, by_name])
def test_the_argument_is_written_to(function: Callable[[Tensor], Tensor]) -> None:
    torch._dynamo.reset()
    one, other = (torch.linspace(-2, 2, 12).reshape(3, 4) for _ in range(2))
    run = nbcompile.compile(function, options={"cache": False})
    torch.testing.assert_close(run(one), function(other))
    assert torch.equal(one, other) and run.ran_compiled, run.eager_reason


def test_one_that_is_on_draws() -> None:
    def function(x: Tensor) -> Tensor:
        h = F.dropout(x, 0.5, training=True)
        h += 1
        return h * x

    x = torch.ones(400)
    run = nbcompile.compile(function, options={"cache": False})
    found = run(x)
    assert set(found.tolist()) == {1.0, 3.0} and torch.equal(x, torch.ones(400))
