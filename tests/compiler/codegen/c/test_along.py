"""What depends on the last axis alone is made once for all rows, where that is dear."""

from __future__ import annotations

import pytest
import torch

import nbcompile
from nbcompile.compiler.loop_ir.expr import Expr, op
from nbcompile.compiler.loop_ir.index import Axis, index
from tests.compiler.codegen.c.by_hand import buffer, group, lines, loop, read


def scaled(rows: int, columns: int, scale: str) -> list[str]:
    row, column = Axis("i", index(rows)), Axis("j", index(columns))
    x, w = buffer("x", rows, columns), buffer("w", columns)
    by: Expr = read(w, column)
    by = op(scale, by, by) if scale == "add" else op(scale, by)
    made = loop(buffer("made", rows, columns), (row, column), op("mul", read(x, row, column), by))
    return lines(group(made, axes=(row, column)), x, w)


@pytest.mark.parametrize("columns", [2, 40])
def test_a_root_is_taken_once_a_column(columns: int) -> None:
    found = scaled(30, columns, "sqrt")
    (array,) = [line for line in found if line.endswith(f"[{columns}];")]
    name = array.removeprefix("float ").partition("[")[0]
    filled = found.index(f"{name}[j] = __builtin_sqrtf(w[j]);")
    assert filled < found.index("for (long i = 0; i < 30; i++) {")
    assert sum("sqrt" in line for line in found) == 1


@pytest.mark.parametrize(("rows", "columns", "scale"), [(30, 40, "add"), (4, 40, "sqrt"), (30, 5000, "sqrt")])
def test_not_what_is_cheap_nor_for_few_rows_nor_for_long_ones(rows: int, columns: int, scale: str) -> None:
    assert not [line for line in scaled(rows, columns, scale) if line.startswith("float ") and "[" in line]


def test_it_is_right_in_parallel_and_where_a_guard_cuts_the_row() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.cat([x * w.exp(), x / (w.abs() + 1).sqrt()], 1).tanh()

    for rows in (9, 3000):
        x, w = torch.linspace(-1, 1, rows * 37).reshape(rows, 37), torch.linspace(-2, 2, 37)
        run = nbcompile.compile(function, options={"cache": False})
        torch.testing.assert_close(run(x, w), function(x, w))
