"""Rows that a program holds whole."""

from __future__ import annotations

import pytest
import torch

from nbcompile.compiler import schedule as schedules
from nbcompile.compiler.loop_ir.index import Axis, Size
from nbcompile.compiler.schedule.rows import HeldIfShort, HeldRows, is_one_row
from nbcompile.compiler.schedule.schedule import Schedule, Work
from nbcompile.compiler.schedule.walked_rows import SteppedColumns
from nbcompile.compiler.stages import Config
from tests.compiler.codegen.c.by_hand import buffer, group, loop, read
from tests.compiler.schedule.cut import BF16, F32, axes, cut, empty, work_by_hand

SOFTMAX = lambda x: torch.softmax(x, -1)


def test_many_short_rows_are_held_by_several() -> None:
    schedule = cut(SOFTMAX, empty(8192, 1000))
    assert isinstance(schedule, HeldRows) and not schedule.one_row
    assert (axes(schedule.x), axes(schedule.r)) == ([8192], [1000])
    assert schedule.configs[0] == Config({"XBLOCK": 2}, 4)


def test_a_kernel_has_the_whole_row_as_a_block() -> None:
    schedule = cut(SOFTMAX, empty(8192, 1000))
    assert schedule.complete[0] == Config({"XBLOCK": 2, "RBLOCK": 1024}, 4)


def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)


@pytest.mark.parametrize(
    ("length", "each", "warps"),
    [(9, 64, 4), (12, 128, 4), (17, 32, 4), (49, 8, 1), (64, 32, 4), (96, 32, 8), (192, 4, 1), (384, 2, 1),
     (768, 2, 1), (1024, 2, 4)],
)  # fmt: skip
def test_rows_of_half_types_are_cut_up_by_their_length(length: int, each: int, warps: int) -> None:
    vector = empty(length, dtype=BF16)
    schedule = cut(norm, empty(12_000_000 // length, length, dtype=BF16), vector, vector)
    assert isinstance(schedule, HeldRows)
    assert schedule.configs[0] == Config({"XBLOCK": each}, warps)


def test_what_reads_no_weights_has_several_warps() -> None:
    """Nothing asks Triton for two layouts there."""
    schedule = cut(SOFTMAX, empty(62_500, 192, dtype=BF16))
    assert schedule.configs[0] == Config({"XBLOCK": 8}, 4)


def test_of_fewer_rows_a_warp_has_more() -> None:
    vector = empty(384, dtype=BF16)
    schedule = cut(norm, empty(7812, 384, dtype=BF16), vector, vector)
    assert schedule.configs[0] == Config({"XBLOCK": 4}, 1)


@pytest.mark.parametrize("length", [5, 9, 17, 33])
def test_of_odd_rows_that_are_only_reduced_each_lane_takes_one(length: int) -> None:
    rows = 16_000_000 // length
    for reduce, dtype in ((lambda x: x.sum(-1), BF16), (lambda x: x.argmax(-1), F32)):
        schedule = cut(reduce, empty(rows, length, dtype=dtype))
        assert isinstance(schedule, SteppedColumns)
        assert schedule.configs[0] == Config({"XBLOCK": 256, "RBLOCK": 1}, 8)
    assert isinstance(cut(lambda x: x.sum(-1), empty(rows, length + 3, dtype=BF16)), HeldRows)
    assert isinstance(cut(lambda x: x.sum(-1), empty(64, length, dtype=BF16)), HeldRows)  # few rows


@pytest.mark.parametrize(("length", "each", "warps"), [(49, 32, 1), (169, 8, 1), (168, 8, 4)])
def test_longer_odd_rows_that_are_only_reduced_are_a_warps(length: int, each: int, warps: int) -> None:
    schedule = cut(lambda x: x.relu().sum(-1), empty(64_000, length, dtype=BF16))
    assert isinstance(schedule, HeldRows) and schedule.configs[0] == Config({"XBLOCK": each}, warps)


def test_rows_that_are_gathered_have_a_program_each() -> None:
    words = lambda: torch.zeros(16_384, dtype=torch.int64)
    table, weight = empty(50_000, 768, dtype=BF16), empty(768, dtype=BF16)
    schedule = cut(lambda w, i, v: norm(w[i], v, v), table, words, weight)
    assert isinstance(schedule, HeldRows) and schedule.one_row and schedule.configs[0].warps == 1


def test_of_a_row_in_many_pieces_a_thread_has_more() -> None:
    normed = lambda x: torch.nn.functional.batch_norm(x, None, None, training=True)
    assert cut(normed, empty(128, 960, 7, 7, dtype=BF16)).configs[0] == Config({"XBLOCK": 1}, 8)
    assert cut(SOFTMAX, empty(960, 6272, dtype=BF16)).configs[0].warps == 16


def test_of_few_rows_a_program_has_one() -> None:
    schedule = cut(SOFTMAX, empty(8, 1000))
    assert schedule.one_row and is_one_row(schedule.configs)
    assert all(config.constants == {"RBLOCK": 1024} for config in schedule.complete)  # no XBLOCK


def test_rows_across_memory_are_held_with_their_neighbours() -> None:
    schedule = cut(lambda x: torch.softmax(x, 0), empty(128, 8192))
    assert isinstance(schedule, HeldRows) and schedule.configs == (Config({"XBLOCK": 64}, 16),)


def choose(work: Work) -> Schedule:
    return schedules.choose(work.group, work.buffers, work.target)[1]


def by_hand(rows: int, length: int, *, kind: str = "sum") -> Work:
    """One result a row, of rows as long as a size is now."""
    row, col = Axis("i", rows), Axis("j", Size("s0", length))
    x = buffer("x", rows, Size("s0", length))
    total = loop(buffer("total", rows), (row, col), read(x, row, col), reduced=(col,), reduction=kind)
    return work_by_hand(group(total, axes=(row, col), inner=(col,)), x)


def test_rows_of_a_symbolic_length_are_held_if_those_of_now_would_be() -> None:
    schedule = HeldIfShort.fit(by_hand(8192, 1000))
    assert schedule is not None and schedule.complete[0].constants["RBLOCK"] == 1024
    assert isinstance(choose(by_hand(8192, 1000)), HeldIfShort)
    assert not isinstance(choose(by_hand(8192, 40_000)), HeldIfShort)
    assert not isinstance(choose(by_hand(8, 16_000)), HeldIfShort)  # shared out among programs
    short = HeldIfShort.fit(by_hand(8192, 20))
    assert short is not None and short.complete[0].constants["RBLOCK"] == 64  # longer ones may come


def test_places_are_found_by_more_threads() -> None:
    total, place = (HeldIfShort.fit(by_hand(8192, 1000, kind=kind)) for kind in ("sum", "argmax"))
    assert total is not None and place is not None and place.configs[0].warps > total.configs[0].warps


def test_a_row_that_no_program_can_hold_is_not_held() -> None:
    assert not isinstance(cut(SOFTMAX, empty(8192, 40_000)), HeldRows)
