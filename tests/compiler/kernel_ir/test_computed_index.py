"""Gathers by an index that is computed of positions: a formula in the kernel, where it is surely inside."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor
N = 30


def at(index: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: x[index(torch.arange(N))] * 2


BY_A_FORMULA: dict[str, Callable[[Tensor], Tensor]] = {
    "the next": at(lambda i: (i + 1) % N),
    "the one before": at(lambda i: (i - 1) % N),
    "backwards": at(lambda i: N - 1 - i),
    "every third": at(lambda i: (i * 3) % N),
    "each twice": at(lambda i: i // 2),
    "negative, from the end": at(lambda i: i - N),
    "int32": at(lambda i: ((i.int() + 7) % N).long()),
    "a sum beyond int32, then narrower": at(lambda i: (i * 2**32 + i).int().long()),
    "a cross product": lambda x: torch.linalg.cross(x[:, :3], x[:, 1:4]),
    "two axes": lambda x: (
        x[:4, :4][torch.arange(4)[:, None], (torch.arange(4)[:, None] + torch.arange(4)) % 4] + 1
    ),
    "along an axis": lambda x: torch.take_along_dim(x, ((torch.arange(4) + 2) % 4)[None], 1).cos(),
}
BY_A_TABLE: dict[str, Callable[[Tensor], Tensor]] = {
    "far below": at(lambda i: (i - 40) % N),
    "a product beyond int32": at(lambda i: ((i.int() * 2**28) // 2**28 % N).long()),
    "a product beyond int32, then wider": at(lambda i: (i.int() * 2**28).long() % N),
    "a product beyond int32, taken off again": at(lambda i: ((i.int() * 2**30).long() - i * 2**30 + i) % N),
    "a negative divisor": at(lambda i: (i % -7) + 6),
    "data": lambda x: x[(x[:, 0] > 0).long() + 3] * 2,
}


@few(17)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", [*BY_A_FORMULA, *BY_A_TABLE])
def test_it_reads_what_eager_reads(name: str, dynamic: bool) -> None:
    function = {**BY_A_FORMULA, **BY_A_TABLE}[name]
    torch._dynamo.reset()
    run = nbcompile.compile(function, dynamic=dynamic, options={"cache": False})
    x = torch.randn(N, 4)
    torch.testing.assert_close(run(x), function(x))
    assert run.ran_compiled, run.eager_reason
    text = "".join(kernel.sources["c"] for kernel in run.compilation.kernels)
    if not dynamic:
        assert ("in_range" in text) == (name in BY_A_TABLE), text


def test_one_that_leaves_the_tensor_still_raises() -> None:
    torch._dynamo.reset()
    function = at(lambda i: (i * 2) % (N + 1))
    run = nbcompile.compile(function, options={"cache": False})
    for call in (function, run):
        with pytest.raises(IndexError, match="out of"):
            call(torch.randn(N - 1, 4))
