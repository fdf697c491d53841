"""Rows walked by several programs: the part of each, in whole blocks, and a meeting after each walk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.schedule.shared_rows import SharedWalks
from tests.compiler.codegen.triton.schedules.printing import functions, lines, nest, printed, rows_by_hand
from tests.compiler.schedule.cut import empty

BELOW_SUM = lambda x: x - x.sum(-1, keepdim=True)


def spread_times(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True) * x


def walked(fn: Callable[..., Any], *shape: int) -> PrintedKernel:
    return printed(*rows_by_hand(SharedWalks, fn, empty(*shape), groups=8, parts=4))


def test_groups_of_programs_walk_one_row_after_the_other_each_its_own_part() -> None:
    made = walked(BELOW_SUM, 64, 4096)
    assert functions(made)[0][:7] == [
        "part = tl.program_id(0) % 4",
        "first = part * 1024",
        "end = tl.minimum(first + 1024, 4096)",
        "for i in range(tl.program_id(0) // 4, 64, GROUPS):",
        "sum_1 = tl.full([RBLOCK], 0.0, tl.float32)",
        "for start in range(first, end, RBLOCK):",
        "j = start + tl.arange(0, RBLOCK)",
    ]
    (launch,) = made.launches
    assert launch.grid == ("4 * GROUPS",) and launch.together


def test_a_part_is_a_number_of_whole_blocks() -> None:
    work, schedule = rows_by_hand(SharedWalks, BELOW_SUM, empty(64, 3000), groups=8, parts=3)
    assert nest(work, schedule).chunk == 1024
    assert "end = tl.minimum(first + 1024, 3000)" in lines(printed(work, schedule))
    work, schedule = rows_by_hand(SharedWalks, BELOW_SUM, empty(64, 3072), groups=8, parts=2)
    assert nest(work, schedule).chunk == 1536
    assert "mask=" not in "".join(lines(printed(work, schedule), "x"))


def test_programs_meet_after_each_walk_that_finds_something_the_next_needs() -> None:
    made = walked(spread_times, 64, 4096)
    steps = [line.split(" ")[0].split("(")[0] for line in functions(made)[0]]
    kept = [step for step in steps if step in ("for", "wait_for_all", "tl.store")]
    rows, *rest = kept
    assert rows == "for" and rest == [
        "for", "tl.store", "wait_for_all", "for", "tl.store", "wait_for_all", "for", "tl.store",
    ]  # fmt: skip
    assert len(made.zeroed) == 2  # a counter each


def test_the_next_walk_reads_what_all_parts_have_come_to() -> None:
    made = walked(BELOW_SUM, 64, 4096)
    assert "sum_1_2 = tl.sum(sum_1_parts, axis=0)" in lines(made)
    assert "tl.store(sub_ptr + i*4096 + j, x_2 - sum_1_2)" in lines(made)


def test_all_walks_go_ahead_and_the_last_lets_the_cache_forget_the_row() -> None:
    made = walked(spread_times, 64, 4096)
    assert lines(made, "j =") == ["j = start + tl.arange(0, RBLOCK)"] * 3
    policies = [line.split('"')[1] for line in lines(made, "x")]
    assert policies == ["evict_last", "evict_last", "evict_first"]


def test_each_part_of_an_odd_row_has_its_share_of_the_whole_blocks() -> None:
    made = walked(BELOW_SUM, 64, 4097)
    whole = "for start in range(first, tl.minimum(end, whole), RBLOCK):"
    rest = "for start in range(tl.maximum(first, whole), end, RBLOCK):"
    assert lines(made, "for start") == [whole, rest, whole, rest]


def test_one_value_a_row_is_stored_by_the_program_of_the_first_part() -> None:
    body = functions(walked(lambda x: (x.sum(-1).exp(), BELOW_SUM(x)), 64, 4096))[0]
    assert body[-2:] == ["if part == 0:", "tl.store(exp_ptr + i, libdevice.exp(sum_1_2))"]
