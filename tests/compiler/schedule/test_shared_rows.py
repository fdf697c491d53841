"""Long rows that several programs hold or walk together."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from nbcompile.compiler.schedule.shared_rows import SharedRows, SharedWalks
from tests.compiler.schedule.cut import BF16, CHIP, cut, empty

SOFTMAX = lambda x: torch.softmax(x, -1)


def test_each_program_holds_a_part() -> None:
    schedule = cut(SOFTMAX, empty(32, 1 << 18))
    assert type(schedule) is SharedRows and schedule.parts == 32
    assert schedule.title == "rows shared by 32 programs"
    constants = schedule.configs[0].constants
    assert constants["RBLOCK"] * schedule.parts == 1 << 18
    assert constants["GROUPS"] * schedule.parts <= 4 * CHIP.multiprocessors  # all on the chip at once


def test_what_the_cache_keeps_anyway_is_not_shared() -> None:
    assert not isinstance(cut(SOFTMAX, empty(32, 1 << 15)), SharedRows)


def test_few_bytes_from_one_meeting_to_the_next_are_walked() -> None:
    schedule = cut(lambda x: F.layer_norm(x, (1 << 17,)), empty(64, 1 << 17, dtype=BF16))
    assert type(schedule) is SharedWalks and "STAGES" in schedule.configs[0].constants
    assert schedule.title == f"looped rows shared by {schedule.parts} programs"


def test_rows_that_nearly_fill_the_chip_are_not_shared_by_few_programs_in_turns() -> None:
    """A batch norm's gradient of many tensors, of which the cache keeps half the rows at once."""

    def gradient(x, *grads):
        grad = sum(grads)
        return grad - x * (x * grad).mean((0, 2), keepdim=True) - grad.mean((0, 2), keepdim=True)

    nearly = cut(gradient, *(empty(128, 116, 196, dtype=BF16) for _ in range(5)))
    assert not isinstance(nearly, SharedRows)
    fewer = cut(gradient, *(empty(128, 58, 392, dtype=BF16) for _ in range(5)))
    assert type(fewer) is SharedWalks
