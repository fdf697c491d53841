"""Each kind of reduction of each kind of expression: how tightly C's operators bind is up to the printer."""

from __future__ import annotations

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


@few(4)
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
