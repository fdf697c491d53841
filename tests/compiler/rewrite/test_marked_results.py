"""Conjugates and negatives by a mark: results have it where eager's do, and the graph is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import nbcompile

Tensor = torch.Tensor
CASES: dict[str, Callable[[Tensor], Any]] = {
    "of a kernel's": lambda x: (x * x).conj(),
    "of a library's": lambda x: (x @ x).conj(),
    "of nothing given": lambda _: torch.conj((torch.arange(9.0) - 1).to(torch.complex64)),
    "read within too": lambda x: ((x * x).conj(), (x * x).conj() + 1),
    "turned": lambda x: (x * x).conj().t(),
    "a part": lambda x: (x * 2).conj()[0],
    "beside what it shows": lambda x: (lambda y: (y, y.conj()))(x * x),
    "a negative": lambda x: (x * 2).conj().imag,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("grad", [False, True])
def test_a_result_is_marked_as_eagers_is(name: str, grad: bool) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(CASES[name], options={"cache": False})
    x = torch.randn(3, 3, dtype=torch.complex64, requires_grad=grad)
    found, expected = run(x), CASES[name](x)
    assert run.ran_compiled, run.eager_reason
    pairs = list(zip(found, expected)) if isinstance(found, tuple) else [(found, expected)]
    for one, other in pairs:
        torch.testing.assert_close(one, other)
        assert (one.is_conj(), one.is_neg()) == (other.is_conj(), other.is_neg())
        assert one.stride() == other.stride()
        if other.requires_grad:
            again = torch.autograd.grad(one.abs().sum(), x, retain_graph=True)
            torch.testing.assert_close(again, torch.autograd.grad(other.abs().sum(), x, retain_graph=True))
