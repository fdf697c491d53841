"""What a scatter does, as the schedules of scatters ask for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nbcompile.compiler.kernel_ir.integer_ranges import INT32_LIMIT
from nbcompile.compiler.kernel_ir.values import Gathered
from nbcompile.compiler.loop_ir.index import Size, index
from nbcompile.compiler.loop_ir.nodes import ScatterMode
from nbcompile.compiler.schedule.scattered import Scattered
from tests.compiler.schedule.cut import ADD, BF16, F32, added, empty, work_of

I64, I8, BOOL = torch.int64, torch.int8, torch.bool


def rows() -> Scattered:
    return work_of(ADD, *added(16, 8, 1000)).scattered


def test_each_dimension_of_the_output_has_a_place() -> None:
    planes = empty(64, 32, 256), empty(64, dtype=I64), empty(64, 64, 256)
    work = work_of(lambda x, i, v: x.index_add(1, i, v), *planes)
    first, named, last = work.scattered.targets
    assert (first.axis, last.axis) == (work.values.nest.axes[0], work.values.nest.axes[2])
    assert work.scattered.value.origin == work.scattered.loop.id
    assert isinstance(named.atom, Gathered) and named.atom.value.axes == {work.values.nest.axes[1]}


def test_a_dimension_of_extent_1_has_no_axis() -> None:
    found = work_of(ADD, *added(16, 1, 1000)).scattered
    assert found.targets[1] == 0 and len(found.values.nest.axes) == 1
    scalar = lambda x, i, v: torch.index_put(x, (i,), v, accumulate=True)
    point = work_of(scalar, empty(16), empty(dtype=I64), empty()).scattered
    assert point.values.nest.axes == () and point.targets[0].axis is None


def test_what_is_added_may_be_computed_on_the_way() -> None:
    found = work_of(lambda x, i, v: x.index_add(0, i, v.exp()), *added(16, 8, 1000)).scattered
    assert found.value.op == "exp" and found.names[found.value.number] == "exp"
    assert found.loop.kind == "scatter" and found.loop.base == "x"


@pytest.mark.parametrize(
    ("mode", "dtype", "atomic"),
    [
        (None, BOOL, True), ("set", BF16, True), ("set", I8, True),
        ("add", F32, True), ("add", BF16, True), ("add", I8, True), ("add", BOOL, False),
        ("max", I64, True), ("min", I8, True), ("max", F32, False), ("min", BF16, False),
        ("max", BOOL, False), ("mul", F32, False), ("mul", I64, False),
    ],
)  # fmt: skip
def test_what_a_gpu_can_do_point_by_point(mode: ScatterMode | None, dtype: torch.dtype, atomic: bool) -> None:
    """Not the maximum of floating-point numbers: of NaN no atomic operation makes what torch does."""
    found = rows()
    outputs = (replace(found.out, dtype=dtype),)
    assert replace(found, loop=replace(found.loop, mode=mode, outputs=outputs)).is_atomic is atomic


def test_places_are_narrow_if_all_that_is_read_and_written_is() -> None:
    found = rows()
    assert found.is_narrow
    long = replace(found.out, shape=(index(INT32_LIMIT), index(1)), strides=(index(1), index(1)))
    assert not replace(found, out=long).is_narrow
    assert replace(found, out=replace(long, shape=(index(INT32_LIMIT - 1), index(1)))).is_narrow
    assert not replace(found, buffers={**found.buffers, "v": long}).is_narrow
    assert not replace(found, buffers={**found.buffers, "i": long}).is_narrow, "the index itself is read"


def test_a_symbolic_size_is_as_wide_as_when_the_graph_was_captured() -> None:
    found = rows()
    sized = lambda hint: replace(found.out, shape=(index(Size("s0", hint)), index(8)))
    assert replace(found, out=sized(1000)).is_narrow
    assert not replace(found, out=sized(INT32_LIMIT // 8 + 1)).is_narrow
