"""Results whose place in memory no loop can say are made by ATen's views, and all else is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor


def a_part_of_what_is_overwritten(x: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return x[1:].diagonal(), x.sum() * 3


def parts_of_a_split(x: Tensor) -> tuple[Tensor, ...]:
    return *torch.split(x, 2, 1)[1:], x.cos()


def two_layouts(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = x.t() * 2
    return y.reshape(-1)[1:], y[1:], y.view(torch.int32)[:, 1:]


def windows(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.unfold(0, 2, 1)[1:], x.exp()


def strided(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.as_strided([2, 2], [1, 1], 3), x + 1


def expanded(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.expand(3, *x.shape).transpose(0, 1)[1:], x.sin()


def written_through_a_view(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x[1:, ::2]
    y.add_(1)
    return y.permute(1, 0)[1:], y.sum()


FUNCTIONS = [
    a_part_of_what_is_overwritten, parts_of_a_split, two_layouts, windows, strided, expanded,
    written_through_a_view,
]  # fmt: skip


def described(found: tuple[Tensor, ...], x: Tensor) -> list[Any]:
    return [
        (item.shape, item.stride(), item.storage_offset(), torch._C._is_alias_of(item, x),
         [torch._C._is_alias_of(item, other) for other in found])
        for item in found
    ]  # fmt: skip


@few(3)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("form", ["plain", "gradient", "part", "repeated"])
def test_results_lie_where_eager_lays_them(
    function: Callable[[Tensor], tuple[Tensor, ...]], dynamic: bool, form: str
) -> None:
    torch._dynamo.reset()
    if form == "repeated" and function in (a_part_of_what_is_overwritten, written_through_a_view):
        pytest.skip("eager writes to no elements that share memory")
    run = nbcompile.compile(function, dynamic=dynamic, options={"cache": False})
    whole = torch.randn(5, 6)
    pairs = []
    for call in (run, function):
        base = whole.clone().requires_grad_(form == "gradient")
        x = base * 1 if form == "gradient" else base
        given = {"part": x[1:], "repeated": x[:1].expand(4, 6)}.get(form, x)
        found = call(given)
        pairs.append((found, given, base))
    (mine, x, own), (theirs, y, other) = pairs
    assert described(mine, x) == described(theirs, y)
    for one, two in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, two)
    torch.testing.assert_close(x, y)
    if form == "gradient":
        for found, leaf in ((mine, own), (theirs, other)):
            sum(item.sum() for item in found if item.requires_grad).backward()  # type: ignore[union-attr]
            assert leaf.grad is not None
        torch.testing.assert_close(own.grad, other.grad)
    assert run.ran_compiled, run.eager_reason
    mine[0].detach().fill_(3)  # who gets a result may write to it
    theirs[0].detach().fill_(3)
    torch.testing.assert_close(x, y)


def test_a_type_that_loops_do_not_write_lies_as_eagers_does() -> None:
    torch._dynamo.reset()

    def function(x: Tensor, places: Tensor) -> Tensor:
        return torch.as_strided(x[places], (2, 3), (0, 0), 2)

    run = nbcompile.compile(function, dynamic=True, options={"cache": False})
    for count in (4, 5):
        x, places = torch.randn(count, dtype=torch.complex64), torch.arange(count)
        found, expected = run(x, places), function(x, places)
        assert torch.equal(found, expected) and found.stride() == expected.stride()
    assert run.ran_compiled, run.eager_reason


@pytest.mark.parametrize("wanted", [False, True])
def test_strides_of_extents_of_one(wanted: bool) -> None:
    """They say nothing of a result's own place, and yet how the next graph's operators lay out theirs: an
    index of many is laid out as what it picks from (seed 24200894)."""

    def program(x: Tensor) -> tuple[Tensor, ...]:
        y = x.exp().amax(1, keepdim=True)
        return y.movedim(2, -3).unsqueeze(3), y.transpose(0, 2), x[:1].mT * 2

    torch._dynamo.reset()
    run = nbcompile.compile(program, options={"cache": False})
    x = torch.randn(16, 2, 9, requires_grad=wanted)
    found, expected = run(x[..., :8]), program(x[..., :8])
    assert [item.stride() for item in found] == [item.stride() for item in expected]
    assert run.ran_compiled, run.eager_reason


@pytest.mark.parametrize("dynamic", [False, True])
def test_strides_of_one_number_expanded(dynamic: bool) -> None:
    """They are 0 in each dimension, whatever was traced."""

    def program(x: Tensor) -> tuple[Tensor, ...]:
        return x.sum().expand(1), x.argmin().expand(1, 1), x.amax().expand(1, 3), x.sum(0, True).expand(1)

    torch._dynamo.reset()
    run = nbcompile.compile(program, dynamic=dynamic, options={"cache": False})
    found, expected = run(torch.randn(5)), program(torch.randn(5))
    assert [item.stride() for item in found] == [item.stride() for item in expected]
    assert run.ran_compiled, run.eager_reason


def test_symbolic_strides_of_extents_of_one() -> None:
    """A step that only the arguments tell: of one row that it leaves, no element tells it."""

    def program(x: Tensor, step: int) -> tuple[Tensor, ...]:
        return x[::step], (x * 2)[:, ::step], (x * 3).t()[::step].unsqueeze(1)

    torch._dynamo.reset()
    run = nbcompile.compile(program, dynamic=True, options={"cache": False, "verify": True})
    for shape, step in (((6, 3), 2), ((6, 3), 7), ((6, 4), 9), ((5, 4), 11)):
        x = torch.randn(shape)
        found, expected = run(x, step), program(x, step)
        assert [item.stride() for item in found] == [item.stride() for item in expected]
        torch.testing.assert_close(found, expected)
    assert run.ran_compiled, run.eager_reason


def of_eight_bits(x: Tensor) -> tuple[Tensor, ...]:
    made = (x * 3).clamp(-448, 448).to(torch.float8_e4m3fn)
    return made, made.view(torch.uint8), (x.sin() @ x).softmax(-1)


def parts_of_eight_bits(x: Tensor) -> tuple[Tensor, ...]:
    made = (x.t() * 3).clamp(-448, 448).to(torch.float8_e4m3fn)
    return made.view(torch.uint8)[1:], made.t()


def complex_and_its_parts(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.complex(x.sin(), x * 2) * 1j + 1
    return torch.view_as_real(y)[..., 0], y, y.t(), y.imag[1:]


def laid_out_across(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.complex(x, x.cos()).t().exp()
    return y, torch.view_as_real(y), y.abs()


def of_a_transform(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.fft.fft(x)
    return y, y.real, x.sin()


def bits(found: Tensor) -> Tensor:
    eight = found.dtype == torch.float8_e4m3fn
    return found.detach().view(torch.uint8) if eight else found.detach()


@few(4)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(
    "function",
    [of_eight_bits, parts_of_eight_bits, complex_and_its_parts, laid_out_across, of_a_transform],
)
def test_a_result_and_a_view_of_it_in_another_type_are_one_memory(
    function: Callable[[Tensor], tuple[Tensor, ...]], train: bool, dynamic: bool
) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(function, dynamic=dynamic, options={"cache": False})
    given = torch.randn(4, 4)
    ours, eagers = given.clone().requires_grad_(train), given.clone().requires_grad_(train)
    for _ in range(2):
        found, expected = run(ours), function(eagers)
        assert run.ran_compiled, run.eager_reason
        assert run.compilation.kernels
        told = [
            [(item.dtype, item.requires_grad, *described((item, *results), x)[0]) for item in results]
            for results, x in ((found, ours), (expected, eagers))
        ]
        assert told[0] == told[1]
        assert described(found, ours) == described(expected, eagers)
        for mine, other in zip(found, expected, strict=True):
            torch.testing.assert_close(bits(mine), bits(other))
        if train:
            gradients = [
                torch.autograd.grad([y.float().sum() if y.dtype == torch.float8_e4m3fn else y.abs().sum()
                                     for y in results if y.requires_grad], x, retain_graph=True)
                for results, x in ((found, ours), (expected, eagers))
            ]  # fmt: skip
            torch.testing.assert_close(*gradients)
        for place in range(len(found)):  # what is written to one shows in the others
            for results in (found, expected):
                results[place].copy_(torch.full(results[place].shape, place + 1.0).to(results[place].dtype))
            for mine, other in zip(found, expected, strict=True):
                torch.testing.assert_close(bits(mine), bits(other))


def test_what_autograd_makes_again_is_made_of_its_own_base() -> None:
    """Of ``view_as_complex`` the base is its pair of numbers, which the caller may write to."""
    torch._dynamo.reset()

    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = torch.view_as_complex(x.sin())
        return y, torch.view_as_real(y), y.abs()

    run = nbcompile.compile(function, options={"cache": False})
    given = torch.randn(4, 2)
    made = []
    for call in (run, function):
        found = call(given.clone().requires_grad_())
        found[0].mul_(2)
        made.append([item.detach() for item in found])
    torch.testing.assert_close(*made)
