"""Rows with sums over the rows themselves."""

from __future__ import annotations

from nbcompile.compiler.schedule.summed_rows import OwnedRows, WalkedSums
from tests.compiler.schedule.cut import CHIP, cut, empty
from tests.compiler.schedule.test_choose import LONG_SUMS, SUMS, norm_gradients


def test_each_program_owns_rows_and_leaves_a_part_of_every_sum() -> None:
    schedule = cut(norm_gradients, *SUMS)
    assert isinstance(schedule, OwnedRows) and schedule.slabs == 4 * CHIP.multiprocessors
    assert schedule.complete[0].constants == {"XBLOCK": 2, "STAGES": 3, "RBLOCK": 1024}


def test_longer_rows_are_walked_and_every_block_of_rows_leaves_a_part() -> None:
    schedule = cut(norm_gradients, *LONG_SUMS)
    assert isinstance(schedule, WalkedSums)
    assert schedule.slabs * schedule.configs[0].constants["XBLOCK"] == 2048


def test_one_value_a_row_is_added_up_by_programs_that_hold_a_row() -> None:
    schedule = cut(lambda x: x.logsumexp(-1).sum(), empty(8192, 1000))
    assert isinstance(schedule, OwnedRows) and schedule.slabs == 8192 and schedule.one_row
