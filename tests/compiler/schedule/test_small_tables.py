"""Tables of few rows: what each program sums of its own, and which scatters name rows at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from nbcompile.compiler.loop_ir.expr import Indirect
from nbcompile.compiler.loop_ir.index import Axis, Size, index
from nbcompile.compiler.schedule.scattered import Scattered
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.schedule.small_tables import SmallTable, half_of, rows_of
from tests.compiler.codegen.c.by_hand import buffer, group, loop, read
from tests.compiler.schedule.cut import ADD, BF16, CHIP, F32, added, cut, empty, small, work_by_hand, work_of

I64, F16 = torch.int64, torch.float16


def scattered(fn: Any, *inputs: Any) -> Scattered:
    return work_of(fn, *inputs).scattered


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


def test_few_rows_that_many_floating_point_numbers_are_added_to() -> None:
    fits = lambda fn, *inputs: SmallTable.fit(work_of(fn, *inputs)) is not None
    assert fits(ADD, *added(64, 8, 64 * 32)) and not fits(ADD, *added(65, 8, 100_000))
    assert not fits(ADD, *added(64, 8, 64 * 32 - 1)), "atomics seldom meet"
    assert not fits(ADD, *added(16, 8, 100_000, I64))
    one = SmallTable.fit(work_of(ADD, *added(1, 1, 100)))
    assert one is not None and (one.block, one.rows.axes, one.rows.length) == (2, (), 1)


def test_only_sums_are_made_so() -> None:
    work = work_of(ADD, *added(16, 8, 100_000))
    (scatter,) = work.group.loops
    assert SmallTable.fit(work) is not None
    greatest = replace(work.group, loops=(replace(scatter, mode="max"),))
    assert SmallTable.fit(Work.of(greatest, work.buffers, CHIP)) is None


def test_rows_of_a_table_are_named_by_one_index() -> None:
    found = scattered(ADD, *added(16, 8, 1000))
    rows = rows_of(found)
    assert rows is not None and (rows.dim, rows.length, rows.named) == (0, 8, 1000)
    middle = scattered(
        lambda x, i, v: x.index_add(1, i, v), empty(4, 16, 8), empty(9, dtype=I64), empty(4, 9, 8)
    )
    rows = rows_of(middle)
    assert rows is not None and (rows.dim, rows.length, rows.named) == (1, 32, 9)
    pairs = lambda x, i, j, v: x.index_put((i, j), v, accumulate=True)
    assert rows_of(scattered(pairs, empty(16, 8), *[empty(9, dtype=I64)] * 2, empty(9))) is None


def test_an_index_of_each_element_names_no_row() -> None:
    each = lambda x, i, v: x.scatter_add(0, i, v)
    assert rows_of(scattered(each, empty(16, 8), empty(1000, 8, dtype=I64), empty(1000, 8))) is None
    single = rows_of(scattered(each, empty(16, 1), empty(1000, 1, dtype=I64), empty(1000, 1)))
    assert single is not None and (single.inner, single.named) == ((None,), 1000)


def test_rows_of_symbolic_size_are_not_known() -> None:
    def rows(points: int | Size) -> Any:
        point, lane = Axis("i", points), Axis("j", 8)
        table, places, values = buffer("x", 16, 8), buffer("p", points, dtype=I64), buffer("v", points, 8)
        target = index(Indirect(read(places, point), index(16))), index(lane)
        out, body = buffer("out", 16, 8), read(values, point, lane)
        scatter = loop(out, (point, lane), body, target=target, base="x", mode="add")
        return rows_of(work_by_hand(group(scatter, axes=(point, lane)), table, places, values).scattered)

    assert rows(1000).named == 1000 and rows(Size("s0", 1000)) is None


def test_a_product_takes_what_is_of_a_half_type_already() -> None:
    def of(fn: Any, dtype: torch.dtype = BF16) -> torch.dtype | None:
        return half_of(scattered(fn, *added(16, 8, 1000, dtype)))

    assert (of(ADD, F32), of(ADD), of(ADD, F16)) == (None, BF16, F16)
    assert of(lambda x, i, v: x.index_add(0, i, v * 2)) is None, "computed, and not rounded on its way"
    assert of(lambda x, i, v: x.index_add(0, i, (v.float() * 2).to(BF16))) == BF16
    masked = lambda x, i, v: x.index_add(0, i, torch.where(v > 0, v, 0))
    assert of(masked) == BF16
    third = lambda x, i, v: x.index_add(0, i, torch.where(v > 0, v, 1 / 3))
    assert of(third) is None, "of numbers 0 and 1 alone are surely exact"
