"""Rows held whole: one tile, in which each result is made at once, and what all printers of rows share."""

from __future__ import annotations

import torch

from nbcompile.compiler.loop_ir.index import Axis, Size, index
from nbcompile.compiler.schedule.rows import HeldRows
from nbcompile.compiler.stages import Config
from tests.compiler.codegen.c.by_hand import buffer, group, loop, read
from tests.compiler.codegen.triton.schedules.printing import chosen, functions, kernel, lines, nest, printed
from tests.compiler.schedule.cut import BF16, cut_all, empty, work_by_hand, work_of

SOFTMAX = lambda x: torch.softmax(x, -1)


def test_a_row_held_whole_is_read_once_and_needs_no_loop() -> None:
    work = work_of(lambda x: x.sum(-1), empty(8, 1024))
    rows, within = work.values.nest.rows, work.values.nest.inner_axes
    made = printed(work, HeldRows(x=rows, r=within, one_row=True, configs=(Config({"XBLOCK": 1}, 4),)))
    assert functions(made)[0] == [
        "i = tl.program_id(0)",
        "j = tl.arange(0, RBLOCK)",
        "x = tl.load(x_ptr + i*1024 + j)",
        "sum_1 = tl.sum(x, axis=0)",
        "tl.store(sum_1_ptr + i, sum_1)",
    ]
    (launch,) = made.launches
    assert launch.grid == ("8",) and launch.configs == (Config({"RBLOCK": 1024}, 4),)


def test_lanes_beyond_the_row_change_no_result() -> None:
    made = kernel(SOFTMAX, empty(8, 1000))
    assert lines(made, "x =") == ["x = tl.load(x_ptr + i*1000 + j, mask=j_in)"]
    assert lines(made, "max_") == ['max_ = max_nan(tl.where(j_in, x, float("-inf")), 0)']
    assert lines(made, "sum_") == ["sum_ = tl.sum(tl.where(j_in, exp, 0.0), axis=0)"]


def test_what_is_summed_and_stored_is_made_once() -> None:
    assert lines(kernel(SOFTMAX, empty(8, 1024))) [-3:] == [
        "exp = libdevice.exp((x - max_))",
        "sum_ = tl.sum(exp, axis=0)",
        "tl.store(softmax_ptr + i*1024 + j, exp / sum_)",
    ]  # fmt: skip


def test_several_rows_are_a_tile_that_keeps_a_column_of_results() -> None:
    made = kernel(lambda x: torch.softmax(x, 0), empty(128, 8190, dtype=BF16))
    assert made.launches[0].grid == ("cdiv(8190, XBLOCK)",)
    assert functions(made)[0] == [
        "j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]",
        "j_in = j < 8190",
        "i = tl.arange(0, RBLOCK)[None, :]",
        "x = tl.load(x_ptr + i*8190 + j, mask=j_in).to(tl.float32)",
        "max_ = max_nan(x, 1)[:, None]",  # a row that does not exist may have any result
        "exp = libdevice.exp((x - max_))",
        "sum_ = tl.sum(exp, axis=1)[:, None]",
        "tl.store(softmax_ptr + i*8190 + j, exp / sum_, mask=j_in)",
    ]


def test_one_row_in_all_is_one_program_that_does_not_ask_which_it_is() -> None:
    made = kernel(lambda x: x.sum(), empty(1000))
    assert made.launches[0].grid == ("1",) and "program_id" not in made.text
    assert lines(made, "tl.store") == ["tl.store(sum_1_ptr + 0, sum_1)"]


def test_rows_that_are_counted_later_are_a_grid_of_that_size() -> None:
    count, length = index(Size("n", 300)), index(1000)
    row, within = Axis("i", count), Axis("j", length)
    x, total = buffer("x", count, length), buffer("total", count)  # type: ignore[arg-type]
    summed = loop(total, (row, within), read(x, row, within), reduced=(within,), reduction="sum")
    made = chosen(work_by_hand(group(summed, axes=(row, within), inner=(within,)), x))
    assert made.launches[0].grid == ("n",) and "i = tl.program_id(0)" in lines(made)


def test_stores_are_of_whole_rows_or_of_one_value_a_row() -> None:
    ((work, schedule),) = cut_all(lambda x: (x.exp().sum(-1).log(), x * 2), empty(300, 1000))
    full, short = nest(work, schedule).row_stores()
    assert [item.buffer for item in full] == ["mul"] and [item.buffer for item in short] == ["log"]
    made = printed(work, schedule)
    assert lines(made, "tl.store(log") == ["tl.store(log_ptr + i, tl.log(sum_1))"]


def test_a_mean_is_divided_by_the_points_of_the_row_not_of_the_block() -> None:
    made = kernel(lambda x: torch.var_mean(x, -1), empty(8, 1000))
    assert lines(made, "var_mean_mean =") == [
        "var_mean_mean = tl.sum(tl.where(j_in, x, 0.0), axis=0) / 1000.0"
    ]
    assert lines(made, "tl.store(var_mean_ptr") == ["tl.store(var_mean_ptr + i, var_mean_m2 / 999.0)"]
