"""How rows lie in memory and what is done with them: what the choice among schedules of rows asks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from nbcompile.compiler.loop_ir.expr import Constant, Expr, op
from nbcompile.compiler.loop_ir.index import Axis, Index, Size, index
from nbcompile.compiler.schedule.row_shapes import (
    RowShape,
    busy,
    draws,
    gathers,
    kind_of_rows,
    splittable,
    stores_rows,
    sums_vary,
)
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.stages import Config
from tests.compiler.codegen.c.by_hand import buffer, group, loop, read
from tests.compiler.schedule.cut import BF16, F32, axes, empty, work_by_hand, work_of

SOFTMAX = lambda x, dim: torch.softmax(x, dim)


def shape_of(fn: Any, *shapes: tuple[int, ...], dtype: torch.dtype = F32) -> RowShape:
    return work_of(fn, *(empty(*shape, dtype=dtype) for shape in shapes)).shape


def crossed(length: Index, rows: Index = 50) -> Work:
    """Sums of rows of a matrix and of columns of another, at once."""
    row, col = Axis("i", rows), Axis("j", length)
    x, y = buffer("x", rows, length), buffer("y", length, rows)
    body = op("add", read(x, row, col), read(y, col, row))
    total = loop(buffer("total", rows), (row, col), body, reduced=(col,), reduction="sum")
    return work_by_hand(group(total, axes=(row, col), inner=(col,)), x, y)


def test_neighbours_in_memory_lie_along_the_row_or_from_row_to_row() -> None:
    along = shape_of(lambda x: SOFTMAX(x, -1), (8192, 1000))
    assert (along.rows, along.length, along.whole) == (8192, 1000, 1024) and along.along and not along.mixed
    across = shape_of(lambda x: SOFTMAX(x, 0), (128, 8192))
    assert (across.rows, across.length) == (8192, 128) and not across.along and not across.mixed
    both = crossed(40).shape
    assert not both.along and both.mixed
    assert crossed(40, Size("s0", 1)).shape.along, "one row has no neighbour"


def test_no_rows_and_rows_of_nothing_have_blocks_of_one_point_at_least() -> None:
    assert (none := shape_of(lambda x: x.sum(-1), (0, 1000))).rows == 0 and none.walk() == (1, 1024)
    assert (nothing := shape_of(lambda x: x.sum(-1), (1000, 0))).whole == 1 and nothing.walk() == (8, 64)
    point = shape_of(lambda x: x + x.sum(), (1,))  # extents of 1 are no axes
    assert (point.x, point.r, point.rows, point.length) == ((), (), 1, 1) and point.fits


def test_a_program_holds_a_row_of_known_length_as_far_as_its_registers_go() -> None:
    row = shape_of(lambda x: SOFTMAX(x, -1), (8192, 16_384))
    assert row.fits and not replace(row, whole=32_768).fits
    assert row.live == 1 and not replace(row, live=5).fits
    column = replace(row, along=False)
    assert replace(column, whole=512).fits and not replace(column, whole=1024).fits
    assert replace(column, whole=1024, mixed=True).fits and not replace(column, whole=2048, mixed=True).fits
    symbolic = crossed(Size("s0", 40)).shape
    assert symbolic.length == 40 and not symbolic.known and not symbolic.fits


def test_a_walk_has_fewer_blocks_under_way_the_more_bytes_a_point_has() -> None:
    narrow = shape_of(lambda x: x.sum(-1), (64, 40_000), dtype=BF16)
    wide = shape_of(lambda x, y: (x * y).sum(-1), (64, 40_000), (64, 40_000))
    assert (narrow.row_bytes, wide.row_bytes) == (2, 8) and (narrow.live, wide.live) == (1, 2)
    assert narrow.stages(3, 4096) == 3 and wide.stages(3, 4096) == 3
    assert wide.stages(3, 6000) == 2 and wide.stages(3, 8192) == 1, "for one block nothing waits"
    assert wide.stages(3, 8192, programs=1) == 3 and wide.stages(3, 1 << 20) == 1
    assert wide.walked(1, 4096, 3, 16) == Config({"XBLOCK": 1, "RBLOCK": 4096, "STAGES": 3}, 8)


def test_a_short_lane_of_the_reduced_axes_can_be_taken_for_rows() -> None:
    pixels = shape_of(lambda x: x.sum((1, 3)), (8, 1024, 64, 3))
    assert pixels.lane == pixels.r[-1] and (axes(pixels.x), axes(pixels.r)) == ([8, 64], [1024, 3])
    lanes = pixels.across(pixels.lane)
    assert (axes(lanes.x), axes(lanes.r)) == ([8, 64, 3], [1024])
    assert (lanes.rows, lanes.length, lanes.whole, lanes.lane) == (8 * 64 * 3, 1024, 1024, None)
    assert not lanes.along and not lanes.mixed
    assert shape_of(lambda x: x.sum((1, 3)), (8, 1024, 64, 16)).lane is None, "16 neighbours are a line"


@pytest.mark.parametrize(
    ("fn", "apart", "stored", "kind"),
    [
        (lambda x, y: (x * y).sum(-1), True, False, "rows"),
        (lambda x, y: SOFTMAX(x * y, -1), False, True, "rows"),  # the row is needed again
        (lambda x, y: (x * y).argmax(-1), True, False, "rows"),  # the best of a part beside its place
        (lambda x, y: (x * y).var(-1), True, False, "rows"),  # its squares need its mean alone
        (lambda x, y: (x.sum(0), x * y), True, True, "columns"),
        (lambda x, y: (x.sum(0), (x * y).sum(-1)), True, False, "sums"),
    ],
)
def test_what_is_done_with_rows(fn: Any, apart: bool, stored: bool, kind: str) -> None:
    values = work_of(fn, empty(100, 200), empty(100, 200)).values
    assert (splittable(values), stores_rows(values), kind_of_rows(values)) == (apart, stored, kind)
    assert sums_vary(values) is (kind == "sums")


def test_a_point_is_busy_from_some_fifty_instructions_on() -> None:
    row, x = Axis("i", index(1000)), buffer("x", 1000)

    def values(*names: str) -> Any:
        body: Expr = op("mul", read(x, row), Constant(2.0, F32))
        for name in names:
            body = op(name, body)
        return work_by_hand(group(loop(buffer("out", 1000), (row,), body), axes=(row,)), x).values

    assert not busy(values("sin")) and busy(values("sin", "exp"))
    assert not busy(values(*["neg"] * 46)) and busy(values(*["neg"] * 47))


def test_places_that_depend_on_values_and_numbers_that_are_drawn_are_seen() -> None:
    plain = work_of(lambda x: x.sin().sum(-1), empty(100, 200)).values
    gathered = work_of(lambda x, i: x[i].sum(-1), empty(50), empty(100, 200, dtype=torch.int64)).values
    assert (gathers(plain), gathers(gathered), draws(plain)) == (False, True, False)
    row, seed = Axis("i", index(1000)), buffer("s", 1, dtype=torch.int64)
    number = op("philox_uniform", read(seed, 0), Constant(0, torch.int64), dtype=F32)
    drawn = group(loop(buffer("out", 1000), (row,), number), axes=(row,))
    assert draws(work_by_hand(drawn, seed).values)
