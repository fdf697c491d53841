"""Programs that overwrite an input and go on with the new value: it is stored once, after all reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import nbcompile
from tests.nightly import few


def counter(s: torch.Tensor, x: torch.Tensor) -> None:
    s.add_(1)
    x.mul_(s)


def after_the_row(s: torch.Tensor, x: torch.Tensor) -> None:
    s.add_(x.sum(-1, keepdim=True))
    x.sub_(s)


def old_value_too(s: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    old = s * 1
    s.add_(x.sum(-1, keepdim=True))
    return x * old


def swapped(s: torch.Tensor, x: torch.Tensor) -> None:
    twice = s * 2
    s.copy_(x.amax(-1, keepdim=True))
    x.copy_(x + twice)


@few(2)
@pytest.mark.parametrize("interpret", [False, True], ids=["c", "triton"])
@pytest.mark.parametrize(
    ("function", "shape"),
    [(counter, ()), (counter, (8, 1)), (after_the_row, (8, 1)), (old_value_too, (8, 1)), (swapped, (8, 1))],
)
@pytest.mark.parametrize("size", [(8, 16), (8, 40_000)], ids=["short", "long"])
@pytest.mark.parametrize("across", [False, True], ids=["along", "across"])  # rows along memory, or across it
def test_new_and_old_values(
    function: Callable[..., torch.Tensor | None],
    shape: tuple[int, ...],
    size: tuple[int, int],
    across: bool,
    interpret: bool,
) -> None:
    if interpret:
        pytest.importorskip("triton")
    torch.manual_seed(0)
    eager = torch.rand(shape) + 1, torch.randn(size[::-1]).t() if across else torch.randn(size)
    ours = tuple(tensor.clone() for tensor in eager)
    compiled = nbcompile.compile(function, options={"interpret": interpret})
    expected, found = function(*eager), compiled(*ours)
    assert compiled.ran_compiled
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found, expected)


def test_a_row_added_to_every_row_is_overwritten_after_them() -> None:
    def function(row: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        row.add_(1)
        return x * row

    row, x = torch.randn(2048), torch.randn(64, 2048)
    ours, expected = row.clone(), row + 1
    found = nbcompile.compile(function)(ours, x)
    torch.testing.assert_close(found, x * expected)
    torch.testing.assert_close(ours, expected)


@pytest.mark.nightly
def test_a_compiled_optimizer_does_what_the_optimizer_does() -> None:
    def trained(compiled: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Linear(16, 16)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        step = optimizer.step
        for count in range(4):
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            step()
            if compiled and count == 0:  # its state is there
                step = nbcompile.compile(optimizer.step)
        return [parameter.detach() for parameter in model.parameters()]

    # With the step counted twice it would be 3e-4 off.
    torch.testing.assert_close(trained(True), trained(False), rtol=0, atol=1e-5)


@pytest.mark.parametrize("interpret", [False, True], ids=["c", "triton"])
def test_a_number_is_overwritten_after_all_programs_read_it(interpret: bool) -> None:
    """A GPU's programs all compute what does not depend on their points: none may store it meanwhile."""
    if interpret:
        pytest.importorskip("triton")

    def function(s: torch.Tensor, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        z.zero_()
        found = torch.where(z > 0, z, x)
        s.add_(z, alpha=-0.5)
        return found[..., :-1]

    expected = torch.tensor(1.5), torch.randn(2, 3000), torch.tensor(2.5)
    ours = tuple(tensor.clone() for tensor in expected)
    compiled = nbcompile.compile(function, options={"interpret": interpret, "verify": True, "cache": False})
    torch.testing.assert_close(compiled(*ours), function(*expected))
    assert compiled.ran_compiled
    torch.testing.assert_close(ours, expected)


@few(1)
@pytest.mark.parametrize("interpret", [False, True], ids=["c", "triton"])
def test_a_row_is_overwritten_after_all_programs_read_it(interpret: bool) -> None:
    if interpret:
        pytest.importorskip("triton")

    def function(row: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        first = x[0] * 2
        row.sub_(first)
        return x.flip(1) + first

    expected = torch.randn(700), torch.randn(40, 700)
    ours = tuple(tensor.clone() for tensor in expected)
    compiled = nbcompile.compile(function, options={"interpret": interpret, "verify": True, "cache": False})
    torch.testing.assert_close(compiled(*ours), function(*expected))
    assert compiled.ran_compiled
    torch.testing.assert_close(ours, expected)


def put_then_added(x: torch.Tensor, y: torch.Tensor) -> None:
    average = x.mean()
    y += x
    x[0] = average


def put_into_both(x: torch.Tensor, y: torch.Tensor) -> None:
    average = x.mean()
    y[1:] = x[1:]
    x[:2] = average


def put_into_rows(x: torch.Tensor, y: torch.Tensor) -> None:
    average = x.mean()
    y += x
    x[:, :1] = average


@pytest.mark.parametrize("interpret", [False, True], ids=["c", "triton"])
@pytest.mark.parametrize(
    ("function", "shape"),
    [(put_then_added, 2), (put_then_added, 40), (put_into_both, 40), (put_into_rows, (30, 3))],
)
def test_two_are_overwritten_the_second_by_what_the_first_held(
    function: Callable[..., None], shape: int | tuple[int, ...], interpret: bool
) -> None:
    if interpret:
        pytest.importorskip("triton")
    expected = torch.randn(shape), torch.randn(shape)
    ours = tuple(tensor.clone() for tensor in expected)
    compiled = nbcompile.compile(function, options={"interpret": interpret, "verify": True, "cache": False})
    compiled(*ours)
    function(*expected)
    assert compiled.ran_compiled
    torch.testing.assert_close(ours, expected)
