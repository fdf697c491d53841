"""Scatters into expanded tensors: torch 2.11 traces their results as expanded, and they are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import nbcompile
from tests.nightly import few

SCATTERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "select": lambda x, y: torch.select_scatter(x, y, 1, 1),
    "slice": lambda x, y: torch.slice_scatter(x, y[:, None], 1, 1, 2),
    "diagonal": torch.diagonal_scatter,
    "as_strided": lambda x, y: torch.as_strided_scatter(x, y, (4,), (1,)),
}


@few(3)
@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=["float", "complex"])
def test_scatters_into_expanded_tensors(name: str, dtype: torch.dtype) -> None:
    scatter = SCATTERS[name]

    def f(x: Tensor, y: Tensor) -> Tensor:
        return scatter(x.expand(4, 4), y)

    x, y = torch.randn(4, 1, dtype=dtype), torch.randn(4, dtype=dtype)
    got, expected = nbcompile.compile(f, options={"cache": False})(x, y), f(x, y)
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got, expected)


def test_a_scatter_into_an_expanded_tensor_lies_as_a_copy_of_it_does() -> None:
    def f(x: Tensor) -> Tensor:
        turned = x.t().expand(3, -1, -1)
        return torch.slice_scatter(turned, turned[..., :1] * 2, 2, 1, 2)

    x = torch.randn(8, 7)
    got, expected = nbcompile.compile(f, options={"cache": False})(x), f(x)
    assert got.stride() == expected.stride() == (56, 1, 7)
    assert torch.equal(got, expected)
