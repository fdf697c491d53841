"""Results are tensors like eager's: their owner may change them in place, and backward does not notice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import nbcompile

RESULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean of one": lambda x: x.tan().mean((0,), True),
    "sum of one": lambda x: x.tan().sum((0,), True),
    "clone": lambda x: x.tanh().clone(),
    "repeat": lambda x: x.tanh().repeat(1),
    "copy": lambda x: x.tanh().to(torch.float32, copy=True),
    "flip": lambda x: x.tanh().flip(0),
    "row": lambda x: (x.tanh() * 2)[None],
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_may_be_changed_in_place(name: str) -> None:
    f = RESULTS[name]
    run = nbcompile.compile(f, options={"cache": False})

    def outcome(of: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        x = torch.tensor([0.7], requires_grad=True)
        y = of(x)
        assert not y._is_view() or y._base is not None
        y.sub_(3.0)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        return y.detach(), gradient

    for got, expected in zip(outcome(run), outcome(f), strict=True):
        torch.testing.assert_close(got, expected)


def test_a_change_that_backward_would_notice_is_refused() -> None:
    """``tanh``'s gradient is made from its result: autograd says so, as in eager, also where what was saved
    is a view of what was returned."""

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.view(2, 3).tanh()
        return y, y.view(-1) * 2

    run = nbcompile.compile(f, options={"cache": False})
    x = torch.randn(6, requires_grad=True)
    y, z = run(x)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_results_that_are_equal_do_not_share_memory() -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.tanh()
        return y, y.clone()

    x = torch.randn(5, requires_grad=True)
    y, z = nbcompile.compile(f, options={"cache": False})(x)
    kept = y.detach().clone()
    z.zero_()
    torch.testing.assert_close(y.detach(), kept)
    torch.autograd.grad(y.sum(), x)


def test_a_complex_copy_has_memory_of_its_own() -> None:
    """Of a type that our kernels have not."""

    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x.exp()
        return x.sin().copy_(x), x.cos().copy_(y), y

    x = torch.randn(5, dtype=torch.complex64)
    got = nbcompile.compile(f, options={"cache": False})(x)
    assert len({item.untyped_storage().data_ptr() for item in (x, *got)}) == 4
    for one, two in zip(got, f(x), strict=True):
        torch.testing.assert_close(one, two)
