"""Points and rows: SIMD along the last axis, one walk of a row for each result that the next one needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.compiler.loop_ir.expr import op
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis, index
from tests.compiler.codegen.c.by_hand import buffer, group, lines, loop, nests, read
from tests.nightly import few

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
        "#pragma GCC unroll 2",
        "for (long k = 0; k < 2; k++) {",
    ]


def test_short_rows_that_lie_far_apart_make_no_vector() -> None:
    """GCC takes minutes to gather two numbers of each row from 2,048 elements apart, and its code is slow."""
    rows, columns, pair = Axis("i", index(6)), Axis("j", index(1024)), Axis("k", index(2))
    x = buffer("x", 6, 1024, 2)
    turned = loop(
        buffer("turned", 6, 1024, 2), (rows, columns, pair), op("exp", read(x, rows, columns, pair))
    )
    found = lines(group(turned, axes=(columns, rows, pair)), x)
    assert [line for line in found if line.startswith(("for", "#"))] == [
        "for (long j = 0; j < 6; j++) {",
        "#pragma omp parallel for simd",
        "for (long i = 0; i < 1024; i++) {",
        "#pragma GCC unroll 2",
        "for (long k = 0; k < 2; k++) {",
    ]  # the rows that lie side by side
    wide = torch.randn(500, 300)
    compiled = nbcompile.compile(lambda x: x[:, :2] * 2 + 1)
    torch.testing.assert_close(compiled(wide), wide[:, :2] * 2 + 1)
    (kernel,) = compiled.compilation.kernels
    assert "unroll" not in kernel.sources["c"]


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)  # the suite has one, which cannot get in another's way
    yield
    torch.set_num_threads(before)


def _kept(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (x * w).sin()
    return y.softmax(0), y.std(), (y - y.mean()).abs().amax()


ONE_ROW: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "spread": lambda x, w: (x.std(), torch.var_mean(x.exp())),
    "norm": lambda x, w: F.layer_norm(x, x.shape, w),
    "kept": _kept,
    "gathered": lambda x, w: (x[(w * 1000).long()].var(), x[(w * 1000).long()].amax()),
    "by regions": lambda x, w: (F.pad(x, (3, 1)).std(), torch.cat([x, w]).var()),
    "two axes": lambda x, w: (x.view(-1, 50)[:, 1:].t().std(), x.view(-1, 50)[:, :-1].var()),
    "overwritten": lambda x, w: (x.mul_(2).add_(w).std(), x.softmax(0)),
}


@few(2)
@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("name", ONE_ROW)
def test_threads_share_the_walk_of_one_row(name: str) -> None:
    run = nbcompile.compile(ONE_ROW[name], options={"cache": False})
    for seed in range(6):
        torch.manual_seed(seed)
        x, w = torch.randn(200_000), torch.rand(200_000)
        if seed == 5:
            x[777] = torch.nan
        found, wanted = run(x.clone(), w), ONE_ROW[name](x.clone(), w)
        torch.testing.assert_close(found, wanted, equal_nan=True, rtol=1e-4, atol=1e-5)
    printed = [kernel.sources["c"] for kernel in run.compilation.kernels]
    assert any("#pragma omp parallel for" in text and "reduction(+" in text for text in printed)


def test_a_sum_without_vectors_is_as_exact_as_one_with_them() -> None:
    """Of equal numbers, whose errors all go one way, and what is normalised by them grows 300 times."""
    x = torch.full((3, 360), 1.3154461)

    def function(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        return torch.fmod(x, by).mean(-1) / x[:, 0]

    run = nbcompile.compile(function, options={"cache": False})
    torch.testing.assert_close(run(x, x + 2), torch.ones(3), rtol=0, atol=2e-7)
    assert "double sum = 0;" in run.compilation.kernels[0].sources["c"]
