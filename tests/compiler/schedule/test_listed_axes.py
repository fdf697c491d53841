"""Short indices along axes of their own: what leads to each place is listed, and each place written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Indirect
from nbcompile.compiler.loop_ir.index import Axis, Size, index
from nbcompile.compiler.schedule.listed_axes import Listed, ListedAxes, ListedLanes, listed_in
from nbcompile.compiler.schedule.schedule import Work
from tests.compiler.codegen.c.by_hand import buffer, group, loop, read
from tests.compiler.schedule.cut import BF16, F32, cut, empty, work_by_hand, work_of

I64, PUT = torch.int64, torch.ops.aten.index_put


def add(dim: int) -> Callable[..., torch.Tensor]:
    return lambda x, i, v: x.index_add(dim, i, v)


def planes(*shape: int, dim: int, points: int = 64, dtype: torch.dtype = F32) -> tuple[Any, ...]:
    """A tensor of this shape, and as many as ``points`` planes that are added across ``dim``."""
    more = list(shape)
    more[dim] = points
    return empty(*shape, dtype=dtype), empty(points, dtype=I64), empty(*more, dtype=dtype)


def listed(fn: Callable[..., torch.Tensor], *inputs: Any) -> list[tuple[int, int, int]] | None:
    """Dimension, indices and places of each list."""
    return shown(listed_in(work_of(fn, *inputs).scattered))


def shown(found: list[Listed] | None) -> list[tuple[int, int, int]] | None:
    return None if found is None else [(item.dim, item.length, item.size) for item in found]


def test_short_indices_list_the_points_of_each_place() -> None:
    lines = cut(add(1), *planes(64, 32, 256, dim=1))
    assert isinstance(lines, ListedAxes) and lines.lane.extent == 256
    (named,) = lines.listed
    assert (named.dim, named.length, named.size) == (1, 64, 32)
    lanes = cut(add(2), *planes(64, 256, 32, dim=2))
    assert isinstance(lanes, ListedLanes) and (lanes.lanes.dim, lanes.lanes.size) == (2, 32)


def test_one_or_two_dimensions_are_named_each_by_an_axis_of_its_own() -> None:
    i, j, k = (empty(n, dtype=I64) for n in (5, 6, 7))
    two = lambda x, v, i, j: PUT(x, [None, None, i[:, None], j], v, True)
    assert listed(two, empty(2, 3, 20, 30), empty(2, 3, 5, 6), i, j) == [(2, 5, 20), (3, 6, 30)]
    three = lambda x, v, i, j, k: PUT(x, [i[:, None, None], j[:, None], k], v, True)
    assert listed(three, empty(10, 20, 30), empty(5, 6, 7), i, j, k) is None
    same = lambda x, v, i, j: PUT(x, [None, i, j], v, True)
    assert listed(same, empty(4, 20, 30), empty(4, 5), i, i) is None, "along one axis two are named at once"
    each = lambda x, v, i: x.scatter_add(1, i, v)
    assert listed(each, empty(4, 20), empty(4, 5), empty(4, 5, dtype=I64)) is None


def test_only_sums_in_full_precision_are_listed() -> None:
    assert listed(add(1), *planes(4, 20, 8, dim=1, dtype=torch.float64)) == [(1, 64, 20)]
    assert listed(add(1), *planes(4, 20, 8, dim=1, dtype=BF16)) is None
    assert listed(add(1), *planes(4, 20, 8, dim=1, dtype=I64)) is None
    put = lambda x, i, v: x.index_copy(1, i, v)
    assert listed(put, *planes(4, 20, 8, dim=1)) is None


def test_a_dimension_of_extent_1_is_a_place_and_a_single_index_names_none() -> None:
    assert listed(add(1), *planes(1, 20, 8, dim=1)) == [(1, 64, 20)]
    assert listed(add(1), *planes(4, 1, 8, dim=1)) == [(1, 64, 1)]
    assert listed(add(1), *planes(4, 20, 8, dim=1, points=1)) is None, "no axis leads there"
    scalar = lambda x, i, v: PUT(x, [i], v, True)
    assert listed(scalar, empty(20), empty(dtype=I64), empty()) is None
    assert listed(add(1), *planes(0, 20, 8, dim=1)) is None
    assert listed(add(1), *planes(4, 20, 8, dim=1, points=0)) is None


def by_hand(lanes: int | Size, points: int | Size = 64) -> Work:
    """Planes added across the first dimension of a tensor with so many neighbours in memory."""
    point, row, lane = Axis("i", points), Axis("j", 64), Axis("k", lanes)
    table, values = buffer("x", 32, 64, lanes), buffer("v", points, 64, lanes)
    places = buffer("p", points, dtype=I64)
    target = index(Indirect(read(places, point), index(32))), index(row), index(lane)
    out, body = buffer("out", 32, 64, lanes), read(values, point, row, lane)
    made = loop(out, (point, row, lane), body, target=target, base="x", mode="add")
    return work_by_hand(group(made, axes=(point, row, lane)), table, places, values)


def test_places_of_symbolic_sizes_are_not_listed() -> None:
    assert shown(listed_in(by_hand(256).scattered)) == [(0, 64, 32)]
    assert listed_in(by_hand(Size("s0", 256)).scattered) is None
    assert listed_in(by_hand(256, Size("s0", 64)).scattered) is None


def test_lists_pay_for_many_points_of_short_indices_that_seldom_meet() -> None:
    def fits(shape: tuple[int, ...], points: int) -> bool:
        return ListedAxes.fit(work_of(add(1), *planes(*shape, dim=1, points=points))) is not None

    assert fits((64, 32, 64), 64) and not fits((64, 32, 63), 64), "2 ** 18 points"
    assert fits((64, 64, 256), 1024) and not fits((64, 65, 256), 1025), "1024 indices"
    assert fits((64, 256, 256), 1024) and not fits((64, 257, 256), 1024), "2 ** 18 pairs"
    assert not fits((64, 63, 256), 1024), "more than 16 a place"
    assert fits((256, 32, 16), 64) and not fits((512, 32, 15), 64), "16 neighbours in memory"


def test_named_lanes_are_handed_out_by_a_product_of_comparisons() -> None:
    schedule = ListedLanes.fit(work_of(add(2), *planes(64, 256, 10, dim=2, points=20)))
    assert schedule is not None and schedule.lanes is schedule.listed[0]
    assert schedule.configs[0].constants == {"YBLOCK": 64, "LBLOCK": 32, "XBLOCK": 16}, "16 is the least"
    assert [config.warps for config in schedule.configs] == [2, 4]
    fit = lambda *shape, **more: ListedLanes.fit(work_of(add(2), *planes(*shape, dim=2, **more)))
    assert fit(64, 512, 128, points=256) is not None and fit(64, 512, 129, points=256) is None, (
        "2 ** 15 pairs"
    )
    assert fit(64, 512, 32, dtype=torch.float64) is None and fit(512, 512, 32, points=15) is None
    alone = ListedLanes.fit(work_of(add(0), empty(1000), empty(1000, dtype=I64), empty(1000)))
    assert alone is None, "no axis is left to go along"
