"""Reductions over (spatial, a few channels) of tensors whose channels are contiguous, as the statistics of a
group norm are: channels are reduced by themselves, with whole lines read, and combined afterwards."""

from __future__ import annotations

import pytest
import torch

from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton.test_nests import coarsest, near
from tests.compiler.codegen.triton_running import generated, run_interpreted, small_chip, titles
from tests.compiler.lower.harness import as_list
from tests.golden.triton_programs import ACROSS
from tests.nightly import few

APART = "split rows, lanes apart"


def last(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(shape, generator=generator) + 3
    return drawn.to(dtype).to(memory_format=torch.channels_last)


def checked(function, *inputs: torch.Tensor, candidates: int = 1, **limits: int) -> list[str]:
    graph = aten_of(function, *inputs)
    with small_chip(**(ACROSS | limits)):
        _, source = generated(graph)
    exact = [item.double() if item.is_floating_point() else item for item in inputs]
    for candidate in range(candidates):
        got = run_interpreted(source, graph, inputs, candidate=candidate)
        if inputs[0].dtype == torch.float64:  # there is nothing more exact to compare with
            torch.testing.assert_close(got, as_list(function(*inputs)), rtol=1e-12, atol=1e-12)
        else:
            near(got, as_list(function(*inputs)), as_list(function(*exact)), coarsest(graph), titles(source))
    return titles(source)


def statistics(groups: int):
    def function(x):
        return torch.native_group_norm(x, None, None, x.shape[0], x.shape[1], x[0, 0].numel(), groups, 1e-5)

    return function


@few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", [2, 3, 4, 10])
def test_group_norm(size, dtype):
    x = last(2, 8 * size, 9, 11, dtype=dtype)
    assert APART in checked(statistics(8), x, candidates=3)


def test_far_from_zero():
    """A variance is not lost in the square of a mean."""
    x = last(2, 32, 12, 12) * 1e-2 + 300 + torch.arange(32).view(1, -1, 1, 1) * 0.03
    assert APART in checked(statistics(8), x)


def test_what_is_stored_on_the_way():
    def function(x, y):
        return checked_norm(torch.cat([x, y], 1) + 1)

    def checked_norm(z):
        return z, *statistics(8)(z)

    x, y = last(2, 12, 9, 8), last(2, 20, 9, 8, seed=1)
    assert APART in checked(function, x, y)


@pytest.mark.parametrize("kind", ["sum", "amax", "amin"])
def test_other_reductions(kind):
    def function(x):
        return getattr(torch, kind)(x.unflatten(1, (8, 4)) * 0.3, (2, 3, 4))

    assert APART in checked(function, last(3, 32, 7, 6), candidates=3)


def test_one_slab():
    """Where images are many, one program walks all of an image's channels."""
    assert APART in checked(statistics(8), last(6, 32, 5, 6), multiprocessors=2)


def test_one_image():
    assert APART in checked(statistics(4), last(1, 16, 20, 20))
