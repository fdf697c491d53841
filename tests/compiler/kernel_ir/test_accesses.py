"""How a kernel reaches memory: bytes and strides of each access, and the order that suits most of them."""

from __future__ import annotations

from nbcompile.compiler.kernel_ir.accesses import accesses, memory_order, streamed_bytes
from nbcompile.compiler.kernel_ir.group_to_values import kernel_values
from nbcompile.compiler.loop_ir.expr import op
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis, index
from tests.compiler.codegen.c.by_hand import buffer, buffers, group, loop, read
from tests.compiler.schedule.cut import empty, work_of

ROW, COL = Axis("i", index(6)), Axis("j", index(40))
X, BIAS, TURNED = buffer("x", 6, 40), buffer("b", 40), buffer("t", 40, 6)


def added() -> Group:
    body = op("add", op("add", read(X, ROW, COL), read(BIAS, COL)), read(TURNED, COL, ROW))
    return group(loop(buffer("out", 6, 40), (ROW, COL), body), axes=(ROW, COL))


def test_the_heaviest_access_comes_first() -> None:
    memory = buffers(added(), X, BIAS, TURNED)
    found = accesses(kernel_values(added(), memory), memory)
    assert [(item.buffer, item.bytes) for item in found] == [
        ("out", 960), ("x", 960), ("t", 960), ("b", 160),
    ]  # fmt: skip
    assert found[-1].strides == {COL: 1} and found[2].strides == {ROW: 1, COL: 6}


def test_the_order_is_that_of_most_bytes() -> None:
    memory = buffers(added(), X, BIAS, TURNED)
    assert memory_order(kernel_values(added(), memory), memory) == (ROW, COL)
    turned = group(loop(buffer("out", 40, 6), (ROW, COL), read(TURNED, COL, ROW)), axes=(ROW, COL))
    memory = buffers(turned, TURNED)
    turned_values = kernel_values(turned, memory)
    assert [axis.text for axis in memory_order(turned_values, memory)] == ["i", "j"], "the store counts too"


def test_what_is_the_same_for_all_rows_is_not_streamed() -> None:
    body = op("mul", read(X, ROW, COL), read(BIAS, COL))
    total = loop(buffer("total", 6), (ROW, COL), body, reduced=(COL,), reduction="sum")
    made = group(total, axes=(ROW, COL), inner=(COL,))
    memory = buffers(made, X, BIAS)
    assert streamed_bytes(kernel_values(made, memory), memory) == 4


def test_rows_lie_side_by_side_where_some_tensor_has_them_so() -> None:
    """Two batches of 24 heads of 64 numbers for 256 words each: one tensor has words beside each other."""

    def order(fn) -> list[int]:
        work = work_of(fn, empty(2, 256, 24, 64), empty(2, 24, 64, 256))
        return [axis.extent.constant for axis in work.values.nest.axes]

    turned = lambda x, y: (x * y.permute(0, 3, 1, 2)).sum(-1)
    assert order(turned)[-2:] == [256, 64]
    assert order(lambda x, y: (x * y.view(2, 256, 24, 64)).sum(-1))[-1] == 64  # one order: none is moved
    short = work_of(turned, empty(2, 256, 24, 8), empty(2, 24, 8, 256))
    assert short.values.nest.axes[-2].extent.constant != 256  # pieces too short to be read in any order
