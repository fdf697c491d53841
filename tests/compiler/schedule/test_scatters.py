"""Scatters: which of them have a better way than one atomic operation a point."""

from __future__ import annotations

import pytest
import torch

from nbcompile.compiler.schedule.listed_axes import ListedAxes, ListedLanes
from nbcompile.compiler.schedule.listed_rows import ListedRows
from nbcompile.compiler.schedule.scatters import Scatter
from nbcompile.compiler.schedule.small_tables import SmallTable, half_of, rows_of
from tests.compiler.schedule.cut import BF16, F32, cut, empty, small, work_of

ADD = lambda x, i, v: x.index_add(0, i, v)
I64 = torch.int64


def added(rows: int, length: int, points: int, dtype: torch.dtype = F32):
    """``points`` rows added into a table."""
    return empty(rows, length, dtype=dtype), empty(points, dtype=I64), empty(points, length, dtype=dtype)


def test_few_points_are_done_by_atomics() -> None:
    schedule = cut(ADD, *added(1000, 4, 100))
    assert isinstance(schedule, Scatter) and schedule.wide is None
    assert schedule.configs[0].constants == {"XBLOCK": 128}  # small, for many programs


def test_what_has_no_atomics_is_added_up_in_a_wider_type() -> None:
    schedule = cut(ADD, *added(1000, 4, 100, BF16))
    assert isinstance(schedule, Scatter) and schedule.wide == F32


@pytest.mark.parametrize(
    ("length", "dtype", "way"),
    [(8, F32, "points"), (256, F32, "along the row"), (64, BF16, "products"), (2, BF16, "points")],
)
def test_a_small_table_is_summed_by_each_program(length: int, dtype: torch.dtype, way: str) -> None:
    schedule = cut(ADD, *added(16, length, 100_000, dtype))
    assert isinstance(schedule, SmallTable) and schedule.way == way
    blocks = -(-100_000 // schedule.each)
    steps = -(-blocks // schedule.slabs)
    assert steps * (schedule.slabs - 1) < blocks  # nobody's share is empty


def test_more_programs_share_the_points_on_a_larger_chip() -> None:
    inputs = added(16, 8, 100_000)
    assert cut(ADD, *inputs, chip=small(multiprocessors=8)).slabs < cut(ADD, *inputs).slabs


def test_rows_of_a_table_are_named_by_one_index() -> None:
    scattered = work_of(ADD, *added(16, 8, 1000)).scattered
    rows = rows_of(scattered)
    assert rows is not None and (rows.dim, rows.length, rows.named) == (0, 8, 1000)
    assert half_of(scattered) is None and half_of(work_of(ADD, *added(16, 8, 1000, BF16)).scattered) == BF16


def test_rows_of_a_large_table_are_listed() -> None:
    schedule = cut(ADD, *added(50_000, 1024, 8192, BF16))
    assert isinstance(schedule, ListedRows) and schedule.skipped is None
    assert schedule.most == 8 and schedule.slots == 8192 // 9  # so many rows can be named over 8 times


def test_the_padding_of_an_embedding_is_skipped() -> None:
    def gradient(grad, ids):
        return torch.ops.aten.embedding_dense_backward(grad, ids, 50_000, 0, False)

    schedule = cut(gradient, empty(8192, 1024, dtype=BF16), empty(8192, dtype=I64))
    assert isinstance(schedule, ListedRows) and schedule.skipped is not None


def test_short_indices_list_the_points_of_each_place() -> None:
    lines = cut(lambda x, i, v: x.index_add(1, i, v), *_planes(64, 32, 256, dim=1))
    assert isinstance(lines, ListedAxes) and lines.lane.extent == 256
    (listed,) = lines.listed
    assert (listed.dim, listed.length, listed.size) == (1, 64, 32)
    lanes = cut(lambda x, i, v: x.index_add(2, i, v), *_planes(64, 256, 32, dim=2))
    assert isinstance(lanes, ListedLanes) and (lanes.lanes.dim, lanes.lanes.size) == (2, 32)


def _planes(*shape: int, dim: int):
    more = list(shape)
    more[dim] = 64
    return empty(*shape), empty(64, dtype=I64), empty(*more)
