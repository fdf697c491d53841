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
