"""Copies and views of inputs that a graph overwrites are what they are in eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor
Function = Callable[[Tensor, Tensor], Tensor]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def flat(x: Tensor, w: Tensor) -> Tensor:
    shown = x.flatten()
    x += w
    return shown


def within(x: Tensor, w: Tensor) -> Tensor:
    kept = x.contiguous()
    x += w
    return kept * w


def shaped(x: Tensor, w: Tensor) -> Tensor:
    kept = torch.reshape(x[1:], (-1,))
    x.mul_(w)
    return kept


def afterwards(x: Tensor, w: Tensor) -> Tensor:
    x += w
    return x.reshape(x.shape[0] * x.shape[1])


def part(x: Tensor, w: Tensor) -> Tensor:
    x[:2] = w
    return x[x.shape[0] // 2 :]


def pieces(x: Tensor, w: Tensor) -> Tensor:
    x.mul_(w)
    return torch.split(x, 3, 1)[1][None] if not w.requires_grad else x.narrow(1, 3, 3)


def chained(x: Tensor, w: Tensor) -> Tensor:
    shown = F.relu(x, inplace=True).add_(w).unflatten(0, (2, -1))
    return shown.detach()


def like(x: Tensor, w: Tensor) -> Tensor:
    x += w
    return x.expand_as(torch.cat([x[None], x[None]]))


def expanded(x: Tensor, w: Tensor) -> Tensor:
    x[1::2][0] = 1.5
    return x.expand(3, -1, -1)


def turned(x: Tensor, w: Tensor) -> Tensor:
    """The shape was that of before it is turned (fuzzer's seed 15207368)."""
    shown = x[: x.shape[0] // 2]
    shown.transpose_(0, 1)
    x += w
    return shown


def turned_twice(x: Tensor, w: Tensor) -> Tensor:
    wide = x.unsqueeze(0)
    x.mul_(w)
    shown = wide[:, : x.shape[0] - 1].transpose_(1, 2)
    wide.squeeze_(0).t_()
    return shown.unsqueeze_(-1)[0]


FUNCTIONS = (turned, turned_twice, expanded, flat, within, shaped, afterwards, part, pieces, chained, like)


@few(3)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("strides", [(6, 1), (60, 10), (30, 1), (1, 9)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_as_in_eager(
    function: Function, strides: tuple[int, int], offset: int, grad: bool, dynamic: bool
) -> None:
    run = nbcompile.compile(function, dynamic=dynamic, options={"cache": False})
    for longer in (0, 2):
        sizes = (4 + longer, 6)
        held, wanted = torch.arange(500.0), torch.arange(500.0)
        x, y = (each.as_strided(sizes, strides, offset) for each in (held, wanted))
        w = torch.tensor(100.0, requires_grad=grad)
        found, expected = run(x, w), function(y, w)
        assert torch.equal(found, expected) and torch.equal(held, wanted)
        assert found.stride() == expected.stride()
        assert found.requires_grad == expected.requires_grad
        assert torch._C._is_alias_of(found, x) == torch._C._is_alias_of(expected, y)
        if found.requires_grad:
            ours, eagers = (torch.autograd.grad(each.sum(), w)[0] for each in (found, expected))
            assert torch.equal(ours, eagers)
    supposes = dynamic and function in (turned, turned_twice)  # of sizes that no guard can name
    if function is not like and not supposes:
        assert run.ran_compiled, run.eager_reason


def test_a_view_by_a_tensor_is_left_to_eager_by_symbolic_sizes() -> None:
    run = nbcompile.compile(like, dynamic=True, options={"cache": False})
    x, y = (torch.arange(40.0)[3:27].view(4, 6) for _ in range(2))
    assert torch.equal(run(x, torch.tensor(2.0)), like(y, torch.tensor(2.0)))
    assert "view of it by symbolic sizes" in run.eager_reason


@pytest.mark.parametrize("before", [False, True])
def test_strides_of_the_programs_own_are_left_to_eager_of_what_is_overwritten(before: bool) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        shown = x.as_strided((3,), (5,), 1)
        x += w
        return shown if before else x.as_strided((3,), (5,), 1)

    run = nbcompile.compile(function, options={"cache": False})
    for grad in (False, True):
        x, y = (torch.arange(40.0).as_strided((2, 2), (12, 4), 2) for _ in range(2))
        w = torch.tensor(2.0, requires_grad=grad)
        assert torch.equal(run(x, w), function(y, w)) and torch.equal(x, y)
    assert "strides of its own" in run.eager_reason


def test_strides_of_the_programs_own_of_the_whole_of_memory_are_compiled() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        x += w
        return x.as_strided((3,), (5,), 1) * 2

    run = nbcompile.compile(function, options={"cache": False})
    for grad in (False, True):
        x, y = (torch.arange(24.0).view(4, 6) for _ in range(2))
        w = torch.tensor(2.0, requires_grad=grad)
        assert torch.equal(run(x, w), function(y, w)) and torch.equal(x, y)
    assert run.ran_compiled, run.eager_reason


@few(1)
@pytest.mark.parametrize("dynamic", [False, True])
def test_views_within_a_transform(dynamic: bool) -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        shown = torch.vmap(lambda row: row[1:].reshape(-1))(x)
        copied = torch.vmap(lambda row: (row + w).flatten().contiguous())(x)
        x += w
        return shown, copied

    run = nbcompile.compile(function, dynamic=dynamic, options={"cache": False})
    for rows in (4, 5):
        x, y = (torch.arange(80.0).as_strided((rows, 3), (12, 1), 2) for _ in range(2))
        for grad in (False, True):
            w = torch.tensor(2.0, requires_grad=grad)
            for found, expected in zip(run(x.detach(), w), function(y.detach(), w), strict=True):
                assert torch.equal(found, expected)
            assert torch.equal(x, y)


def test_one_that_is_overwritten_in_shape_too() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        x.t_()
        x += w
        return x[1:].unsqueeze(0)

    for dynamic in (False, True):
        torch._dynamo.reset()
        run = nbcompile.compile(function, dynamic=dynamic, options={"cache": False})
        x, y = (torch.arange(40.0).as_strided((4, 6), (6, 1), 3) for _ in range(2))
        assert torch.equal(run(x, torch.tensor(2.0)), function(y, torch.tensor(2.0)))
        assert torch.equal(x, y)
