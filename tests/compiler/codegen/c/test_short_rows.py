"""Rows so short that gcc writes them out, of what is at other places by guards of their rows.

gcc 12 loads such rows under one mask in the order of memory, whatever the order in which they are stored: a
roll of two columns had zeros in place of numbers. (Found by the fuzzer, seed 3701227.)"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor


def rolled(x: Tensor) -> list[Tensor]:
    return [x.roll((i, j), (0, 1)) for i, j in itertools.product((1, 2, -1), (1, 2, -1))]


def turned(x: Tensor) -> list[Tensor]:
    return [torch.cat([x[2:], x[:2]]).flip(1), torch.cat([x[-2:].flip(1), x[:-2]]), x.roll(1, 0).flip(0, 1)]


def padded(x: Tensor) -> list[Tensor]:
    sides = ((1, 0, 1, 0), (0, 1, 2, 1), (1, 1, 1, 1), (0, 0, 2, 0), (-1, 1, 1, 0))
    return [F.pad(x.flip(1), side, value=0.5) for side in sides]


def joined(x: Tensor) -> list[Tensor]:
    stacked = torch.stack([x.roll(1, 0), x.roll(-1, 0)], 2)
    return [torch.cat([x.flip(1), x * 2]), stacked.flip(2), x.tril(-1).flip(1)]


def chosen(x: Tensor) -> list[Tensor]:
    y, kept = x * 10, x % 3 > 0
    return [
        torch.where(kept, x.roll(1, 1), 0),
        torch.where(kept, x.roll(1, 1), y.roll(1, 1)),
        torch.where(x.roll(1, 1) % 2 > 0, x, x.flip(1)),
        torch.where(kept[:, :1], x.flip(1), x.roll(1, 0)),
    ]


FEW = [(function, 2, dtype) for function in ("rolled", "chosen") for dtype in ("float32", "int16")]
MORE = [
    (function, columns, dtype)
    for function in ("rolled", "turned", "padded", "joined", "chosen")
    for columns in (2, 3, 4, 7, 8)
    for dtype in ("float32", "float64", "int16")
]


@few(2)
@pytest.mark.parametrize(
    ("name", "columns", "kind"),
    [*FEW, *(pytest.param(*case, marks=pytest.mark.nightly) for case in MORE if case not in FEW)],
)
def test_each_number_is_where_eager_has_it(name: str, columns: int, kind: str) -> None:
    torch._dynamo.reset()
    function: Callable[[Tensor], list[Tensor]] = globals()[name]
    dtype = getattr(torch, kind)

    def program(*given: Tensor) -> list[Tensor]:
        return [made for x in given for made in function(x)]

    inputs = [torch.arange(rows * columns).view(rows, columns).to(dtype) for rows in (5, 8, 33)]
    run = nbcompile.compile(program, options={"cache": False})
    for mine, theirs in zip(run(*inputs), program(*inputs), strict=True):
        assert torch.equal(mine, theirs)
    assert run.ran_compiled, run.eager_reason
