"""Rows of a large table: those that name each are listed first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from nbcompile.compiler.kernel_ir.integer_ranges import INT32_LIMIT
from nbcompile.compiler.loop_ir.index import Axis, index
from nbcompile.compiler.schedule.listed_rows import ListedRows, most_listed
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.schedule.small_tables import rows_of
from nbcompile.compiler.stages import Config
from tests.compiler.schedule.cut import ADD, BF16, CHIP, F32, added, cut, empty, work_of

I64 = torch.int64


def fit(*shape: int, dtype: torch.dtype = BF16) -> ListedRows | None:
    """The schedule for this many rows of the table, elements of each, and points."""
    return ListedRows.fit(work_of(ADD, *added(*shape, dtype)))


def test_rows_of_a_large_table_are_listed() -> None:
    schedule = cut(ADD, *added(50_000, 1024, 8192, BF16))
    assert isinstance(schedule, ListedRows) and schedule.skipped is None
    assert schedule.most == 8 and schedule.slots == 8192 // 9  # so many rows can be named over 8 times


def test_the_padding_of_an_embedding_is_skipped() -> None:
    def gradient(grad, ids):
        return torch.ops.aten.embedding_dense_backward(grad, ids, 50_000, 0, False)

    schedule = cut(gradient, empty(8192, 1024, dtype=BF16), empty(8192, dtype=I64))
    assert isinstance(schedule, ListedRows) and schedule.skipped is not None


@pytest.mark.parametrize("other", [1.0, float("nan"), -1.0])
def test_only_points_that_add_zero_are_skipped(other: float) -> None:
    def masked(fill: float, *, per_row: bool = True) -> ListedRows | None:
        def fn(x, i, v, keep):
            return x.index_add(0, i, v.masked_fill(keep[:, None] if per_row else keep, fill))

        keep = empty(8192, dtype=torch.bool) if per_row else empty(8192, 1024, dtype=torch.bool)
        return ListedRows.fit(work_of(fn, *added(50_000, 1024, 8192, BF16), keep))

    skipping = masked(0.0)
    assert skipping is not None and skipping.skipped is not None and skipping.value.kind == "load"
    whole = masked(other)
    assert whole is not None and whole.skipped is None and whole.value.op == "where"
    assert (each := masked(0.0, per_row=False)) is not None and each.skipped is None


def test_few_or_short_rows_cost_less_by_atomics() -> None:
    assert fit(1 << 14, 64, 8192) is not None
    assert fit(1 << 14, 63, 8192) is None and fit((1 << 14) - 1, 64, 8192) is None
    assert fit(50_000, 1024, 1, dtype=BF16) is not None, "a half type has a wider table to gain"
    assert fit(50_000, 1024, 1, dtype=F32) is None
    assert fit(50_000, 1024, 8192, dtype=F32) is not None and fit(50_000, 1024, 8191, dtype=F32) is None
    assert fit(50_000, 1024, 8192, dtype=torch.float64) is None


def test_rows_that_are_named_often_are_not_listed() -> None:
    assert fit(1024, 1024, 16 * 1024) is not None and fit(1024, 1024, 16 * 1024 + 1) is None


@pytest.mark.parametrize(
    ("named", "most"), [(1, 8), (999, 8), (1000, 16), (4999, 16), (5000, 32), (16_000, 64)]
)
def test_more_than_twice_the_average_is_listed_of_a_row(named: int, most: int) -> None:
    rows = rows_of(work_of(ADD, *added(16, 8, 8)).scattered)
    assert rows is not None
    many = replace(rows, count=index(1000), points=(Axis("i", index(named)),))
    assert most_listed(many) == most


def test_a_block_is_as_wide_as_a_row_up_to_256() -> None:
    narrow, wide = fit(1 << 14, 64, 8192), fit(50_000, 1000, 8192)
    assert narrow is not None and narrow.configs[0] == Config({"RBLOCK": 32, "XBLOCK": 64}, 4)
    assert wide is not None and [item.constants["RBLOCK"] for item in wide.configs] == [8, 4, 16]
    assert {item.constants["XBLOCK"] for item in wide.configs} == {256}


def test_all_places_fit_in_32_bits() -> None:
    work: Any = work_of(ADD, *added(50_000, 1024, 8192, BF16))

    def at(step: int) -> ListedRows | None:
        apart = replace(work.buffers["v"], strides=(index(step), index(1)))
        return ListedRows.fit(Work.of(work.group, {**work.buffers, "v": apart}, CHIP))

    assert at(INT32_LIMIT // 8192) is not None and at(INT32_LIMIT // 8191 + 1) is None
