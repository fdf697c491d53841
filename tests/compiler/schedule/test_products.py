"""Matrix products: which templates can make one, and in which tiles."""

from __future__ import annotations

import pytest
import torch

from nbcompile import targets
from nbcompile.compiler.schedule.products import configs_of, persistent_configs
from tests.compiler.schedule.cut import BF16, CHIP

LARGE = (1, 8192, 8192, 8192)


def tiles(found) -> list[tuple[int, int]]:
    return [(item.constants["BLOCK_M"], item.constants["BLOCK_N"]) for item in found]


def test_a_large_product_has_large_tiles_and_a_thin_one_thin_ones() -> None:
    assert {tiles(configs_of(LARGE, BF16, CHIP))[0]} <= {(128, 256), (256, 128)}
    assert tiles(configs_of((1, 16, 8192, 8192), BF16, CHIP))[0][0] <= 32


@pytest.mark.parametrize("chip", ["cuda:80", "cuda:90", "hip:gfx942"])
def test_operands_under_way_fit_on_the_chip(chip: str) -> None:
    target = targets.CHIPS[chip]
    for config in configs_of(LARGE, BF16, target):
        m, n, k = (config.constants[f"BLOCK_{letter}"] for letter in "MNK")
        assert (config.stages - (target.kind != "cuda")) * (m + n) * k * 2 <= target.shared_bytes


def test_persistent_programs_leave_room_for_the_result() -> None:
    assert all(item.constants["PROGRAMS"] in (1, 2) for item in persistent_configs(LARGE, BF16, CHIP))
    assert len(persistent_configs(LARGE, torch.float32, CHIP)) > 0
