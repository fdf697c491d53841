"""Columns: neighbours are walked together, in tiles, where memory lies across what is reduced."""

from __future__ import annotations

from nbcompile.compiler.codegen.c.columns import is_columns
from nbcompile.compiler.loop_ir.expr import op
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis, index
from tests.compiler.codegen.c.by_hand import buffer, group, lines, loop, nests, read

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


def test_positions_of_extremes_are_found_by_rows() -> None:
    where = loop(buffer("where", 40), (ROW, COL), read(X, ROW, COL), reduced=(ROW,), reduction="argmax")
    assert not is_columns(nests(group(where, axes=(COL, ROW), inner=(ROW,)), X))


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
