"""The arithmetic of tiles."""

from __future__ import annotations

import pytest

from nbcompile.compiler.schedule.tiling import distinct, power, warps_of
from nbcompile.compiler.stages import Config
from tests.compiler.schedule.cut import axes, cut, empty


@pytest.mark.parametrize(("value", "expected"), [(0, 1), (1, 1), (2, 2), (3, 4), (1024, 1024), (1025, 2048)])
def test_the_next_power_of_two(value: int, expected: int) -> None:
    assert power(value) == expected


@pytest.mark.parametrize(
    ("tile", "each", "warps"), [(64, 16, 1), (4096, 16, 8), (8192, 8, 16), (16_384, 8, 32)]
)
def test_warps_hold_a_tile(tile: int, each: int, warps: int) -> None:
    assert warps_of(tile, each) == warps


def test_configs_come_once_in_their_order() -> None:
    one, other = Config({"XBLOCK": 1}), Config({"XBLOCK": 2})
    assert distinct([other, one, other]) == (other, one)


def test_axes_are_put_in_the_order_of_memory_and_those_it_walks_as_one_are_one() -> None:
    permuted = cut(lambda x: x.permute(2, 0, 1).exp(), empty(8, 16, 4))
    assert axes(permuted.x) == [8 * 16 * 4]
    mixed = cut(lambda x, y: x + y.permute(2, 0, 1), empty(4, 8, 16), empty(8, 16, 4))
    assert axes(mixed.x) == [4, 8 * 16]
