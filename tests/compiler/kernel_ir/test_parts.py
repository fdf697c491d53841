"""What changes a part of an input in its memory goes over that part alone, on a CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import nbcompile
from tests.nightly import few


def row(x: Tensor) -> None:
    x[3] += 1


def columns(x: Tensor) -> None:
    x[:, 5:9] *= 2


def block(x: Tensor) -> None:
    x[10:14, 30:50] += x[10:14, 30:50].abs()


def diagonal(x: Tensor) -> None:
    x.diagonal().add_(1)


def diagonal_above(x: Tensor) -> None:
    x.diagonal(5).mul_(2)


def part_of_a_diagonal_below(x: Tensor) -> None:
    x.diagonal(-2)[1:].zero_()


def two_rows(x: Tensor) -> None:
    x[3] += 1
    x[7] = 2


def every_second_row(x: Tensor) -> None:
    x[::2] = 1


def every_third_column(x: Tensor) -> None:
    x[:, 1::3] = 0


def neighbours(x: Tensor) -> None:
    even, odd = x[:, ::2].clone(), x[:, 1::2].clone()
    x[:, ::2], x[:, 1::2] = -odd, even.abs()


def twice(x: Tensor) -> None:
    x[3] += 1
    x[3, 5:9] *= 2


def block_that_is_summed(x: Tensor) -> Tensor:
    x[5:9] = x[5:9] + 1
    return x[5:9] * 2


def all_of_it(x: Tensor) -> None:
    x[:] = torch.where(x > 0, x, x * 3)


PROGRAMS: dict[Callable[..., Any], tuple[int, ...]] = {
    row: (64,), columns: (40, 4), block: (4, 20), diagonal: (40,), diagonal_above: (40,),
    part_of_a_diagonal_below: (37,), two_rows: (5, 64), twice: (64,), all_of_it: (2560,),
    every_second_row: (20, 64), every_third_column: (40, 21),
}  # fmt: skip
"""The extents of each program's kernel, of a tensor of 40 × 64."""


def compiled(function: Callable[..., Any], **how: Any) -> Any:
    torch._dynamo.reset()
    return nbcompile.compile(function, **how)


@few(8)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("target", ["cpu", "interpret"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("function", [*PROGRAMS, block_that_is_summed, neighbours])
def test_all_else_stays(function: Callable[..., Any], dtype: torch.dtype, target: str, dynamic: bool) -> None:
    if target == "interpret":
        pytest.importorskip("triton")
    run = compiled(function, dynamic=dynamic, options={"cache": False, "interpret": target == "interpret"})
    for shape in ((40, 64), (15, 72)):
        found = (torch.randn(shape) * 5).to(dtype)
        expected = found.clone()
        results = run(found), function(expected)
        assert torch.equal(found, expected)
        torch.testing.assert_close(*results)
    assert run.ran_compiled, run.eager_reason


@few(3)
@pytest.mark.parametrize("function", PROGRAMS)
def test_only_the_part_is_gone_over(function: Callable[..., Any]) -> None:
    run = compiled(function, options={"cache": False, "threads": 1})
    run(torch.randn(40, 64))
    (kernel,) = run.compilation.kernels
    text = kernel.sources["c"]
    loops = [int(line.split(" < ")[1].split(";")[0]) for line in text.splitlines() if "for (" in line]
    if function is two_rows or function is twice:  # parts of parts are loops beside each other
        assert max(loops) == PROGRAMS[function][-1]
    else:
        assert tuple(loops) == PROGRAMS[function]


@few(2)
@pytest.mark.parametrize("function", [row, columns, diagonal_above])
def test_a_gpu_has_points_for_the_part_alone(function: Callable[..., Any]) -> None:
    pytest.importorskip("triton")
    run = compiled(function, options={"cache": False, "interpret": True})
    run(torch.randn(40, 64))
    points = 1
    for extent in PROGRAMS[function]:
        points *= extent
    text = run.compilation.kernels[0].sources["triton"]
    assert f"< {points}\n" in text and "tl.where" not in text
