"""Bytes that kernels move, held against what is counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import nbcompile

X = (4000, 1000)
R = torch.randn


def overwritten(x: torch.Tensor) -> None:
    x[10:20] += 1


def one_place(cache: torch.Tensor, k: torch.Tensor) -> None:
    cache[:, 5] = k


def indices(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> None:
    x.index_add_(0, i, v)


def ints(n: int) -> torch.Tensor:
    return torch.randint(0, 4000, (n,))


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]], int, int]] = {
    "pointwise": (lambda x: x * 2, lambda: (R(X),), 16_000_000, 16_000_000),
    "rows": (lambda x: x[:10] * 2, lambda: (R(X),), 40_000, 40_000),
    "column": (lambda x: x[:, 0] * 2, lambda: (R(X),), 16_000, 16_000),
    "embedding": (lambda e, i: F.embedding(i, e) * 2, lambda: (R(X), ints(7)), 7 * 4008, 28_000),
    "gather": (lambda x, i: x.gather(1, i) + 1, lambda: (R(X), torch.zeros(4000, 2).long()), 96_000, 32_000),
    "stencil": (lambda x: x[1:] - x[:-1], lambda: (R(X),), 16_000_000, 15_996_000),
    "cat": (lambda x, y: torch.cat([x, y]) * 2, lambda: (R(10), R(30)), 160, 160),
    "broadcast": (lambda x, y: x + y, lambda: (R(X), R(1000)), 16_004_000, 16_000_000),
    "sum": (lambda x: x.sum(1), lambda: (R(X),), 16_000_000, 16_000),
    "overwritten": (overwritten, lambda: (R(X),), 40_000, 40_000),
    "one_place": (one_place, lambda: (R(40, 100, 8), R(40, 8)), 1280, 1280),
    "indices": (indices, lambda: (R(4000), ints(7), R(7)), 7 * (8 + 4 + 4), 28),
}


@pytest.mark.parametrize("name", CASES)
def test_each_element_that_is_reached_counts_once(name: str) -> None:
    function, inputs, read, written = CASES[name]
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    run(*inputs())
    assert run.ran_compiled, run.eager_reason
    kernels = run.compilation.kernels
    assert sum(kernel.bytes_read for kernel in kernels) == read
    assert sum(kernel.bytes_written for kernel in kernels) == written
