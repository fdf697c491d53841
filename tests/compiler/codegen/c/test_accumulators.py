"""Each kind of reduction of each kind of expression: how tightly C's operators bind is up to the printer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import nbcompile
from tests.nightly import few

TRUTHS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "or": lambda x, y: (x > 0) | (y > 0),
    "and": lambda x, y: (x > 0) & (y > 0),
    "xor": lambda x, y: (x > 0) ^ (y > 0),
    "same": lambda x, y: (x > 0) == (y > 0),
    "where": lambda x, y: torch.where(x > 0, y > 0, x < -1),
    "close": lambda x, y: torch.isclose(x, y, 0.1, 0.1),
    "in between": lambda x, y: (x > 0) & (y > 0) | (x < y),
}
NUMBERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "bits or": lambda x, y: (8 * x).int() | (8 * y).int(),
    "bits and": lambda x, y: (8 * x).int() & (8 * y).int(),
    "shifted": lambda x, y: (8 * x).int() << (y > 0).int(),
    "chosen": lambda x, y: torch.where(x > y, (8 * x).int(), (8 * y).int()),
    "difference": lambda x, y: (8 * x).int() - (8 * y).int(),
}
OF_TRUTHS: dict[str, Callable[..., Tensor]] = {
    "all": torch.all,
    "any": torch.any,
    "amin": torch.amin,
    "amax": torch.amax,
    "sum": torch.sum,
}
OF_NUMBERS = {**OF_TRUTHS, "prod": torch.prod, "argmax": torch.argmax, "argmin": torch.argmin}


@few(1)
@pytest.mark.parametrize("interpret", (False, True), ids=("c", "triton"))
@pytest.mark.parametrize("expression", (*TRUTHS, *NUMBERS))
def test_reductions(expression: str, interpret: bool) -> None:
    made = {**TRUTHS, **NUMBERS}[expression]
    kinds = OF_TRUTHS if expression in TRUTHS else OF_NUMBERS

    def reduced(x: Tensor, y: Tensor) -> list[Tensor]:
        found = []
        for kind in kinds.values():
            found += [kind(made(x + n, y), dim) for n, dim in enumerate((0, 1, 2))]
        return found

    torch.manual_seed(0)
    x, y = torch.randn(5, 3, 7), torch.randn(5, 3, 7)
    run = nbcompile.compile(reduced, options={"cache": False, "verify": True, "interpret": interpret})
    for kind, got, wanted in zip([kind for kind in kinds for _ in range(3)], run(x, y), reduced(x, y)):
        torch.testing.assert_close(got, wanted, msg=kind)
    assert run.ran_compiled, run.eager_reason


def sums_of_rows_and_columns(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    added = x.sin()
    return added.sum(0), (added * w).sum((0, 1)), added * 2


@few(1)
@pytest.mark.parametrize("dynamic", (False, True))
def test_what_each_thread_sums_for_itself_has_room_on_its_stack(dynamic: bool) -> None:
    """Sums that follow the rows of others are arrays on a thread's stack: never large ones, nor ones whose
    size is known when they run only."""
    run = nbcompile.compile(sums_of_rows_and_columns, dynamic=dynamic, options={"cache": False})
    for rows in (8, 16, 9000) if dynamic else (9000,):
        x, w = torch.randn(2, rows, 256), torch.randn(2, rows, 256)
        wanted = sums_of_rows_and_columns(x.double(), w.double())
        for got, value in zip(run(x, w), wanted):
            torch.testing.assert_close(got.double(), value, rtol=1e-5, atol=1e-3)
    assert run.ran_compiled, run.eager_reason
    arrays = [
        size for kernel in run.compilation.kernels
        for size in re.findall(r"^  (?:double|float) \w+\[(.+)\];", kernel.sources["c"], re.MULTILINE)
    ]  # fmt: skip
    assert all(size.isdecimal() and int(size) <= 1 << 17 for size in arrays), arrays


@pytest.mark.parametrize("dim", (0, 1, None))
def test_a_sum_of_more_than_there_were_at_first_is_as_exact(dim: int | None) -> None:
    run = nbcompile.compile(lambda x: x.sin().sum(dim), dynamic=True, options={"cache": False})
    for many in (6, 500_000):
        x = torch.rand((many, 4) if dim == 0 else (4, many))
        exact = x.double().sin().sum(dim)
        assert float(((run(x) - exact) / exact).abs().max()) < 3e-7
    assert run.ran_compiled, run.eager_reason


@few(2)
@pytest.mark.parametrize("length", [3, 16, 40, 300])
def test_a_nan_wins_a_rows_maximum_wherever_it_stands(length: int) -> None:
    x = torch.randn(length + 2, length)
    x[torch.arange(length), torch.arange(length)] = math.nan
    x[length], x[length + 1, 0] = -math.inf, math.inf
    run = nbcompile.compile(lambda x: (x.amax(-1), x.amin(-1), x.double().amax(-1)), options={"cache": False})
    torch.testing.assert_close(
        run(x), (x.amax(-1), x.amin(-1), x.double().amax(-1)), rtol=0, atol=0, equal_nan=True
    )
