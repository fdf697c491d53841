"""Programs whose kernels once read outside their buffers, in C and in Triton's interpreter, which checks each
address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import nbcompile
from tests.compiler.codegen.triton.test_modules import INTERPRET
from tests.nightly import few

C = {"cache": False, "verify": True}
TARGETS = pytest.mark.parametrize("options", [C, INTERPRET], ids=["c", "triton"])

ROLLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "backwards": lambda x: x - x.roll(-1, 0),
    "forwards": lambda x: x - x.roll(1, 0),
    "farther": lambda x: x.roll(2, 1) * x,
    "both": lambda x: x.roll((-1, 2), (0, 1)),
    "twice": lambda x: x.roll((1, 1), (0, 0)),
    "by_size": lambda x: x.roll(x.shape[1], 0) + x.roll(-x.shape[0], 1),
    "flat": lambda x: x.roll(-2),
    "around": lambda x: x.roll(-40, 0) - x.roll(40, 1),
}


@few(2)
@TARGETS
@pytest.mark.parametrize("name", ROLLS)
def test_rolls_of_symbolic_sizes(name: str, options: dict[str, Any]) -> None:
    fn = ROLLS[name]
    run = nbcompile.compile(fn, dynamic=True, options=options)
    for size in ((6, 8), (13, 5), (2, 3), (7, 7)):
        torch.manual_seed(0)
        x, weight = torch.randn(size, requires_grad=True), torch.randn(size)
        got, expected = run(x), fn(x)
        torch.testing.assert_close(got, expected)
        gradients = [torch.autograd.grad((out * weight).sum(), x) for out in (got, expected)]
        torch.testing.assert_close(*gradients)
        assert run.ran_compiled, run.eager_reason


@few(3)
@TARGETS
@pytest.mark.parametrize("first", [-1, 9, -9, 3])
def test_rolls_by_a_number_that_is_an_input(first: int, options: dict[str, Any]) -> None:
    run = nbcompile.compile(lambda x, n: x.roll(n, 0) * 2, dynamic=True, options=options)
    x = torch.arange(48.0).reshape(6, 8)
    for n in (first, 2, -2, 5, -5, 7, -7, 100, -100):
        torch.testing.assert_close(run(x, n), x.roll(n, 0) * 2)


INDICES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "comparison": lambda x: (x > 0).long(),
    "twice": lambda x: (x > 0).long() * 2,
    "more": lambda x: (x > 0).long() + 3,
    "chosen": lambda x: torch.where(x > 0, 1, 0),
    "inverse": lambda x: 1 - (x > 0).long(),
    "narrow": lambda x: (x > 0).to(torch.uint8).long(),
    "sign": lambda x: x.clamp(min=0).sign().long(),
    "clamped": lambda x: x.long().clamp(0, 1),
    "parity": lambda x: (x * 10).long() % 2,
    "counted": lambda x: (x > 0).long() + (x > 1).long(),
    "both": lambda x: ((x > 0) & (x < 1)).long(),
}


@few(1)
@TARGETS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.uint8], ids=str)
def test_indices_that_are_comparisons(dtype: torch.dtype, options: dict[str, Any]) -> None:
    def fn(x: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(table.gather(1, index(x)) for index in INDICES.values())

    run = nbcompile.compile(fn, options=options)
    for x in (torch.randn(16, 16)[3:11, 5:13], torch.randn(64, 33)):
        table = (torch.randn(x.shape) * 20).to(dtype)
        torch.testing.assert_close(run(x, table), fn(x, table), rtol=0, atol=0)
        assert run.ran_compiled, run.eager_reason


@few(1)
@pytest.mark.parametrize("size", [(8, 8), (64, 33)], ids=str)
def test_comparisons_as_targets_of_a_scatter(size: tuple[int, int]) -> None:
    def fn(x: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, ...]:
        index = (x > 0).long()
        return table.scatter_add(1, index, x), table.scatter(0, index, index + 0.5), table[index[0]]

    x, table = torch.randn(size), torch.randn(size)
    run = nbcompile.compile(fn, options=C)
    torch.testing.assert_close(run(x, table), fn(x, table))
    assert run.ran_compiled, run.eager_reason


@few(1)
@TARGETS
def test_an_extent_that_rounds_down_below_zero(options: dict[str, Any]) -> None:
    """``(-s) // 2`` of an odd size: C rounds it up, and the loop wrote beyond its buffer."""

    def resampled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.conv1d(x, w, stride=2, padding=1, groups=2)
        return torch.nn.functional.interpolate(y, scale_factor=2, mode="linear", align_corners=True)

    run = nbcompile.compile(resampled, dynamic=True, options=options)
    for width in (3, 2, 4, 5):
        x, w = torch.randn(1, 2, 6), torch.randn(2, 1, width)
        torch.testing.assert_close(run(x, w), resampled(x, w))
        assert run.ran_compiled, run.eager_reason


@TARGETS
def test_a_count_beside_a_sum_of_rounded_numbers(options: dict[str, Any]) -> None:
    """gcc 12 threads the rounding's question for NaN into the count's, and then reads the lanes of the sum
    anywhere (a crash, by the luck of what lies there)."""

    def f(v: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        return torch.nanmean(v * (kept.to(v.dtype) / 0.75))

    v = torch.rand(3250).bfloat16()
    v[::7] = torch.nan
    kept = torch.arange(3250) % 4 != 0
    torch.testing.assert_close(nbcompile.compile(f, options=options)(v, kept), f(v, kept))


@TARGETS
def test_an_index_of_what_was_put_together(options: dict[str, Any]) -> None:
    """The cases of a stack, of an element set, of ``abs`` and ``clamp`` multiply: most of them cannot be."""

    def gathered() -> torch.Tensor:
        x = (torch.arange(72) % 9 - 4).reshape(3, 24)
        y = torch.index_put(x, (torch.arange(3) // 2,), torch.full_like(x[:1], 2))
        z = torch.stack([x, y], 2)
        return torch.gather(z, 0, (z.abs() * 3).clamp(max=2))

    run = nbcompile.compile(gathered, options=options)
    torch.testing.assert_close(run(), gathered())
    assert run.ran_compiled, run.eager_reason
