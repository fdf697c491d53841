"""Schedules of kernels that reduce nothing."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import torch
import torch.nn.functional as F

from nbcompile.compiler.schedule.points import Bands, ByRows, Joined, Parts, Points, Square
from tests.compiler.codegen import triton_running
from tests.compiler.schedule import cut as cutting
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
    assert (axes(schedule.outer), axes(schedule.y), axes(schedule.x)) == ([16], [2, 7, 2, 7], [256])


def test_a_side_of_few_lanes_has_no_more_of_them() -> None:
    schedule = cut(lambda x: x.transpose(1, 2).contiguous() + 1, empty(64, 49, 512, dtype=BF16))
    assert isinstance(schedule, Square) and axes(schedule.x) == [49]
    assert (axes(schedule.outer), axes(schedule.y)) == ([64], [512])
    assert blocks(schedule)[0] == (32, 64, 4)
    few = cut(lambda x: x.transpose(1, 2).contiguous() + 1, empty(64, 32, 512, dtype=BF16))
    assert isinstance(few, Square) and (axes(few.outer), axes(few.y), axes(few.x)) == ([], [64, 512], [32])
    assert blocks(few)[0] == (64, 32, 2)


def test_neighbours_that_take_turns_are_points() -> None:
    def turned(x, cos, sin):
        pairs = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        return x * cos + pairs * sin

    def halved(x, cos, sin):
        return x * cos + torch.cat([-x[..., 64:], x[..., :64]], -1) * sin

    inputs = empty(64, 512, 128), empty(64, 1, 128), empty(64, 1, 128)
    assert isinstance(cut(halved, *inputs), Bands) and isinstance(cut(turned, *inputs), Points)


def test_of_what_is_joined_one_part_is_loaded_at_a_time() -> None:
    parts = [empty(32, 32, 56, 56) for _ in range(4)]
    schedule = cut(lambda scale, *x: F.relu(torch.cat(x, 1) * scale), empty(1, 128, 1, 1), *parts)
    assert isinstance(schedule, Bands) and blocks(schedule)[0] == (4, 256, 4)


def test_a_band_leaves_next_to_no_lanes_idle_if_a_narrower_one_does_not() -> None:
    scaled = lambda x, w: x * w.exp()[:, None]
    assert blocks(cut(scaled, empty(8192, 784), empty(8192)))[0] == (16, 64, 4)  # 128 leave one in eight
    assert blocks(cut(scaled, empty(8192, 512), empty(8192)))[0] == (2, 512, 4)


def test_neighbours_that_take_turns_within_a_band_are_few() -> None:
    """Rotary embeddings of interleaved pairs: the halves of a pair are an axis of two."""

    def turned(x, sin):
        x = x.view(8, 768, 32, 128)[..., :64]
        pairs = torch.cat([-x[..., 1::2].unsqueeze(-1), x[..., ::2].unsqueeze(-1)], -1).view(8, 768, 32, 64)
        return pairs * sin[None, :, None, :, None].expand(1, 768, 1, 32, 2).reshape(1, 768, 1, 64)

    schedule = cut(turned, empty(8, 768, 4096, dtype=BF16), empty(768, 32, dtype=BF16))
    assert isinstance(schedule, Bands) and blocks(schedule)[0] == (4, 64, 1)


def heads(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).transpose(1, 2).contiguous()


def test_a_permuted_copy_divides_once_a_row() -> None:
    schedule = cut(heads, empty(64, 197, 12, 64, dtype=BF16))
    assert isinstance(schedule, Bands) and (axes(schedule.y), axes(schedule.x)) == ([64, 12, 197], [64])
    assert blocks(schedule)[0] == (16, 64, 4)


def test_a_band_has_the_axes_that_lie_innermost_together() -> None:
    def patches(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).view(64, 3, 14, 16, 14, 16).permute(0, 2, 4, 1, 3, 5).contiguous()

    schedule = cut(patches, empty(64, 3, 224, 224, dtype=BF16))
    assert isinstance(schedule, Bands)
    assert (axes(schedule.y), axes(schedule.x)) == ([64, 14, 14], [3, 16, 16])  # 768 points, in pieces of 256


def test_a_long_row_of_a_permuted_copy_is_cut() -> None:
    windows = lambda x: (x * 2).view(32, 8, 7, 8, 7, 96).permute(0, 1, 3, 2, 4, 5).contiguous()
    schedule = cut(windows, empty(32, 56, 56, 96, dtype=BF16))
    assert isinstance(schedule, Bands) and axes(schedule.x)[-1] == 7 * 96
    assert blocks(schedule)[0] == (4, 256, 4)


def test_what_is_told_without_divisions_is_a_run_of_points() -> None:
    assert isinstance(cut(heads, empty(64, 256, 16, 64, dtype=BF16)), Points)  # powers of two are shifts
    assert isinstance(
        cut(heads, empty(64, 197, 12, 48, dtype=BF16)), Points
    )  # 16 of 64 lanes would do nothing


def test_of_every_other_element_a_thread_has_fewer() -> None:
    every_other = lambda x: x[:, ::2] * 2
    assert blocks(cut(every_other, empty(4096, 8192, dtype=BF16)))[0] == (1024, 8)
    pixels = lambda x: F.pixel_unshuffle(x, 2) * 2
    schedule = cut(pixels, empty(32, 64, 112, 112, dtype=BF16))
    assert isinstance(schedule, Bands) and blocks(schedule)[0] == (8, 64, 4)
    # an axis that an index meets by quotients counts among what it reads
    assert blocks(cut(lambda x: F.pixel_unshuffle(x, 4) * 2, empty(32, 32, 128, 128)))[0] == (1024, 8)


def test_of_what_is_joined_a_program_computes_one_part() -> None:
    def halves(x, y):
        return torch.cat([x.tanh(), y.sigmoid()], -1)

    schedule = cut(halves, empty(16_000, 3072), empty(16_000, 3072))
    assert isinstance(schedule, Parts) and (axes(schedule.x), axes(schedule.r)) == ([16_000], [6144])
    assert blocks(schedule)[0] == (1024, 4)
    # a block would lie in both parts; and nothing is computed but what is loaded
    one = lambda x, y: torch.cat([x.tanh(), y], -1)
    assert not isinstance(cut(one, empty(16_000, 3000), empty(16_000, 3000)), Parts)
    joined = lambda x, y: torch.cat([x * 2, y], -1)
    assert not isinstance(cut(joined, empty(16_000, 3072), empty(16_000, 3072)), Parts)


def test_parts_of_other_axes_need_no_edges() -> None:
    channels = lambda x, y, z: torch.cat([x.tanh(), y.sigmoid(), z], 1)
    schedule = cut(channels, *(empty(64, 24, 32, 32) for _ in range(3)))
    assert isinstance(schedule, Parts) and (axes(schedule.x), axes(schedule.r)) == ([64, 72], [1024])


def test_of_many_parts_those_without_a_point_are_passed_over() -> None:
    channels = lambda *parts: torch.cat(parts, 1) * 2
    parts = [empty(32, size, 14, 14, dtype=BF16) for size in (256, *[32] * 8)]
    schedule = cut(channels, *parts)
    assert isinstance(schedule, Joined)
    assert (axes(schedule.x), axes(schedule.r)) == ([32], [512, 196])
    assert schedule.edges == tuple(196 * (256 + 32 * before) for before in range(8))
    assert not isinstance(cut(channels, *parts[:4]), Joined)  # few parts
    assert not isinstance(cut(channels, *(empty(40_000, 1, 2, 2) for _ in range(8))), Joined)  # short rows
    # not one after another along one axis
    padded = lambda x: sum(F.pad(x, (0, 0, side, 5 - side)) for side in range(5))
    assert not isinstance(cut(padded, empty(4096, 1000)), Joined)


def test_numbers_are_drawn_for_four_points_at_once_rather_than_work_done_once_a_row() -> None:
    fn = lambda x, w: torch.native_dropout(x * w.exp().sin()[:, None], 0.5, True)
    inside = replace(cutting.H100, random="philox")
    with mock.patch.object(cutting, "H100", inside), mock.patch.object(triton_running, "H100", inside):
        assert isinstance(cut(fn, empty(4096, 169), empty(4096)), Points)
        assert isinstance(cut(fn, empty(4096, 128), empty(4096)), Bands)
