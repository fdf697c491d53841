"""Branches of ``torch.cond`` that return other sizes than torch has supposed."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import nbcompile

Tensor = torch.Tensor


def _of_other_sizes(x: Tensor) -> tuple[Tensor, Tensor]:
    half = F.glu(x.exp(), 0)
    either = torch.cond(half.sum() > 0, torch.maximum, lambda a, b: a / (1 + b.abs().sum()), (half, half))
    return either, either.abs() ** torch.tanh(x)


def test_a_size_that_torch_took_for_another() -> None:
    """Of two numbers a half is one, and broadcast: torch takes it for two."""
    torch._dynamo.reset()
    x = torch.rand(2)
    run = nbcompile.compile(_of_other_sizes, dynamic=True, options={"cache": False})
    for _ in range(2):
        for found, expected in zip(run(x), _of_other_sizes(x), strict=True):
            torch.testing.assert_close(found, expected)
    assert "torch supposes that cond gives a size of" in run.eager_reason


def test_branches_of_one_size_are_compiled() -> None:
    torch._dynamo.reset()

    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda a: a.sin() * 2, lambda a: a.cos() + 1, [x]) + x

    run = nbcompile.compile(function, dynamic=True, options={"cache": False})
    for size in (3, 5, 8):
        x = torch.randn(size, 2)
        torch.testing.assert_close(run(x), function(x))
    assert run.ran_compiled, run.eager_reason
