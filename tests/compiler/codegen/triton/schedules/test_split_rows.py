"""Rows shared out in slabs: which part a program has, and how a second function combines the parts."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from nbcompile.compiler.loop_ir.index import Axis, Size, index
from nbcompile.compiler.schedule.walked_rows import SplitRows
from nbcompile.compiler.stages import Config
from tests.compiler.codegen.c.by_hand import buffer, group, loop, read
from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton.schedules.printing import (
    chosen,
    functions,
    kernel,
    lines,
    printed,
    rows_by_hand,
)
from tests.compiler.codegen.triton.test_lines import one_hot_loss
from tests.compiler.codegen.triton_running import generated, run_interpreted, small_chip
from tests.compiler.schedule.cut import cut_all, empty, work_by_hand

SUM = lambda x: x.sum(-1)
APART = lambda x: x.sum((1, 3))


def test_slabs_leave_parts_that_a_second_function_combines() -> None:
    made = printed(*rows_by_hand(SplitRows, SUM, empty(8, 1024), r=128, slabs=4))
    first, second = functions(made)
    assert first == [
        "i = tl.program_id(0)",
        "slab = tl.program_id(1)",
        "chunk = 256",
        "first = slab * chunk",
        "end = tl.minimum(first + chunk, 1024)",
        "sum_1 = tl.full([RBLOCK], 0.0, tl.float32)",
        "for start in range(first, end, RBLOCK):",
        "j = start + tl.arange(0, RBLOCK)",
        "x = tl.load(x_ptr + i*1024 + j)",
        "sum_1 = sum_1 + x",
        "sum_1 = tl.sum(sum_1, axis=0)",
        "tl.store(sum_1_parts_ptr + slab * 8 + i, sum_1)",
    ]
    assert second[-3:] == [
        "sum_1_parts = tl.load(sum_1_parts_ptr + slab * 8 + i, mask=i_in, other=0.0)",
        "sum_1 = tl.sum(sum_1_parts, axis=1)[:, None]",
        "tl.store(sum_1_ptr + i, sum_1, mask=i_in)",
    ]
    assert [item.grid for item in made.launches] == [("8", "4"), ("cdiv(8, XBLOCK)",)]
    (parts,) = made.workspaces
    assert parts.shape == (8 * 4,) and parts.dtype == torch.float32


def test_a_slab_is_so_many_blocks_of_the_first_config_and_others_mask_their_own() -> None:
    work, schedule = rows_by_hand(SplitRows, SUM, empty(8, 1024), r=256, slabs=3)
    made = printed(work, schedule)
    assert "chunk = 512" in lines(made) and "mask" not in " ".join(functions(made)[0])  # the third is empty
    wider = replace(schedule, configs=(*schedule.configs, Config({"XBLOCK": 1, "RBLOCK": 1024}, 4)))
    assert "j_in = j < end" in lines(printed(work, wider))
    narrower = replace(schedule, configs=(*schedule.configs, Config({"XBLOCK": 1, "RBLOCK": 128}, 4)))
    assert "mask" not in " ".join(functions(printed(work, narrower))[0])


def test_parts_that_no_slab_left_count_for_nothing() -> None:
    largest = printed(*rows_by_hand(SplitRows, lambda x: x.amax(-1), empty(8, 1024), slabs=3))
    assert lines(largest, "amax_parts =")[0].endswith('mask=i_in & (slab < 3), other=float("-inf"))')
    some = printed(*rows_by_hand(SplitRows, lambda x: (x > 0).any(-1), empty(8, 1024), slabs=3))
    (loaded,) = lines(some, "any_1_parts =")
    assert loaded.endswith("mask=i_in & (slab < 3), other=False).to(tl.int1)")  # memory has bytes


def test_a_mean_weighs_each_slab_by_what_it_has() -> None:
    made = printed(*rows_by_hand(SplitRows, lambda x: torch.var_mean(x, -1), empty(8, 1000), slabs=4))
    first, second = functions(made)
    assert "step = 1.0 / ((start - first) // RBLOCK + 1)" in first
    assert any(line.endswith("/ tl.maximum(end - first, 1)") for line in first)  # a slab may be empty
    assert "counts = tl.minimum(tl.maximum(1000 - slab * chunk, 0), chunk).to(tl.float32)" in second


def test_what_is_left_to_do_for_a_row_is_done_where_its_parts_are_combined() -> None:
    first, second = functions(
        printed(*rows_by_hand(SplitRows, lambda x: x.sum(-1).sqrt(), empty(8, 1024), slabs=4))
    )
    assert "sqrt" not in " ".join(first)
    assert second[-1] == "tl.store(sqrt_ptr + i, tl.sqrt_rn(sum_1), mask=i_in)"


def test_neighbours_kept_apart_are_rows_until_the_parts_are_combined() -> None:
    first, second = functions(kernel(APART, empty(64, 1 << 10, 64, 3)))
    assert first[1:3] == ["i = row // 192", "lane = row % 192"]  # the row and its neighbour as one number
    assert "x = tl.load(x_ptr + i*196608 + j*192 + lane)" in first
    assert first[-1] == "tl.store(sum_1_parts_ptr + slab * 12288 + row, sum_1)"
    assert second[-6:-2] == [
        "part = tl.arange(0, SBLOCK)[None, :]",
        "slab = part // 3",
        "l = part % 3",
        "sum_1_parts = tl.load(sum_1_parts_ptr + slab * 12288 + row * 3 + l, mask=(part < 6), other=0.0)",
    ]


def test_where_nothing_else_is_a_row_a_program_adds_up_its_own_lanes() -> None:
    ((work, schedule),) = cut_all(
        lambda x, at: one_hot_loss(x, at).amax(), empty(1 << 20, 80), empty(1 << 20, dtype=torch.int64)
    )
    assert schedule.total
    made = printed(work, schedule)
    across = -(-80 // schedule.configs[0].constants["XBLOCK"])
    (parts,) = made.workspaces
    assert parts.shape == (schedule.slabs * across,)
    assert functions(made)[0][-1].startswith(f"tl.store(amax_parts_ptr + slab * {across} + tl.program_id(0)")


def test_a_length_that_is_known_later_is_shared_out_when_the_kernel_runs() -> None:
    count, length = index(4), index(Size("m", 1 << 20))
    row, within = Axis("i", count), Axis("j", length)
    x, total = buffer("x", count, length), buffer("total", count)  # type: ignore[arg-type]
    summed = loop(total, (row, within), read(x, row, within), reduced=(within,), reduction="sum")
    made = chosen(work_by_hand(group(summed, axes=(row, within), inner=(within,)), x))
    slabs = int(made.launches[0].grid[1])
    assert f"chunk = tl.cdiv(m, {4096 * slabs}) * 4096" in lines(made) and "j_in = j < m" in lines(made)


ROWS_OF_PLACES = {
    "the same twice, in two slabs": [5.0 if j in (700, 131) else 1.0 for j in range(1000)],
    "the last": [float(j) for j in range(1000)],
    "nothing above -inf": [-math.inf] * 1000,
    "NaN before what is larger": [math.nan if j in (300, 900) else float(j) for j in range(1000)],
    "all the same": [0.0] * 1000,
}


LOW = {"SMALL_DATA": 1, "LONGEST_ROW": 64, "LONGEST_COLUMN": 4, "WALK_BLOCK": 64, "ONE_STEP": 64}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("fn", [torch.argmax, torch.argmin])
def test_places_are_combined_with_the_numbers_found_there(fn: Any, dtype: torch.dtype) -> None:
    rows = torch.tensor(list(ROWS_OF_PLACES.values()), dtype=dtype)
    rows = torch.cat([rows, -rows])
    programs = ((lambda x: fn(x, -1), rows), (fn, rows[0]), (lambda x: fn(x, 0), rows.T.contiguous()))
    with small_chip(8, **LOW):
        for each, x in programs:
            aten = aten_of(each, x)
            _, source = generated(aten)
            assert any("_finish" in item.function for item in source.launches), source.source
            (got,) = run_interpreted(source, aten, [x])
            assert torch.equal(got, each(x))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_places_of_integers(dtype: torch.dtype) -> None:
    x = torch.randint(0, 90, (3, 1003), dtype=dtype)
    x[1], x[2] = 0, torch.iinfo(dtype).max
    with small_chip(8, **LOW):
        for fn in (torch.argmax, torch.argmin):
            each = functools.partial(lambda fn, x: (fn(x, -1), x.amax(-1)), fn)
            aten = aten_of(each, x)
            _, source = generated(aten)
            (kernel,) = source.kernels  # one walk for both
            assert "_finish" in kernel.text
            for got, wanted in zip(run_interpreted(source, aten, [x]), each(x), strict=True):
                assert torch.equal(got, wanted)
