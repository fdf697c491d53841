"""Gradients and inputs whose memory is not what they hold."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import nbcompile
from tests.nightly import few


def compiled() -> Any:
    torch._dynamo.reset()
    return nbcompile.compile(lambda x: x.sin() * 2, options={"cache": False})


@few(2)
@pytest.mark.parametrize("after", [torch.sgn, torch.sign, torch.floor])
def test_zeros_without_memory_are_a_gradient_like_others(after: object) -> None:
    x = torch.randn(5, requires_grad=True)
    (found,) = torch.autograd.grad(after(compiled()(x)).sum(), x)  # type: ignore[operator]
    assert torch.equal(found, torch.zeros(5))


def test_a_gradient_that_is_the_opposite_of_its_memory() -> None:
    x = torch.randn(5, requires_grad=True)
    weights = torch._neg_view(torch.randn(5))
    assert weights.is_neg() and weights.is_contiguous()
    found = torch.autograd.grad(compiled()(x), x, weights)
    torch.testing.assert_close(found, torch.autograd.grad(x.sin() * 2, x, weights))


def test_an_input_that_is_the_opposite_of_its_memory() -> None:
    x = torch.randn(5, dtype=torch.complex64).conj().imag
    run = compiled()
    torch.testing.assert_close(run(x), x.sin() * 2)
    assert run.ran_compiled, run.eager_reason
    torch.testing.assert_close(run(x.clone()), x.sin() * 2)
    torch.testing.assert_close(run(x), x.sin() * 2)


def test_zeros_that_autograd_makes_within_a_graph() -> None:
    torch._dynamo.reset()
    function = lambda x: torch.nn.functional.celu(x.lerp(x, 0.8).sgn())
    run = nbcompile.compile(function, options={"cache": False})
    x = torch.randn(4, requires_grad=True)
    assert torch.equal(torch.autograd.grad(run(x).sum(), x)[0], torch.zeros(4))
    assert run.ran_compiled, run.eager_reason


def test_a_gradient_of_another_dtype_than_fake_tensors_are_told() -> None:
    """Fake tensors say that the number counts for the dtype; backward would read float32 as float64, beyond
    its end."""
    torch._dynamo.reset()
    number = torch.tensor(1.5, dtype=torch.float64)
    run = nbcompile.compile(lambda x: torch.block_diag(number, x) * 2, options={"cache": False})
    x, weights = torch.randn(3, requires_grad=True), torch.randn(2, 4)
    (found,) = torch.autograd.grad(run(x), x, weights)
    assert torch.equal(found, weights[1, 1:] * 2)
    assert run.ran_compiled, run.eager_reason
