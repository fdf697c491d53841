"""Another default device around a compile, and around a call, changes nothing for tensors of the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import nbcompile
from tests.nightly import few


def pointwise(x: Tensor) -> Tensor:
    return x.sin() * 2.5 + 1


def masked(x: Tensor) -> Tensor:
    places = torch.arange(x.shape[1], device="cpu")
    return torch.where(places > 3, x, x.cumsum(1)).sum(0)


def picked(x: Tensor) -> Tensor:
    return (x @ x.t())[torch.tensor([2, 0, 1], device="cpu")].softmax(1)


def drawn(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x, 0.5) + torch.rand(x.shape, device="cpu")


@few(3)
@pytest.mark.parametrize("shape", ((5, 7), (300, 400)), ids=str)
@pytest.mark.parametrize("function", (pointwise, masked, picked, drawn))
def test_cpu_tensors_under_another_default(
    function: Callable[[Tensor], Tensor], shape: tuple[int, int]
) -> None:
    x = torch.randn(shape, requires_grad=True)
    run = nbcompile.compile(function, options={"cache": False, "verify": True, "random": "eager"})
    with torch.device("meta"):
        torch.manual_seed(0)
        got = run(x)
        torch.manual_seed(0)
        wanted = function(x)
    assert run.ran_compiled, run.eager_reason
    torch.testing.assert_close(got, wanted)
    mine, theirs = (torch.autograd.grad(item.sum(), x)[0] for item in (got, wanted))
    torch.testing.assert_close(mine, theirs)
