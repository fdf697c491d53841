"""A value that two loops compute is one number: a minimum is found among the values that it was taken of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from tests.compiler.codegen.triton.test_modules import INTERPRET
from tests.nightly import few

C = {"cache": False, "verify": True}


@few(2)
@pytest.mark.parametrize("options", [C, INTERPRET], ids=["c", "triton"])
@pytest.mark.parametrize("size", [(8, 3), (3, 8), (5, 130)])
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_a_minimum(size: tuple[int, int], transposed: bool, options: dict[str, Any]) -> None:
    """The product in selu and the sum were one instruction where the minimum was taken, two where it was
    looked for: no value was the least, and the gradient was 0/0."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.amin(F.selu(x) + x, -1, keepdim=True)

    run = nbcompile.compile(f, options=options)
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(size)
        x = (x.t() if transposed else x).detach().requires_grad_()
        (got,) = torch.autograd.grad(run(x).sum(), x)
        (expected,) = torch.autograd.grad(f(x).sum(), x)
        torch.testing.assert_close(got, expected)
