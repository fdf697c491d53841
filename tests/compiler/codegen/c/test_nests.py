"""Which shape of nest a kernel is printed as, and what the function around it is made of."""

from __future__ import annotations

import pytest
import torch

from nbcompile.compiler.codegen.c.groups_to_c import NESTS, nest_of
from nbcompile.compiler.loop_ir.expr import Indirect, Load, op
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Buffer
from tests.compiler.codegen.c.by_hand import buffer, group, lines, loop, nests, printed, read

ROW, COL = Axis("i", index(6)), Axis("j", index(40))
X = buffer("x", 6, 40)


def points() -> Group:
    return group(
        loop(buffer("double", 6, 40), (ROW, COL), op("add", read(X, ROW, COL), read(X, ROW, COL))),
        axes=(ROW, COL),
    )


def row_sums(kept: Axis = ROW, reduced: Axis = COL) -> Group:
    total = loop(
        buffer("total", int(kept.extent.constant or 0)),
        (ROW, COL),
        read(X, ROW, COL),
        reduced=(reduced,),
        reduction="sum",
    )
    return group(total, axes=(kept, reduced), inner=(reduced,))


def put() -> Group:
    base = buffer("b", 6, 40)
    made = loop(
        buffer("put", 6, 40),
        (ROW, COL),
        read(X, ROW, COL),
        target=(index(ROW), index(COL)),
        base=base.name,
        mode="add",
    )
    return group(made, axes=(ROW, COL))


@pytest.mark.parametrize(
    ("kind", "made"),
    [("points", points()), ("rows", row_sums()), ("columns", row_sums(COL, ROW)), ("scatter", put())],
)
def test_each_shape_has_its_printer(kind: str, made: Group) -> None:
    chosen = nests(made, X, buffer("b", 6, 40))
    assert nest_of(chosen) == kind
    NESTS[kind](chosen)
    assert chosen.function(["why"]).text.startswith("// why\nvoid k0_test(")


def test_the_call_has_the_parameters_of_the_header() -> None:
    kernel = printed(points(), X)
    (call,) = kernel.calls
    assert [(item.name, item.kind, item.type) for item in call.parameters] == [
        ("x", "buffer", "const float"),
        ("double_", "buffer", "float"),
    ]
    assert "void k0_test(const float *x, float *double_) {" in kernel.text


def test_lines_are_linked_to_their_loops() -> None:
    kernel = printed(points(), X)
    text = kernel.text.splitlines()
    assert [(text[number - 1].strip(), origins) for number, origins in kernel.lines] == [
        ("const float x_ = x[i];", ("g0.double",)),
        ("double_[i] = x_ + x_;", ("g0.double",)),
    ]


def test_a_split_sum_is_added_up_by_threads_and_written_once() -> None:
    total = loop(buffer("total"), (ROW, COL), read(X, ROW, COL), reduced=(ROW, COL), reduction="sum")
    made = group(total, axes=(ROW, COL), split="total")
    found = lines(made, X)
    assert "double total = 0;" in found and "total_2[0] = (float)total;" in found
    assert any("reduction(+:total_part)" in line for line in found) and "total += total_part;" in found


def test_few_floats_are_added_up_in_narrow_vectors() -> None:
    cases = ((40, torch.float32, True), (300, torch.float32, False), (40, torch.uint8, False))
    for count, dtype, narrow in cases:
        axis = Axis("j", index(count))
        x = Buffer("x", (ROW.extent, axis.extent), (axis.extent, index(1)), dtype)
        value = (
            read(x, ROW, axis)
            if dtype.is_floating_point
            else op("cast", read(x, ROW, axis), dtype=torch.float32)
        )
        made = group(
            loop(buffer("total", 6), (ROW, axis), value, reduced=(axis,), reduction="sum"),
            axes=(ROW, axis), inner=(axis,),
        )  # fmt: skip
        assert any("simdlen(8)" in line for line in lines(made, x)) == narrow


def test_many_points_are_shared_out_among_threads() -> None:
    wide = Axis("j", index(100_000))
    memory = buffer("x", 6, 100_000)
    made = group(loop(buffer("same", 6, 100_000), (ROW, wide), read(memory, ROW, wide)), axes=(ROW, wide))
    assert "#pragma omp parallel for simd" in lines(made, memory)
    assert "#pragma omp parallel for simd" not in lines(points(), X)


def test_an_index_that_memory_holds_is_kept_inside_and_reported() -> None:
    places = buffer("p", 6, dtype=torch.int64)
    chosen = IndexExpr({(Indirect(read(places, ROW), index(6)),): 1})
    made = group(loop(buffer("taken", 6), (ROW,), Load("x", (chosen,), torch.float32)), axes=(ROW,))
    found = lines(made, buffer("x", 6), places)
    assert "bad |= (unsigned long)(p[i]) >= (unsigned long)(6);" in found
    assert "taken[i] = x[in_range(p[i], 6)];" in found
    assert found[-2:] == ["if (bad) *status = 1;", "}"]
