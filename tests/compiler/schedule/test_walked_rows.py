"""Rows that are walked in blocks, by a program each or in slabs."""

from __future__ import annotations

import torch

from nbcompile.compiler.schedule.walked_rows import SplitLanes, SplitRows, SteppedColumns, WalkedRows
from tests.compiler.schedule.cut import BF16, axes, cut, empty, small


def test_many_long_rows_are_walked_by_a_program_each() -> None:
    schedule = cut(lambda x: x.sum(-1), empty(8192, 40_000))
    assert type(schedule) is WalkedRows and schedule.one_row and schedule.slabs == 1
    assert schedule.configs[0].constants == {"XBLOCK": 1, "RBLOCK": 4096, "STAGES": 3}


def test_few_long_rows_are_shared_out_in_slabs_that_fill_the_chip() -> None:
    fn, x = lambda x: x.sum(-1), empty(4, 1 << 22)
    schedule = cut(fn, x)
    assert type(schedule) is SplitRows and not schedule.lanes
    assert schedule.slabs == 132 and cut(fn, x, chip=small(multiprocessors=66)).slabs == 66


def test_slabs_of_middling_rows_are_read_in_one_step() -> None:
    schedule = cut(lambda x: x.sum(), empty(196_608))
    assert schedule.slabs * schedule.configs[0].constants["RBLOCK"] == 196_608
    assert all(config.constants["STAGES"] == 1 for config in schedule.configs)


def test_neighbours_of_which_few_are_reduced_stay_apart() -> None:
    schedule = cut(lambda x: x.sum((1, 3)), empty(64, 1 << 10, 64, 3))
    assert type(schedule) is SplitLanes and axes(schedule.lanes) == [3]
    assert axes(schedule.x) == [64, 64, 3] and axes(schedule.r) == [1 << 10] and not schedule.total


def test_a_short_column_is_a_few_steps_of_a_lane() -> None:
    schedule = cut(lambda x: x.sum(0), empty(8, 100_000))
    assert type(schedule) is SteppedColumns and schedule.configs[0].constants["RBLOCK"] == 1
    assert type(cut(lambda x: x.sum(0), empty(17, 100_000))) is not SteppedColumns


def test_what_the_row_needs_again_cannot_be_left_in_parts() -> None:
    assert not isinstance(cut(lambda x: x / x.sum(-1, keepdim=True), empty(4, 1 << 17)), SplitRows)


def test_what_is_read_piece_by_piece_is_not_fetched_ahead() -> None:
    """Sums of a turned tensor, and of what is read at some of the points alone."""
    two = empty(8, 768, 149, dtype=BF16), empty(8, 149, 768, dtype=BF16)
    turned = cut(lambda x, y: (x.transpose(1, 2) + y).sum((0, 1)), *two)
    padded = cut(lambda x: torch.nn.functional.pad(x, (0, 0, 1, 0)).sum(0), empty(6000, 768))
    plain = cut(lambda x: x.sum(0), empty(6000, 768))
    assert all(isinstance(each, SplitRows) for each in (turned, padded, plain))
    assert [each.configs[0].constants["STAGES"] for each in (turned, padded, plain)] == [1, 1, 3]
