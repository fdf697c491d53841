"""A value, an update in place of what it was made from, and a reader of the value at other positions.

Where the value is computed again for its reader, that must be from what the input held before. Every
combination of the three parts is a program; ``make test`` has a spread of them, nightly has all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor
MADE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mul": lambda x, y: x * 2,
    "clamp": lambda x, y: x.clamp(-1, 1) * 0.1,
    "sigmoid": lambda x, y: x.sigmoid(),
    "with_another": lambda x, y: x * y + 1,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "of_a_row": lambda x, y: x - x.mean(1, keepdim=True),
    "of_a_column": lambda x, y: x - x.amax(0),
    "shifted": lambda x, y: x + x.roll(1, 1),
    "turned": lambda x, y: x + y[:8, :8].t().repeat(2, 2)[:12, :16],
}
UPDATES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "add": lambda x, v: x.add_(v),
    "sub": lambda x, v: x.sub_(v.sum()),
    "copy": lambda x, v: x.copy_(v),
    "copy_flipped": lambda x, v: x.copy_(v.flip(0)),
    "zero": lambda x, v: x.zero_(),
    "part": lambda x, v: x[2:5].mul_(v[2:5]),
    "steps": lambda x, v: x[:, ::2].add_(1),
    "through_a_view": lambda x, v: x.t().add_(v.t()),
    "twice": lambda x, v: x.add_(v).mul_(v),
    "neighbour": lambda x, v: x[1:].add_(x[:-1].clone()),
}
READERS: dict[str, Callable[[Tensor], Tensor]] = {
    "flip": lambda v: v.flip(0),
    "flip_columns": lambda v: v.flip(1),
    "roll": lambda v: v - v.roll(1, 0),
    "cat": lambda v: torch.cat([v[3:], v[:3]]),
    "pad": lambda v: F.pad(v, (2, 1, 1, 2)),
    "reflect": lambda v: F.pad(v[None], (2, 1, 1, 2), "reflect"),
    "avg_pool": lambda v: F.avg_pool2d(v[None], 3, 1, 1),
    "max_pool": lambda v: F.max_pool2d(v[None], 2),
    "local_response_norm": lambda v: F.local_response_norm(v[None, :, :, None], 3),
    "difference": lambda v: v[1:] - v[:-1],
    "stencil": lambda v: v[2:, 1:-1] + v[:-2, 1:-1] + v[1:-1, 2:] + v[1:-1, :-2],
    "transposed": lambda v: v.t().contiguous(),
    "sum_of_columns": lambda v: v.sum(0),
    "softmax_of_columns": lambda v: v.softmax(0),
    "running": lambda v: v.cumsum(1),
    "windows": lambda v: v.unfold(1, 3, 2).sum(-1),
    "repeated": lambda v: v.repeat(2, 1),
    "picked": lambda v: v[torch.tensor([3, 0, 7])],
    "gathered": lambda v: v.gather(1, (v > 0).long()),
    "first_row": lambda v: v - v[:1],
}
EVERY = list(itertools.product(MADE, UPDATES))
SPREAD = 37  # shares no factor with the number of pairs: a few steps of it meet each kind
FEW = 2


def check(made: str, update: str, reader: str, **options: object) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        v = MADE[made](x, y)
        UPDATES[update](x, v)
        return READERS[reader](v)

    torch.manual_seed(0)
    x, y = torch.randn(12, 16), torch.randn(12, 16)
    eager, ours = (x.clone(), y.clone()), (x.clone(), y.clone())
    compiled = nbcompile.compile(function, options={"verify": True, **options})
    expected, found = function(*eager), compiled(*ours)
    assert compiled.ran_compiled, compiled.compilation.notes
    what = f"{made}, {update}, {reader}"
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, msg=lambda text: f"{what}: {text}")
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5, msg=lambda text: f"{what}: {text}")


@few(2)
@pytest.mark.parametrize("reader", READERS)
def test_a_spread_of_pairs(reader: str) -> None:
    start = list(READERS).index(reader) * FEW
    for n in range(start, start + FEW):
        check(*EVERY[n * SPREAD % len(EVERY)], reader)


@pytest.mark.parametrize("reader", ["flip", "avg_pool", "sum_of_columns"])
def test_in_the_interpreter(reader: str) -> None:
    pytest.importorskip("triton")
    check("mul", "add", reader, interpret=True)


@pytest.mark.nightly
@pytest.mark.parametrize("reader", READERS)
def test_every_pair(reader: str) -> None:
    for made, update in EVERY:
        check(made, update, reader)


def test_what_a_part_overwrites_with_itself_is_read_before() -> None:
    """Where the guard of ``x[1:] = ...`` is decided, ``x`` is what it leaves: it was read by name for each of
    the two that are made of it, for the second after the first had been stored."""
    torch._dynamo.reset()

    def program(x: Tensor, y: Tensor) -> None:
        x[1:] = 0.1
        torch.add(y, x, out=y)

    given = torch.randn(6), torch.randn(6)
    expected, got = ([item.clone() for item in given] for _ in range(2))
    program(*expected)
    run = nbcompile.compile(program, options={"cache": False, "verify": True})
    run(*got)
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert run.ran_compiled, run.eager_reason
