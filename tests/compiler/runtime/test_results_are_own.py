"""Results are tensors like eager's: their owner may change them in place, and backward does not notice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import nbcompile
from tests.nightly import few

RESULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean of one": lambda x: x.tan().mean((0,), True),
    "sum of one": lambda x: x.tan().sum((0,), True),
    "clone": lambda x: x.tanh().clone(),
    "repeat": lambda x: x.tanh().repeat(1),
    "copy": lambda x: x.tanh().to(torch.float32, copy=True),
    "flip": lambda x: x.tanh().flip(0),
    "row": lambda x: (x.tanh() * 2)[None],
}


@few(4)
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


def detached_beside(x: Tensor) -> tuple[Tensor, ...]:
    y = x.exp()
    return y, y.detach()[1:], y.detach()[:2]


def detached_first(x: Tensor) -> tuple[Tensor, ...]:
    y = x.exp()
    return y.detach()[1:], y


def detached_and_overwritten(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.hstack([x[:1, None], x[:1, None]])
    shown = y.unflatten(0, (-1, 1)).detach()[None]
    turned = y.mT
    turned.copy_(turned)
    return y, shown


@few(2)
@pytest.mark.parametrize("function", [detached_beside, detached_first, detached_and_overwritten])
def test_what_is_detached_needs_no_gradient_and_tells_of_writes(
    function: Callable[[Tensor], tuple[Tensor, ...]],
) -> None:
    run = nbcompile.compile(function, options={"cache": False})
    x = torch.randn(4, requires_grad=True)
    expected, got = function(x), run(x)
    assert run.ran_compiled
    assert [item.requires_grad for item in got] == [item.requires_grad for item in expected]
    places = [[item.data_ptr() - of[0].data_ptr() for item in of] for of in (expected, got)]
    assert places[0] == places[1]
    next(item for item in got if not item.requires_grad).add_(1)
    assert [item._version for item in got] == [1] * len(got)


def last_rows(x: Tensor, source: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    shown = source.unflatten(0, (-1, 3))
    source.copy_(x)
    flat = table.reshape(-1)
    spread = torch.stack([flat, flat, flat], -1).diagonal(-1, 1, 0)
    return torch.cat([spread, spread], 0), shown


def test_a_view_of_an_overwritten_part_lies_where_it_does_in_eager() -> None:
    """Also where guards have made numbers of the sizes by which AOTAutograd finds it again."""
    torch._dynamo.reset()
    run = torch.compile(last_rows, backend="nbcompile")
    for width in (2, 4):
        held = torch.randint(-4, 4, (7, width), dtype=torch.int8)
        _, shown = run(torch.tensor(1.5), held[3:6], torch.randn(width, width))
        assert shown.data_ptr() == held[3:6].data_ptr()
        assert torch.equal(shown, torch.ones(1, 3, width, dtype=torch.int8))
