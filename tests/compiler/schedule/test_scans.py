"""Running results along rows."""

from __future__ import annotations

import pytest

from nbcompile.compiler.schedule.scans import HeldScan, SplitScan, WalkedScan, goes_backwards, scans_of
from tests.compiler.schedule.cut import axes, cut, empty, work_of


@pytest.mark.parametrize(
    ("shape", "kind"), [((4096, 1024), HeldScan), ((4096, 100_000), WalkedScan), ((1 << 24,), SplitScan)]
)
def test_the_longer_and_fewer_the_rows_the_more_is_handed_on(shape: tuple[int, ...], kind: type) -> None:
    schedule = cut(lambda x: x.cumsum(-1), empty(*shape))
    assert type(schedule) is kind and axes(schedule.r) == [shape[-1]]
    assert (schedule.slabs > 1) == (kind is SplitScan)


def test_slabs_are_a_whole_number_of_blocks() -> None:
    schedule = cut(lambda x: x.cumsum(-1), empty(1 << 24))
    assert (1 << 24) % (schedule.slabs * schedule.configs[0].constants["RBLOCK"]) == 0


def test_a_scan_of_a_scan_is_not_split() -> None:
    assert type(cut(lambda x: x.cumsum(-1).cumsum(-1), empty(1 << 24))) is WalkedScan


def test_a_flipped_scan_goes_backwards() -> None:
    assert not goes_backwards(work_of(lambda x: x.cumsum(-1), empty(64, 64)).group)
    assert goes_backwards(work_of(lambda x: x.flip(1).cumsum(1).flip(1), empty(64, 64)).group)


def test_value_and_position_are_two_values_of_one_scan() -> None:
    assert len(scans_of(work_of(lambda x: tuple(x.cummax(1)), empty(64, 64)).values)) == 2
