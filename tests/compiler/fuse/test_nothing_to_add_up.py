"""Reductions of tensors without elements: partial sums would have no memory to be added up in."""

from __future__ import annotations

import pytest
import torch

import nbcompile
from tests.nightly import few

SHAPES = [(64, 0, 2), (3, 0, 2), (64, 0), (64, 2, 0), (2, 0, 64), (0,), (0, 64), (128, 0, 5)]


@few(6)
@pytest.mark.parametrize("target", ["cpu", "interpret"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_of_nothing(shape: tuple[int, ...], target: str) -> None:
    if target == "interpret":
        pytest.importorskip("triton")
    x = torch.randn(shape)
    dims = [0, -1, *([(0, 1)] if len(shape) > 1 else [])]

    def sums(x: torch.Tensor) -> list[torch.Tensor]:
        return [(x * 2).sum(dim) for dim in dims]

    torch._dynamo.reset()
    options = {"cache": False, "verify": True, "interpret": target == "interpret"}
    run = nbcompile.compile(sums, options=options)
    for found, expected in zip(run(x), sums(x), strict=True):
        assert torch.equal(found, expected)
    assert run.ran_compiled, run.eager_reason
