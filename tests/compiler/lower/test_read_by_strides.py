"""``as_strided`` of memory that is a copy to ATen, and shared with what it is a copy of in our loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx

import nbcompile
from nbcompile.compiler.lower.as_itself import begin_elsewhere
from tests.nightly import few


def overwritten(x: Tensor) -> Tensor:
    made = x * 2
    shown = torch.as_strided(made, (3, 2), (2, 1), 0)
    made.copy_(x)
    return shown + 1


def overwritten_view(x: Tensor) -> Tensor:
    made = x * 2
    shown = made.view(2, -1)[1:].as_strided((3, 2), (1, 3), 2)
    made.copy_(x)
    return shown + 1


def a_part_of_what_is_made(x: Tensor) -> Tensor:
    made, other = x[:12] * 2, x + 3
    shown = torch.as_strided(made, (2, 4), (5, 1), 1)
    made.copy_(other[7:19])
    return shown * made[:4]


def written_through(x: Tensor) -> Tensor:
    made = x[:12] * 2
    made.copy_(x[5:17])
    torch.as_strided(made, (3,), (4,), 1).add_(1)
    return made + 1


def broadcast(x: Tensor) -> Tensor:
    made = x[:12].view(3, 4) * 2
    made.copy_(x[3:7])
    return torch.as_strided(made, (6, 2), (2, 1), 0) + 1


@few(3)
@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize(
    "function", [overwritten, overwritten_view, a_part_of_what_is_made, written_through, broadcast]
)
def test_it_counts_from_the_start_of_the_copy(function: Callable[[Tensor], Tensor], start: int) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    x = torch.arange(27.0)[start:][:24]
    assert torch.equal(run(x), function(x))
    assert run.ran_compiled, run.eager_reason


def test_extents_of_which_one_is_1_by_a_guard() -> None:
    """Squeezed, a rank told that one of two symbolic extents is 1, not which."""

    def function(x: Tensor, index: Tensor) -> Tensor:
        return torch.diagonal(x, -1, 2, 1).squeeze().gather(0, index) * 2

    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    for rows, columns in ((3, 2), (4, 4), (5, 3)):
        x, index = torch.randn(rows, 1, columns), torch.tensor([0, rows - 1])
        assert torch.equal(run(x, index), function(x, index))
    assert run.ran_compiled, run.eager_reason


aten = torch.ops.aten
PART = torch.tensor([-1.0])


def first_two(x: Tensor) -> Tensor:
    return torch.as_strided(x, (2,), (1,), 0) * 1


def first_set(x: Tensor) -> Tensor:
    return torch.slice_scatter(x, PART, 0, 0, 1)


COUNTED = {
    "slice": lambda x: first_two(first_set(x)),
    "select": lambda x: first_two(torch.select_scatter(x, PART[0], 0, 0)),
    "twice": lambda x: first_two(first_set(torch.select_scatter(x, PART[0], 0, 1))[1:]),
    "strided": lambda x: first_two(torch.as_strided_scatter(x, PART, (1,), (1,), 0)),
    "written to": lambda x: torch.as_strided_scatter(first_set(x), PART, (1,), (1,), 1) * 2,
    "of a part": lambda x: first_two(first_set((x * 2)[1:])),
    "copied": lambda x: first_two(x[1:].copy_(x[:-1].clone())),
    "in place": lambda x: (x[:1].mul_(-5), first_two(x))[1],
    "through strides": lambda x: (torch.as_strided(x, (4,), (1,), 0).mul_(2), first_two(x))[1],
}  # fmt: skip


@few(4)
@pytest.mark.parametrize("starts", [(0,), (2,), (0, 2), (2, 0)])
@pytest.mark.parametrize("name", COUNTED)
def test_what_is_counted_from_where_a_storage_begins(name: str, starts: tuple[int, ...]) -> None:
    """ATen's scatters keep what lies before their source in its storage, and no guard asks how much that is:
    read from the storage's start, ours showed the tensor instead (seed 24002802)."""
    torch._dynamo.reset()
    function = COUNTED[name]
    run = nbcompile.compile(function, options={"cache": False})
    for start in starts:
        found, expected = torch.arange(8.0), torch.arange(8.0)
        lengths = slice(start, start + 4)
        if not start:
            found, expected = found[:4].clone(), expected[:4].clone()
        assert torch.equal(run(found[lengths]), function(expected[lengths]))
        assert torch.equal(found, expected)


def test_a_long_chain_of_writes_is_followed() -> None:
    graph = fx.Graph()
    made, part = graph.placeholder("x"), graph.placeholder("part")
    for _ in range(3000):
        made = graph.call_function(aten.select_scatter.default, (made, part, 0, 0))
    assert not begin_elsewhere(graph)
    graph.call_function(aten.as_strided.default, (made, [2], [1]))
    assert not begin_elsewhere(graph)
    graph.call_function(aten.as_strided.default, (made, [2], [1], 0))
    assert len(begin_elsewhere(graph)) == 3001
