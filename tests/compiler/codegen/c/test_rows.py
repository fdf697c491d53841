"""Points and rows: SIMD along the last axis, one walk of a row for each result that the next one needs."""

from __future__ import annotations

from nbcompile.compiler.loop_ir.expr import op
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis, index
from tests.compiler.codegen.c.by_hand import buffer, group, lines, loop, nests, read

ROW, COL = Axis("i", index(6)), Axis("j", index(40))
X = buffer("x", 6, 40)


def softmax() -> Group:
    """The first half of it: exp(x - max), and its sum."""
    top, total = buffer("top", 6), buffer("total", 6)
    power = op("exp", op("sub", read(X, ROW, COL), read(top, ROW)))
    return group(
        loop(top, (ROW, COL), read(X, ROW, COL), reduced=(COL,), reduction="max"),
        loop(total, (ROW, COL), power, reduced=(COL,), reduction="sum"),
        loop(buffer("part", 6, 40), (ROW, COL), op("div", power, read(total, ROW))),
        axes=(ROW, COL), inner=(COL,),
    )  # fmt: skip


def test_a_row_is_walked_once_for_each_result_that_is_needed_first() -> None:
    walks = [line for line in lines(softmax(), X) if line.startswith("for (long j")]
    assert len(walks) == 3


def test_what_is_costly_is_kept_for_the_next_walk() -> None:
    found = lines(softmax(), X)
    assert "float t_kept[40]; // one row, kept for the next pass" in found
    assert "t_kept[j] = t_2;" in found and "part[i*40 + j] = t_kept[j] / total;" in found


def test_a_value_has_the_level_of_the_results_that_it_needs() -> None:
    made = nests(softmax(), X)
    assert made.levels == {"top": 0, "total": 1} and made.top_level == 2
    stores, reductions, split = made.pass_work(1)
    assert ([item.output for item in reductions], stores, split) == (["total"], [], [])


def test_a_mean_is_divided_once_a_row() -> None:
    mean = loop(buffer("mean", 6), (ROW, COL), read(X, ROW, COL), reduced=(COL,), reduction="welford")
    spread = buffer("spread", 6)
    both = loop(mean.outputs[0], (ROW, COL), read(X, ROW, COL), reduced=(COL,), reduction="welford")
    made = group(type(both)(both.id, (mean.outputs[0], spread), both.axes, both.body, (COL,), "welford"),
                 axes=(ROW, COL), inner=(COL,), stored="mean spread")  # fmt: skip
    found = lines(made, X)
    assert "const float mean_row = (float)(mean / (40));" in found
    assert "mean_2[i] = mean_row;" in found


def test_the_axis_that_memory_lies_along_is_the_innermost() -> None:
    turned = group(loop(buffer("turned", 40, 6), (COL, ROW), read(X, ROW, COL)), axes=(COL, ROW))
    inner = [line for line in lines(turned, X) if line.startswith("for")]
    assert inner == [
        "for (long i = 0; i < 40; i++) {",
        "for (long j = 0; j < 6; j++) {",
    ]  # stores count twice


def test_a_short_last_axis_is_walked_within_the_vector_of_the_one_before() -> None:
    rows, columns, pair = Axis("i", index(6)), Axis("j", index(40)), Axis("k", index(2))
    x, w = buffer("x", 6, 40, 2), buffer("w", 40)
    axes = (rows, columns, pair)
    weighed = op("mul", read(x, *axes), read(w, columns))
    found = lines(group(loop(buffer("weighed", 6, 40, 2), axes, weighed), axes=axes), x, w)
    assert [line for line in found if line.startswith(("for", "#"))] == [
        "for (long i = 0; i < 6; i++) {",
        "#pragma omp simd",
        "for (long j = 0; j < 40; j++) {",
        "for (long k = 0; k < 2; k++) {",
    ]
