"""Conjugates and negatives by a mark: results have it where eager's do, and share what eager's share; what is
given with a mark is read as what it shows. The graph is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor
CASES: dict[str, Callable[[Tensor], Any]] = {
    "of a kernel's": lambda x: (x * x).conj(),
    "of a library's": lambda x: (x @ x).conj(),
    "of nothing given": lambda _: torch.conj((torch.arange(9.0) - 1).to(torch.complex64)),
    "read within too": lambda x: ((x * x).conj(), (x * x).conj() + 1),
    "turned": lambda x: (x * x).conj().t(),
    "a part": lambda x: (x * 2).conj()[1],
    "beside what it shows": lambda x: (lambda y: (y, y.conj()))(x * x),
    "beside parts": lambda x: (lambda y: (y[1:].conj(), y, y.conj().imag, torch.view_as_real(y)))(x * x),
    "in pieces": lambda x: (lambda y: (*y.conj().split(2), y[:1]))(x * x),
    "a negative": lambda x: (x * 2).conj().imag,
    "expanded": lambda x: (x * 2).conj().expand(2, 3, 3),
    "of what is given": lambda x: (x.conj(), x.conj()[1:].imag, x * 2),
    "of a real pair": lambda x: torch.view_as_complex(x.real[:, :2] * 2).conj(),
}
GIVEN: dict[str, Callable[[Tensor], Any]] = {
    "computed with": lambda x: (x * 2 + 1, (x @ x).sum(0)),
    "returned": lambda x: (x, x[1:], x.t(), x * 2),
    "marked again": lambda x: (torch._neg_view(x), x + 1),
    "expanded": lambda x: x.expand(2, 3, 3) * 2,
}
MARKED: dict[str, Callable[[], Tensor]] = {
    "a conjugate": lambda: torch.randn(3, 3, dtype=torch.complex64).conj(),
    "a negative": lambda: torch.randn(3, 3, dtype=torch.complex64).conj().imag,
}


def agree(run: Any, function: Callable[[Tensor], Any], x: Tensor) -> None:
    found, expected = run(x), function(x)
    assert run.ran_compiled, run.eager_reason
    pairs = list(zip(found, expected)) if isinstance(found, tuple) else [(found, expected)]
    for one, other in pairs:
        torch.testing.assert_close(one, other)
        assert (one.is_conj(), one.is_neg()) == (other.is_conj(), other.is_neg())
        assert (one.stride(), one.storage_offset()) == (other.stride(), other.storage_offset())
        if other.requires_grad:
            again = torch.autograd.grad(one.abs().sum(), x, retain_graph=True)
            torch.testing.assert_close(again, torch.autograd.grad(other.abs().sum(), x, retain_graph=True))
    assert sharing([one for one, _ in pairs]) == sharing([other for _, other in pairs])


def sharing(tensors: Sequence[Tensor]) -> list[list[bool]]:
    places = [item.untyped_storage().data_ptr() for item in tensors]
    return [[one == other for one in places] for other in places]


@few(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_result_is_marked_as_eagers_is(name: str, grad: bool, dynamic: bool) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(CASES[name], options={"cache": False}, dynamic=dynamic)
    agree(run, CASES[name], torch.randn(3, 3, dtype=torch.complex64, requires_grad=grad))


@few(5)
@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("mark", MARKED)
@pytest.mark.parametrize("name", GIVEN)
def test_what_is_given_with_a_mark_is_what_it_shows(
    name: str, mark: str, grad: bool, interpret: bool
) -> None:
    if interpret:
        pytest.importorskip("triton")
    torch._dynamo.reset()
    run = nbcompile.compile(GIVEN[name], options={"cache": False, "interpret": interpret})
    agree(run, GIVEN[name], MARKED[mark]().detach().requires_grad_(grad))


@pytest.mark.parametrize(
    "function",
    [lambda x: (lambda y: (torch.view_as_complex(y).conj(), y))(x * 2), lambda x: x.mul_(2) + 1],
    ids=["real beside", "overwritten"],
)
def test_what_is_left_to_aten_is_right_and_says_why(function: Callable[[Tensor], Any]) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    given = [torch.randn(3, 2, dtype=torch.complex64).conj().imag for _ in range(1)]
    given.append(given[0].clone())
    found, expected = run(given[0]), function(given[1])
    torch.testing.assert_close(found, expected)
    assert torch.equal(given[0], given[1])
    if isinstance(found, tuple):
        assert found[0].is_conj() and sharing(found) == sharing(expected)
    assert "is_neg" in run.eager_reason or "resolve_conj" in run.eager_reason
