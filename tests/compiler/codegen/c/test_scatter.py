"""A scatter: its base is copied, and points that may meet go one after the other."""

from __future__ import annotations

import pytest
import torch

import nbcompile
from nbcompile.compiler.loop_ir.expr import Indirect
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Buffer
from tests.compiler.codegen.c.by_hand import buffer, group, lines, loop, read

ROW, COL = Axis("i", index(6)), Axis("j", index(8))
X, PLACES = buffer("x", 6, 8), buffer("p", 6, dtype=torch.int64)


def scatter(base: Buffer, mode: str | None, dtype: torch.dtype = torch.float32) -> Group:
    """Row ``i`` of x goes to row ``p[i]``."""
    row = IndexExpr({(Indirect(read(PLACES, ROW), index(3)),): 1})
    out = buffer("table", 3, 8, dtype=dtype)
    return group(
        loop(out, (ROW, COL), read(X, ROW, COL), target=(row, index(COL)), base=base.name, mode=mode),
        axes=(ROW, COL),
    )


def test_the_base_is_copied_before_anything_is_put_in() -> None:
    base = buffer("b", 3, 8)
    found = lines(scatter(base, "add"), X, PLACES, base)
    copied = found.index("table[c0*8 + c1] = b[c0*8 + c1];")
    assert copied < next(n for n, line in enumerate(found) if line.startswith("const float old"))


def test_lanes_take_the_columns_that_no_two_points_share() -> None:
    base = buffer("b", 3, 8)
    found = lines(scatter(base, "add"), X, PLACES, base)
    (simd,) = (n for n, line in enumerate(found) if line.startswith("#pragma omp simd"))
    assert found[simd + 1].startswith("for (long j = first; j < last; j++)")
    assert found[simd - 1] == "const long p_ = p[i];", "what is one for all columns is read once"
    assert found[simd - 2].startswith("for (long i = 0;"), "rows that may meet are walked in order"


def test_where_rows_lie_along_memory_each_is_filled_by_itself() -> None:
    """``zeros(3, 8).scatter_add(1, p, x)``: points of a row may meet, rows do not."""
    x, places = buffer("x", 3, 8), buffer("p", 3, 8, dtype=torch.int64)
    base, out = buffer("b", 3, 8), buffer("table", 3, 8)
    rows, columns = Axis("i", index(3)), Axis("j", index(8))
    put = IndexExpr({(Indirect(read(places, rows, columns), index(8)),): 1})
    added = loop(
        out, (rows, columns), read(x, rows, columns), target=(index(rows), put), base=base.name, mode="add"
    )
    found = lines(group(added, axes=(rows, columns)), x, places, base)
    first = next(n for n, line in enumerate(found) if line.startswith("for (long i = first;"))
    assert found[first + 1].startswith("for (long j = 0;")
    assert not any(line.startswith("#pragma omp simd") for line in found)


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("add", "table[in_range(p_, 3)*8 + j] = (old + x[i*8 + j]);"),
        ("max", "table[in_range(p_, 3)*8 + j] = maximum_f32(old, x[i*8 + j]);"),
        (None, "table[in_range(p_, 3)*8 + j] = x[i*8 + j];"),
    ],
)
def test_values_are_combined_as_the_mode_says(mode: str | None, text: str) -> None:
    base = buffer("b", 3, 8)
    assert text in lines(scatter(base, mode), X, PLACES, base)


def test_halves_are_combined_in_float() -> None:
    base = buffer("b", 3, 8, dtype=torch.float16)
    found = lines(scatter(base, "add", torch.float16), X, PLACES, base)
    assert "const float old = f16_to_float(table[in_range(p_, 3)*8 + j]);" in found
    assert "table[c0*8 + c1] = b[c0*8 + c1];" in found, "copied as it is"
    assert "table[in_range(p_, 3)*8 + j] = float_to_f16((old + x[i*8 + j]));" in found


def test_an_index_of_an_index_that_is_read_once_is_checked_too() -> None:
    run = nbcompile.compile(
        lambda x, at, of, v: x.index_add(0, at[of], v), dynamic=False, options={"cache": False}
    )
    x, at, v = torch.zeros(9, 4), torch.arange(6), torch.ones(2, 4)
    for of in ([0, 5], [3, 3]):
        given = torch.tensor(of)
        torch.testing.assert_close(run(x, at, given, v), x.index_add(0, at[given], v))
    with pytest.raises(IndexError):
        run(x, at, torch.tensor([0, 77]), v)
    with pytest.raises(IndexError):
        run(x, at + 5, torch.tensor([0, 5]), v)
