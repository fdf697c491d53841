"""Rows walked in blocks: how often and in which direction, and what is combined after a walk."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.schedule.summed_rows import WalkedSums
from nbcompile.compiler.schedule.walked_rows import SteppedColumns, WalkedRows
from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton.schedules.printing import lines, nest, printed, rows_by_hand
from tests.compiler.codegen.triton_running import generated, run_interpreted, small_chip
from tests.compiler.schedule.cut import BF16, F32, empty

SUM = lambda x: x.sum(-1)
SOFTMAX = lambda x: torch.softmax(x, -1)
NORMED = lambda x: F.layer_norm(x, x.shape[-1:])
OVER_SUM = lambda x: x / x.sum(-1, keepdim=True)


def walked(fn: Callable[..., Any], *shape: int, dtype: torch.dtype = F32, **more: Any) -> PrintedKernel:
    return printed(*rows_by_hand(WalkedRows, fn, empty(*shape, dtype=dtype), **more))


def test_a_row_walked_is_summed_lane_by_lane_and_combined_at_the_end() -> None:
    made = walked(SUM, 8, 1024)
    assert lines(made)[3:] == [
        "i = tl.program_id(0)",
        "sum_1 = tl.full([RBLOCK], 0.0, tl.float32)",
        "for start in range(0, 1024, RBLOCK):",
        "j = start + tl.arange(0, RBLOCK)",
        "x = tl.load(x_ptr + i*1024 + j)",
        "sum_1 = sum_1 + x",
        "sum_1 = tl.sum(sum_1, axis=0)",
        "tl.store(sum_1_ptr + i, sum_1)",
    ]
    assert made.launches[0].grid == ("8",) and not made.workspaces


def test_a_block_that_does_not_divide_the_row_is_masked() -> None:
    assert "mask=" not in walked(SUM, 8, 1024).text
    made = walked(SUM, 8, 1024, r=384)
    assert lines(made, "x =") == ["x = tl.load(x_ptr + i*1024 + j, mask=j_in)"]
    assert "sum_1 = sum_1 + tl.where(j_in, x, 0.0)" in lines(made)


@pytest.mark.parametrize(
    ("fn", "levels"),
    [
        (SOFTMAX, {"max": 0, "sum": 0}),  # the sum is scaled as the maximum grows
        (NORMED, {"native_layer_norm_mean": 0, "native_layer_norm_m2": 0}),
        (lambda x: (x - x.amax(-1, keepdim=True)).square().sum(-1), {"amax": 0, "sum_1": 1}),
    ],
    ids=["softmax", "layer norm", "below the largest"],
)
def test_a_walk_finds_all_results_that_need_no_other_ones_first(fn: Any, levels: dict[str, int]) -> None:
    work, schedule = rows_by_hand(WalkedRows, fn, empty(8, 1024))
    assert nest(work, schedule).levels == levels
    stored = 1 if any(len(item.place.axes()) == 2 for item in work.values.stores) else 0
    assert len(lines(printed(work, schedule), "for")) == 1 + max(levels.values()) + stored


def test_the_second_walk_goes_back_through_what_the_cache_still_holds() -> None:
    made = walked(SOFTMAX, 8, 1024)
    assert lines(made, "j =") == [
        "j = start + tl.arange(0, RBLOCK)",
        "j = (tl.cdiv(1024, RBLOCK) - 1) * RBLOCK - start + tl.arange(0, RBLOCK)",
    ]
    first, second = lines(made, "x")
    assert first.endswith('eviction_policy="evict_last")')
    assert second.endswith('eviction_policy="evict_first")')


def test_a_mean_counts_blocks_so_the_one_that_is_not_whole_comes_last() -> None:
    twice = lambda x: torch.var(x - x.amax(-1, keepdim=True), -1)
    ahead = "j = start + tl.arange(0, RBLOCK)"
    assert lines(walked(twice, 8, 1000), "j =") == [ahead, ahead]
    assert lines(walked(twice, 8, 1024), "j =")[1] != ahead
    assert lines(walked(NORMED, 8, 1000), "step =") == ["step = 1.0 / (start // RBLOCK + 1)"]


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_of_equal_numbers_the_first_is_found_so_no_walk_for_one_goes_backwards(kind: str) -> None:
    placed = lambda x: getattr(x - x.mean(-1, keepdim=True), kind)(-1)
    ahead = "j = start + tl.arange(0, RBLOCK)"
    assert lines(walked(placed, 8, 1024), "j =") == [ahead, ahead]


@pytest.mark.parametrize(("dtype", "line"), [(F32, 32), (BF16, 64)], ids=["float32", "bfloat16"])
def test_rows_off_groups_of_16_bytes_are_walked_from_their_first_line_on(
    dtype: torch.dtype, line: int
) -> None:
    made = walked(OVER_SUM, 8, 1031, dtype=dtype)
    assert lines(made, "line =") == [f"line = (i*1031 + {line - 1}) // {line} * {line}"]
    assert lines(made, "whole =") == [f"whole = {1031 - line + 1} // RBLOCK * RBLOCK"]
    whole, rest = "for start in range(0, whole, RBLOCK):", "for start in range(whole, 1031, RBLOCK):"
    assert lines(made, "for") == [whole, rest, rest, whole]
    assert not lines(walked(OVER_SUM, 8, 1032), "line =")


def test_a_row_of_a_few_steps_is_written_out() -> None:
    made = printed(*rows_by_hand(SteppedColumns, lambda x: x.sum(0), empty(8, 1031), x=16, r=1))
    assert lines(made, "for") == ["for start in tl.static_range(0, 8, RBLOCK):"]
    assert lines(made, "x =") == ["x = tl.load(x_ptr + i*1031 + j, mask=j_in)"]


def test_sums_over_the_rows_leave_a_part_for_each_block_or_one_number() -> None:
    def both(g: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = g * w
        return y.sum(0), y.sum(1), y.sum()

    inputs = empty(64, 1000), empty(64, 1)
    made = printed(*rows_by_hand(WalkedSums, both, *inputs, x=8, slabs=8))
    assert lines(made, "tl.store(sum_1_parts") == [
        "tl.store(sum_1_parts_ptr + tl.program_id(0) * 1000 + j, sum_1, mask=j_in)"
    ]
    place = "sum_3_parts_ptr + tl.program_id(0) + tl.zeros([1, 1], tl.int32)"
    assert lines(made, "tl.store(sum_3_parts") == [f"tl.store({place}, tl.sum(sum_3, axis=1)[:, None])"]
    assert {item.name: item.shape for item in made.workspaces} == {
        "sum_1_parts": (8000,),
        "sum_3_parts": (8,),
    }
    assert lines(made, "w =") == ["w = tl.load(w_ptr + i)"]  # before the loop


ODD = {
    "sum": (lambda x: x.sum(-1), BF16),
    "smallest": (lambda x: x.amin(-1), BF16),
    "where the largest is": (lambda x: x.argmax(-1), F32),
    "where the smallest is": (lambda x: x.argmin(-1), BF16),
}


@pytest.mark.parametrize("length", [3, 9, 33])
@pytest.mark.parametrize("name", ODD)
def test_odd_rows_are_taken_by_a_lane_each(name: str, length: int) -> None:
    """Ties, signed zeros, NaN and infinity among them, and a last block that is not full."""
    function, dtype = ODD[name]
    x = torch.randint(-3, 4, (301, length)).to(dtype)
    x[5, 1], x[6, -1], x[7, :2], x[8] = math.nan, math.inf, -0.0, -math.inf
    graph = aten_of(lambda x: (function(x),), x)
    with small_chip():
        _, source = generated(graph)
    assert source.launches[0].configs[0].constants["RBLOCK"] == 1
    for candidate in range(len(source.launches[0].configs)):
        (got,) = run_interpreted(source, graph, [x], candidate=candidate)
        torch.testing.assert_close(got, function(x), rtol=1e-2, atol=1e-2, equal_nan=True)
