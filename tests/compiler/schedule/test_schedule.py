"""What is to be cut up, in which order of its axes, and what every schedule is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nbcompile import targets
from nbcompile.compiler.kernel_ir.integer_ranges import INT32_LIMIT, offsets_fit
from nbcompile.compiler.loop_ir.expr import Indirect, op
from nbcompile.compiler.loop_ir.fused import Group, Product
from nbcompile.compiler.loop_ir.index import Axis, Size, index
from nbcompile.compiler.loop_ir.nodes import LibraryCall
from nbcompile.compiler.schedule.points import Points
from nbcompile.compiler.schedule.schedule import Schedule, Work, kind_of
from nbcompile.compiler.schedule.small_tables import SmallTable
from nbcompile.compiler.stages import Config
from tests.compiler.codegen.c.by_hand import buffer, buffers, group, loop, read
from tests.compiler.schedule.cut import ADD, CHIP, added, axes, cut, empty, work_by_hand, work_of

ROW, COL = Axis("i", index(64)), Axis("j", index(32))
I64 = torch.int64
X, ACROSS = buffer("x", 64, 32), buffer("y", 32, 64)


def test_of_loops_of_several_kinds_the_one_that_is_done_otherwise_decides() -> None:
    """Pointwise loops and reductions are walks of a nest, whatever they are with."""
    work = work_of(ADD, *added(16, 8, 1000))
    scatter = work.group
    assert kind_of(scatter) == work.kind == "scatter"
    assert kind_of(work_of(lambda x: (x * 2).cumsum(-1), empty(64, 32)).group) == "scan"
    nest = [work_of(fn, empty(64, 32)) for fn in (torch.exp, lambda x: x.sum(-1))]
    assert [kind_of(each.group) for each in nest] == ["nest", "nest"]
    assert [each.kind for each in nest] == ["points", "rows"]
    assert work_of(torch.exp, empty()).kind == "points"


def turned(*, reads_both: bool) -> Group:
    """The transpose of ``y``, and ``x`` in the other order where both are read."""
    body = op("add", read(X, ROW, COL), read(ACROSS, COL, ROW)) if reads_both else read(ACROSS, COL, ROW)
    return group(loop(buffer("turned", 32, 64), (COL, ROW), body), axes=(ROW, COL))


def test_axes_are_in_the_order_of_memory_where_it_is_free() -> None:
    assert axes(work_by_hand(turned(reads_both=False), ACROSS).values.nest.axes) == [32 * 64]
    assert axes(work_by_hand(turned(reads_both=True), X, ACROSS).values.nest.axes) == [32, 64]


def test_a_scan_keeps_what_it_goes_along_innermost_and_a_scatter_its_order() -> None:
    scan = work_of(lambda x: x.cumsum(1), empty(64, 100, 32)).values.nest
    assert axes(scan.axes) == [64, 32, 100] and axes(scan.inner_axes) == [100]
    turning = turned(reads_both=False)
    table, places = buffer("t", 32), index(Indirect(read(buffer("p", 64, dtype=I64), ROW), index(32)))
    value = read(ACROSS, COL, ROW)
    scatter = loop(buffer("sums", 32), (ROW, COL), value, target=(places,), base="t", mode="add")
    both = group(*turning.loops, scatter, axes=(ROW, COL), stored="turned sums")
    kept = work_by_hand(both, ACROSS, table, buffer("p", 64, dtype=I64))
    assert kept.kind == "scatter" and axes(kept.values.nest.axes) == [64, 32]


def test_a_product_keeps_its_axes_apart_and_in_its_order() -> None:
    call = LibraryCall("g0.fw.n0", "aten.mm", torch.ops.aten.mm.default, (), {}, ())
    copied = group(loop(buffer("out", 64, 32), (ROW, COL), read(X, ROW, COL)), axes=(ROW, COL))
    assert axes(work_by_hand(copied, X).values.nest.axes) == [64 * 32]
    product = work_by_hand(replace(copied, product=Product(call, None, ROW, COL, Axis("k", index(8)))), X)
    assert kind_of(product.group) == product.kind == "product" and product.values.nest.axes == (ROW, COL)


def test_a_place_is_wide_if_anything_touched_is_long() -> None:
    work = work_of(lambda x: (x * 2).sum(-1), empty(64, 32))
    (total,) = work.group.stored
    long = replace(X, shape=(index(INT32_LIMIT), index(1)), strides=(index(1), index(1)))
    assert not work.wide and offsets_fit(work.group, {**work.buffers, "unused": long})
    for name in ("x", total):
        assert not offsets_fit(work.group, {**work.buffers, name: long}), name
    almost = replace(long, shape=(index(INT32_LIMIT - 1), index(1)))
    assert offsets_fit(work.group, {**work.buffers, "x": almost})
    symbolic = replace(long, shape=(index(Size("s0", INT32_LIMIT)), index(1)))
    assert not offsets_fit(work.group, {**work.buffers, "x": symbolic}), "at the size it was captured with"


def test_wider_warps_are_fewer() -> None:
    """An AMD chip has warps of 64: the same threads, and configs that become one are one."""
    configs = Config({"XBLOCK": 256}, 4), Config({"XBLOCK": 64}, 2), Config({"XBLOCK": 64}, 1)
    schedule = Points(x=(), configs=configs)
    wide = targets.CHIPS["hip:gfx942"]
    assert [config.warps for config in schedule.on(wide).configs] == [2, 1]
    assert schedule.on(CHIP) is schedule


def test_a_schedule_that_counts_in_warps_of_any_width_keeps_them() -> None:
    schedule = cut(ADD, *added(16, 8, 100_000))
    assert isinstance(schedule, SmallTable) and not schedule.counts_warps_of_32
    assert schedule.on(targets.CHIPS["hip:gfx942"]) is schedule


def test_a_kind_has_a_name_and_says_itself_when_it_fits() -> None:
    class Unfinished(Schedule):
        name = "unfinished"

    assert Unfinished(configs=()).title == "unfinished"
    made = turned(reads_both=True)
    with pytest.raises(NotImplementedError):
        Unfinished.fit(Work.of(made, buffers(made, X, ACROSS), CHIP))
