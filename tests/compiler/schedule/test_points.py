"""Schedules of kernels that reduce nothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from nbcompile.compiler.schedule.points import Bands, ByRows, Points, Square
from tests.compiler.schedule.cut import BF16, axes, cut, empty


def blocks(schedule) -> list[tuple[int, ...]]:
    return [(*config.constants.values(), config.warps) for config in schedule.configs]


def test_points_in_memory_order_are_one_axis() -> None:
    schedule = cut(lambda x: x.exp(), empty(64, 32, 512))
    assert isinstance(schedule, Points) and axes(schedule.x) == [64 * 32 * 512]
    assert blocks(schedule) == [(1024, 4), (512, 2), (2048, 8), (4096, 8), (1024, 8)]


def test_few_points_have_small_blocks_so_that_there_are_programs_enough() -> None:
    assert blocks(cut(lambda x: x.exp(), empty(1000)))[0] == (128, 1)


def test_a_scalar_has_no_axes() -> None:
    assert cut(lambda x: x.exp(), empty()).x == ()


def test_memory_met_in_two_orders_is_cut_into_squares() -> None:
    wide = cut(lambda x: x.t().contiguous() + 1, empty(4096, 2048))
    assert isinstance(wide, Square) and (axes(wide.y), axes(wide.x)) == ([2048], [4096])
    assert blocks(wide)[0] == (64, 64, 8)
    # two bytes an element: half the rows, so that lines are written whole
    narrow = cut(lambda x: x.t().contiguous() + 1, empty(4096, 2048, dtype=BF16))
    assert blocks(narrow)[0] == (32, 128, 8)


def test_work_that_is_the_same_all_along_a_row_is_done_once_a_row() -> None:
    fn = lambda x, w: x * w.exp()[:, None].sin()
    long = cut(fn, empty(8192, 4096), empty(8192))
    assert isinstance(long, ByRows) and (axes(long.x), axes(long.r)) == ([8192], [4096])
    short = cut(fn, empty(512, 128), empty(512))
    assert isinstance(short, Bands) and (axes(short.y), axes(short.x)) == ([512], [128])


def test_rows_that_would_leave_lanes_idle_are_points() -> None:
    schedule = cut(lambda x, w: x * w.exp()[:, None].sin(), empty(512, 100), empty(512))
    assert isinstance(schedule, Points)  # 28 of 128 lanes would do nothing


def test_what_is_the_same_in_all_rows_is_done_for_several() -> None:
    schedule = cut(lambda x, a, b: x * a + b, empty(64, 512, 128), empty(64, 1, 128), empty(64, 1, 128))
    assert isinstance(schedule, Bands)
    assert (axes(schedule.outer), axes(schedule.y), axes(schedule.x)) == ([64], [512], [128])


def test_short_axes_that_lie_together_are_the_side_of_a_square() -> None:
    """Windows of 7 by 7 pixels: the channels lie innermost in one tensor, the pixels in the other."""
    windows = lambda x: x.view(16, 256, 2, 7, 2, 7).permute(0, 2, 4, 3, 5, 1).contiguous() + 1
    schedule = cut(windows, empty(16, 256, 14, 14))
    assert isinstance(schedule, Square)
    assert (axes(schedule.y), axes(schedule.x)) == ([16, 2, 7, 2, 7], [256])


def test_a_side_of_few_lanes_has_no_more_of_them() -> None:
    schedule = cut(lambda x: x.transpose(1, 2).contiguous() + 1, empty(64, 49, 512, dtype=BF16))
    assert isinstance(schedule, Square) and axes(schedule.x) == [49]
    assert blocks(schedule)[0] == (64, 64, 8)


def test_neighbours_that_take_turns_are_points() -> None:
    def turned(x, cos, sin):
        pairs = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        return x * cos + pairs * sin

    def halved(x, cos, sin):
        return x * cos + torch.cat([-x[..., 64:], x[..., :64]], -1) * sin

    inputs = empty(64, 512, 128), empty(64, 1, 128), empty(64, 1, 128)
    assert isinstance(cut(halved, *inputs), Bands) and isinstance(cut(turned, *inputs), Points)


def test_of_what_is_joined_one_part_is_loaded_at_a_time() -> None:
    parts = [empty(32, 32, 56, 56) for _ in range(8)]
    schedule = cut(lambda scale, *x: F.relu(torch.cat(x, 1) * scale), empty(1, 256, 1, 1), *parts)
    assert isinstance(schedule, Bands) and blocks(schedule)[0] == (2, 512, 4)
