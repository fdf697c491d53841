"""Numbers that a program computes of symbolic sizes: with dynamic sizes its graph is compiled."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from tests.nightly import few

Function = Callable[[torch.Tensor], torch.Tensor]
PROGRAMS: dict[str, Function] = {
    "root": lambda x: x / math.sqrt(x.size(-1)),
    "ratio": lambda x: x * (x.size(0) / x.size(1)),
    "sum": lambda x: x + (float(x.size(0)) * 0.5 + 1),
    "power": lambda x: x.abs() ** (1 / x.size(1)),
    "filled": lambda x: torch.full((3, 1, 1), x.size(0) / 3) + x,
    "weight": lambda x: torch.add(x, x, alpha=x.size(0) / 2),
    "clamped": lambda x: x.clamp(max=x.size(0) / 7),
    "chosen": lambda x: torch.where(x > 0, x.size(0) / 7, x),
    "compared": lambda x: x > x.size(0) / 7,
    "of integers": lambda x: (8 * x).long() + x.size(0) / 7,
    "of halves": lambda x: x.half() * (x.size(0) / 7),
    "resampled": lambda x: F.interpolate(x[None, None], scale_factor=1.5, mode="nearest"),
}


@few(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_computed_of_sizes(name: str) -> None:
    function = PROGRAMS[name]
    run = nbcompile.compile(function, dynamic=True, options={"cache": False, "verify": True})
    torch.manual_seed(0)
    for size in (4, 7, 9):
        x = torch.randn(size, size + 3, requires_grad=True)
        got, wanted = run(x), function(x)
        torch.testing.assert_close(got, wanted)
        if wanted.requires_grad:
            weights = torch.randn(wanted.shape)
            mine, theirs = (torch.autograd.grad((item * weights).sum(), x)[0] for item in (got, wanted))
            least = 1e-3 if name == "of halves" else 1e-5  # of what flowed through half precision
            torch.testing.assert_close(mine, theirs, rtol=least, atol=least)
    assert run.ran_compiled, run.eager_reason


GREATER: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "mean": lambda x, n: x.sum() / max(1, n),
    "factor": lambda x, n: x * max(n, 1),
    "of an extent": lambda x, n: x.sum() / max(1, x.shape[0] - 5),
    "start": lambda x, n: x[max(1, n) :],
    "repeated": lambda x, n: x.repeat(max(1, n)),
    "times": lambda x, n: x.new_zeros(max(1, n), 2 * max(1, n)) + n,
    "laid out by": lambda x, n: x.as_strided((3,), (max(1, n),)) + 1,
    "rolled": lambda x, n: x.roll(max(n, 1)) + max(n - 1, 1),
}


@few(4)
@pytest.mark.parametrize("name", GREATER)
def test_the_greater_of_one_and_a_number(name: str) -> None:
    """Strides are written so too, and of them the number itself will do."""
    function = GREATER[name]
    run = nbcompile.compile(function, dynamic=True, options={"cache": False, "verify": True})
    for size, number in ((11, 4), (33, 7), (3, -3), (5, 0), (6, 1)):
        x = torch.arange(float(size))
        if name == "laid out by" and 2 * number >= size:
            continue
        assert torch.equal(run(x, number), function(x, number)), (size, number)
    assert run.ran_compiled, run.eager_reason


def test_a_library_is_called_with_what_python_computes() -> None:
    run = nbcompile.compile(
        lambda x: torch.addmm(x, x, x, beta=x.size(0) / 2), dynamic=True, options={"cache": False}
    )
    for size in (4, 6):
        x = torch.randn(size, size)
        torch.testing.assert_close(run(x), torch.addmm(x, x, x, beta=size / 2))
    assert run.ran_compiled, run.eager_reason


def test_a_size_that_only_an_index_is_checked_against() -> None:
    """The extent of a diagonal is the lesser of two sizes; nothing of the result has it."""
    run = nbcompile.compile(
        lambda x, at: torch.index_select(torch.diagonal(x), 0, at), dynamic=True, options={"cache": False}
    )
    for rows in (3, 4, 17):
        x, at = torch.randn(rows, 8), torch.tensor([0, min(rows, 8) - 1])
        torch.testing.assert_close(run(x, at), x.diagonal()[at])
        with pytest.raises(IndexError, match="out of range"):
            run(x, torch.tensor([0, min(rows, 8)]))
    assert run.ran_compiled, run.eager_reason


def test_an_extent_that_is_one_by_chance_is_not_read_as_if_it_always_were() -> None:
    """Of complex numbers the library was given a view of four elements of one (fuzzer's seed 15106078)."""

    def function(x: torch.Tensor) -> torch.Tensor:
        shown = torch.broadcast_tensors(F.pad(x, (1, 2, 3, 1), value=1), torch.diag(x, -1))
        return torch.stack(shown, -1)

    for dtype in (torch.complex64, torch.float32):
        run = nbcompile.compile(function, dynamic=True, options={"cache": False, "verify": True})
        for rows in (2, 3):
            x = torch.randn(rows, 1, dtype=dtype, requires_grad=True)
            torch.testing.assert_close(run(x), function(x))
        assert run.ran_compiled, run.eager_reason
