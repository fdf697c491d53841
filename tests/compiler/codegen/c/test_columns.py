"""Columns: neighbours are walked together, in tiles, where memory lies across what is reduced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.compiler.codegen.c.columns import is_columns
from nbcompile.compiler.loop_ir.expr import op
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis, index
from tests.compiler.codegen.c.by_hand import buffer, group, lines, loop, nests, read
from tests.nightly import few

ROW, COL = Axis("i", index(50)), Axis("j", index(40))
X = buffer("x", 50, 40)


def centred() -> Group:
    """x less the largest of its column."""
    top = buffer("top", 40)
    return group(
        loop(top, (ROW, COL), read(X, ROW, COL), reduced=(ROW,), reduction="max"),
        loop(buffer("rest", 50, 40), (ROW, COL), op("sub", read(X, ROW, COL), read(top, COL))),
        axes=(COL, ROW), inner=(ROW,),
    )  # fmt: skip


def test_memory_decides_between_rows_and_columns() -> None:
    assert is_columns(nests(centred(), X))
    along = loop(buffer("top", 50), (ROW, COL), read(X, ROW, COL), reduced=(COL,), reduction="max")
    assert not is_columns(nests(group(along, axes=(ROW, COL), inner=(COL,)), X))


@few(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(3, 21, 700), (5, 2, 9, 70), (300, 513)])
def test_positions_of_extremes_go_side_by_side(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """The first of equals, NaN above all and the first of them, what is nowhere above the least at 0."""
    axis = len(shape) - 2 if len(shape) < 4 else 1

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*x.max(axis), x.argmin(axis), *(x.min(axis)), x.argmax(axis, keepdim=True) + 1)

    x = torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    if dtype.is_floating_point:
        x.view(-1)[::7], x.view(-1)[::5] = torch.nan, -torch.inf
        x[..., 3] = -torch.inf
    if dtype == torch.bool:  # eager has no argmin of it
        function = lambda x: x.max(axis)
    run = nbcompile.compile(function, options={"cache": False})
    for found, expected in zip(run(x), function(x), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert "_at[lane]" in run.compilation.kernels[0].sources["c"]


def test_each_column_of_a_tile_has_an_accumulator_of_its_own() -> None:
    found = lines(centred(), X)
    assert "float top[16];" in found
    assert "const long width = 40 - first < 16 ? 40 - first : 16;" in found
    assert "const long i = first + lane;" in found
    assert not any("reduction(" in line for line in found), "no lane shares what it adds to"


def test_the_result_of_a_column_is_read_by_the_next_walk() -> None:
    found = lines(centred(), X)
    assert "rest[j*40 + i] = x[j*40 + i] - top[lane];" in found


def test_a_sum_of_a_long_column_is_made_in_double_and_given_its_type_once() -> None:
    long = Axis("i", index(4096))
    memory = buffer("x", 4096, 40)
    total = loop(buffer("total", 40), (long, COL), read(memory, long, COL), reduced=(long,), reduction="sum")
    found = lines(group(total, axes=(COL, long), inner=(long,)), memory)
    assert "total[lane] += x[j*40 + i];" in found and "total_col[lane] = (float)(total[lane]);" in found


def _with_a_column_sum(x: torch.Tensor) -> Any:
    y = x.softmax(-1)
    return y, y.sum(0), (x * 2).amax(-1).sum()


SHORT_ROWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax of a product": lambda x: (x * 2).log_softmax(-1) + 1,
    "largest and least": lambda x: (x.amax(-1), x.amin(-1, keepdim=True) - x),
    "sums": lambda x: (x.sum(-1), x.prod(-1), (x > 0).any(-1), (x > 0).all(-1)),
    "spread": lambda x: F.layer_norm(x, x.shape[-1:]),
    "beside columns": _with_a_column_sum,
    "masked": lambda x: torch.where(x > 0, x, -torch.inf).softmax(-1),
    "two axes": lambda x: x.view(-1, 2, x.shape[-1]).exp().sum((1, 2)),
    "padded": lambda x: F.pad(x, (1, 0)).exp().sum(-1),
    "places": lambda x: (x.argmax(-1), x.exp().sum(-1)),
}


@few(2)
@pytest.mark.parametrize("extent", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("name", SHORT_ROWS)
def test_rows_of_few_elements_go_side_by_side(name: str, extent: int) -> None:
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.randn(600, extent).to(dtype)
        x[::7, 0], x[3::11, -1] = torch.nan, torch.inf
        run = nbcompile.compile(SHORT_ROWS[name], options={"cache": False, "verify": True})
        got, wanted = run(x), SHORT_ROWS[name](x)
        more = {"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(got, wanted, equal_nan=True, **more)
        assert run.ran_compiled, run.eager_reason


@few(2)
@pytest.mark.parametrize(
    ("name", "rows", "extent", "side_by_side"),
    [
        ("softmax", 600, 5, True), ("softmax", 600, 8, False), ("softmax", 60, 5, False),
        ("spread", 600, 5, False), ("spread", 600, 3, True),
    ],
)  # fmt: skip
def test_which_rows_go_side_by_side(name: str, rows: int, extent: int, side_by_side: bool) -> None:
    run = nbcompile.compile(SHORT_ROWS[name], dynamic=False, options={"cache": False})
    run(torch.ones(rows, extent))
    (kernel,) = run.compilation.kernels
    assert ("lane" in kernel.sources["c"]) == side_by_side


DISTANCES = {
    "squares": lambda x, m: (x[:, None] - m).square().sum(-1),
    "scaled, of a table of its own": lambda x, m: ((x[:, None] - m).abs() * m.exp()).sum(-1).softmax(-1),
    "nearest": lambda x, m: (x[:, None] - m).square().sum(-1).amin(1),
    "in batches": lambda x, m: (x.view(2, -1, 1, x.shape[1]) - m).abs().amax(-1),
    "overwritten": lambda x, m: m.mul_(2) + (x[:, None] - m).square().sum(-1).sum(0)[:, None],
}


@few(10)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("centres", [5, 16, 600, 700])
@pytest.mark.parametrize("name", DISTANCES)
def test_distances_to_a_few_centres(name: str, centres: int, dtype: torch.dtype) -> None:
    """The centres are copied in the order in which they are read, once for all points."""
    function = DISTANCES[name]
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    generator = torch.Generator().manual_seed(0)
    x, m = (torch.randn(count, 6, generator=generator).to(dtype) for count in (300, centres))
    x[3, 2], m[1, 1] = torch.inf, torch.nan
    found, expected = run(x, m.clone()), function(x, m.clone())
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert run.ran_compiled and not run.compilation.library_calls, run.eager_reason
    if name == "squares":
        text = run.compilation.kernels[0].sources["c"]
        assert ("_turned[" in text) == (8 <= centres <= 682)


def test_what_is_one_number_for_all_columns_is_no_array() -> None:
    """It is computed with, and hoisted out of the columns, where there is no lane."""

    def function(w: torch.Tensor, s: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, ...]:
        m = (w * (u / s.sqrt().clamp(min=1e-12))[:, None]).sum(0)
        return m, (m * m).sum()

    run = nbcompile.compile(function, options={"cache": False})
    inputs = torch.randn(8, 70), torch.rand(()), torch.randn(8)
    for found, expected in zip(run(*inputs), function(*inputs), strict=True):
        torch.testing.assert_close(found, expected)
    (kernel,) = run.compilation.kernels
    assert "[lane] = " in kernel.sources["c"] and "clamp[lane]" not in kernel.sources["c"]
