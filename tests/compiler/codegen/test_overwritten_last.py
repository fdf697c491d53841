"""What a kernel overwrites it overwrites once nothing in it reads the old value: not in an earlier walk."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import nbcompile
from tests.nightly import few

LONG = 40_000  # a row that no tile of Triton's holds


def scaled_by_its_sum(x: Tensor, s: Tensor) -> Tensor:
    most = x.amax(1)
    total = (x - most[:, None]).exp().sum(1)
    found = total * s
    s.add_(most)
    return found


def normalized(x: Tensor, s: Tensor) -> Tensor:
    shifted = x - x.amax(1, keepdim=True)
    total = shifted.exp().sum(1)
    spread = (shifted * total[:, None]).square().sum(1)
    x.copy_(shifted)
    return spread


def centred(x: Tensor, s: Tensor) -> Tensor:
    apart = x - x.mean(1, keepdim=True)
    spread = apart.square().mean(1, keepdim=True)
    most = (apart * spread).amax(1)
    x.copy_(apart)
    return most


def by_columns(x: Tensor, s: Tensor) -> Tensor:
    most = x.amax(0)
    total = (x - most).exp().sum(0)
    found = total * s[0]
    s.add_(most.sum())
    return found


def read_by_every_row(x: Tensor, s: Tensor) -> Tensor:
    found = x.t() * s
    s.mul_(2)
    return found


def read_by_a_library(x: Tensor, s: Tensor) -> Tensor:
    x.mul_(s[:, None])
    return x @ x.t()


def summed_over_the_rows(x: Tensor, s: Tensor) -> Tensor:
    found = x.t() * s
    s.add_(found.sum(0))
    return found


@few(4)
@pytest.mark.parametrize("interpret", (False, True), ids=("c", "triton"))
@pytest.mark.parametrize("width", (33, LONG))
@pytest.mark.parametrize(
    "function",
    (
        scaled_by_its_sum,
        normalized,
        centred,
        by_columns,
        read_by_every_row,
        read_by_a_library,
        summed_over_the_rows,
    ),
)
def test_nothing_is_overwritten_before_its_last_reader(
    function: Callable[[Tensor, Tensor], Tensor], width: int, interpret: bool
) -> None:
    torch.manual_seed(0)
    x, s = torch.randn(3, width), torch.rand(3)
    mine, theirs = (x.clone(), s.clone()), (x.clone(), s.clone())
    run = nbcompile.compile(function, options={"cache": False, "verify": True, "interpret": interpret})
    got, wanted = run(*mine), function(*theirs)
    assert run.ran_compiled, run.eager_reason
    torch.testing.assert_close((got, *mine), (wanted, *theirs), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("interpret", (False, True), ids=("c", "triton"))
def test_reductions_of_one_value_are_told_apart(interpret: bool) -> None:
    def several(x: Tensor) -> Tensor:
        return x.sum(1) + 10 * x.amax(1) + 100 * x.amin(1) + 1000 * x.prod(1)

    x = torch.rand(5, 7) + 0.5
    run = nbcompile.compile(several, options={"cache": False, "verify": True, "interpret": interpret})
    torch.testing.assert_close(run(x), several(x))
    assert run.ran_compiled, run.eager_reason


@pytest.mark.parametrize("options", [{}, {"interpret": True}], ids=["c", "triton"])
def test_what_is_overwritten_by_itself_in_part(options: dict[str, bool]) -> None:
    def part(x: Tensor) -> None:
        x[..., :-1].abs_()  # of numbers without a sign: themselves

    x = torch.arange(4, dtype=torch.uint8)
    run = nbcompile.compile(part, options={"cache": False, "verify": True, **options})
    run(x)
    assert run.ran_compiled, run.eager_reason
    assert x.tolist() == [0, 1, 2, 3]
