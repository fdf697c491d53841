"""What is computed into ``out=`` keeps the strides of that tensor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import nbcompile

Tensor = torch.Tensor


def made_before(x: Tensor) -> tuple[Tensor, ...]:
    into = torch.empty(3, 4, 5)
    torch.add(x, 1, out=into)
    return into, into.view(-1) * 2, into + x


def given(x: Tensor) -> tuple[Tensor, ...]:
    into = x.contiguous() * 2
    returned = torch.mul(x, into, out=into)
    return returned, into.sin()


def a_window(x: Tensor) -> tuple[Tensor, ...]:
    base = torch.zeros(3, 8, 5)
    torch.exp(x, out=base[:, 2:6])
    return base, base.cos()


def wider(x: Tensor) -> tuple[Tensor, ...]:
    into = torch.empty(3, 4, 5, dtype=torch.float64)
    torch.add(x, 1, out=into)
    return (into * 2,)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [made_before, given, a_window, wider])
def test_as_in_eager(function: Callable[[Tensor], tuple[Tensor, ...]], dynamic: bool) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(function, dynamic=dynamic, options={"cache": False})
    x = torch.randn(5, 3, 4).permute(1, 2, 0)
    for found, expected in zip(run(x.clone()), function(x.clone()), strict=True):
        torch.testing.assert_close(found, expected)
        if function is not wider:  # as torch has it
            assert found.stride() == expected.stride()
    assert run.ran_compiled, run.eager_reason


@pytest.mark.parametrize("turned", [False, True])
def test_only_one_that_is_laid_out_otherwise_is_copied_into(turned: bool) -> None:
    torch._dynamo.reset()
    x = torch.randn(4, 4).t() if turned else torch.randn(4, 4)
    run = nbcompile.compile(lambda x: torch.add(x, 1, out=torch.empty(4, 4)).sin(), options={"cache": False})
    run(x)
    assert any("out=" in step.note for step in run.compilation.passes) == turned
