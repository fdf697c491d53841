"""Rows that a program holds whole."""

from __future__ import annotations

import torch

from nbcompile.compiler.schedule.rows import HeldRows, is_one_row
from nbcompile.compiler.stages import Config
from tests.compiler.schedule.cut import axes, cut, empty

SOFTMAX = lambda x: torch.softmax(x, -1)


def test_many_short_rows_are_held_by_several() -> None:
    schedule = cut(SOFTMAX, empty(8192, 1000))
    assert isinstance(schedule, HeldRows) and not schedule.one_row
    assert (axes(schedule.x), axes(schedule.r)) == ([8192], [1000])
    assert schedule.configs[0] == Config({"XBLOCK": 2}, 4)


def test_a_kernel_has_the_whole_row_as_a_block() -> None:
    schedule = cut(SOFTMAX, empty(8192, 1000))
    assert schedule.complete[0] == Config({"XBLOCK": 2, "RBLOCK": 1024}, 4)


def test_of_few_rows_a_program_has_one() -> None:
    schedule = cut(SOFTMAX, empty(8, 1000))
    assert schedule.one_row and is_one_row(schedule.configs)
    assert all(config.constants == {"RBLOCK": 1024} for config in schedule.complete)  # no XBLOCK


def test_rows_across_memory_are_held_with_their_neighbours() -> None:
    schedule = cut(lambda x: torch.softmax(x, 0), empty(128, 8192))
    assert isinstance(schedule, HeldRows) and schedule.configs == (Config({"XBLOCK": 64}, 16),)


def test_a_row_that_no_program_can_hold_is_not_held() -> None:
    assert not isinstance(cut(SOFTMAX, empty(8192, 40_000)), HeldRows)
