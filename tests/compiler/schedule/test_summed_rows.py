"""Rows with sums over the rows themselves."""

from __future__ import annotations

from nbcompile.compiler.schedule.summed_rows import OwnedPieces, OwnedRows, WalkedSums
from tests.compiler.schedule.cut import BF16, CHIP, cut, cut_all, empty
from tests.compiler.schedule.test_choose import LONG_SUMS, SUMS, WORDS, norm_gradients, word_losses


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


def test_long_rows_that_nothing_reduces_are_added_up_in_pieces() -> None:
    """The sum over a row has one number that is not 0, and is none."""
    schedule = cut(word_losses, *WORDS)
    assert isinstance(schedule, OwnedPieces)
    pieces = -(-32_000 // schedule.configs[0].constants["RBLOCK"])
    assert 2 * CHIP.multiprocessors <= schedule.slabs * pieces <= 32 * CHIP.multiprocessors


def test_rows_of_which_a_little_lies_across_are_owned_one_by_one() -> None:
    """Sixteen of them side by side leave no registers."""

    def gradients(turned, g, *many):
        x = sum(many, g)
        kept = turned.transpose(1, 2) + x
        scaled = g * (kept - kept.mean(-1, keepdim=True))
        return scaled, (scaled * x).sum((0, 1)), g.sum((0, 1))

    some = [empty(8, 149, 768) for _ in range(4)]
    (_, schedule), *_ = cut_all(gradients, empty(8, 768, 149, dtype=BF16), *some)
    assert isinstance(schedule, OwnedRows) and schedule.configs[0].constants["XBLOCK"] == 1
