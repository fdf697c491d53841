"""A result that shows a part of an input is where that part is, also where loops cannot say so."""

from __future__ import annotations

import pytest
import torch

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor


def flat_half(x: Tensor) -> Tensor:
    """The second half of a tensor whose rows the sizes hide."""
    flat = x.view(4 * 3, x.shape[0]).reshape(12 * x.shape[0])
    return torch.chunk(flat, 2, 0)[1].t()


@few(3)
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_half_of_a_flattened_input(dtype: torch.dtype, dynamic: bool) -> None:
    """AOTAutograd makes it anew from the input, by the place that the result of the graph has: a copy
    lies at 0."""
    torch._dynamo.reset()
    x = (torch.randn(4, 3, 4) * 3).to(dtype)
    run = nbcompile.compile(flat_half, dynamic=dynamic, options={"cache": False})
    found, expected = run(x), flat_half(x)
    assert torch.equal(found, expected)
    assert found.storage_offset() == expected.storage_offset() == 24
    assert torch._C._is_alias_of(found, x)


def test_a_place_in_the_storage_of_an_input() -> None:
    torch._dynamo.reset()
    x = torch.randn(4, 6)[1:]
    run = nbcompile.compile(lambda x: x.as_strided([3, 2], [6, 1], 8), options={"cache": False})
    found, expected = run(x), x.as_strided([3, 2], [6, 1], 8)
    assert torch.equal(found, expected) and found.storage_offset() == 8
    assert torch._C._is_alias_of(found, x)
