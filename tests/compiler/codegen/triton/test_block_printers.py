"""Walks over blocks: the slab of a program, the loop over it, and what the cache is told of each load."""

from __future__ import annotations

import pytest

from nbcompile.compiler.codegen.triton.block_printers import (
    PointsPrinter,
    RowsPrinter,
    chunk_of,
    declare_slab,
    end_of,
    staged,
)
from nbcompile.compiler.kernel_ir.values import Value, walk_values
from nbcompile.compiler.loop_ir.index import Axis
from nbcompile.compiler.stages import Config
from tests.compiler.codegen.c.by_hand import buffer, group, loop, read
from tests.compiler.codegen.triton.tiles import dims_of, tiles

ROW, COL = Axis("i", 6), Axis("j", 40)
X, W, V = buffer("x", 6, 40), buffer("w", 6), buffer("v", 40)
FIRST, SECOND = Config({"RBLOCK": 64}), Config({"RBLOCK": 16})


def rows_printer() -> RowsPrinter:
    """Of rows ``i`` that are walked along ``j``."""
    made = loop(buffer("out", 6, 40), (ROW, COL), read(X, ROW, COL) * read(W, ROW) + read(V, COL))
    p = tiles(group(made, axes=(ROW, COL)), X, W, V, kind=RowsPrinter)
    assert isinstance(p, RowsPrinter)
    p.r = p.dims[1]
    return p


def load(p: RowsPrinter, name: str) -> Value:
    return next(value for value in walk_values(p.values.roots) if value.buffer == name)


def test_an_end_that_triton_would_take_for_uint32_is_int64() -> None:
    for plain in ("40", str(2**31 - 1), str(2**32), "n", "tl.minimum(end, 8)"):
        assert end_of(plain) == plain
    for far in (2**31, 2**31 + 77, 2**32 - 1):
        assert end_of(str(far)) == f"tl.cast({far}, tl.int64)"


def test_a_loop_loads_ahead_if_its_configs_say_how_far() -> None:
    assert staged([FIRST], "0, 40, RBLOCK") == "range(0, 40, RBLOCK)"
    ahead = Config({"RBLOCK": 64, "STAGES": 3})
    assert staged([ahead, FIRST], "first, end") == "tl.range(first, end, num_stages=STAGES)"


@pytest.mark.parametrize(
    ("length", "slabs", "chunk"),
    [
        ("4096", 8, "512"),
        ("4097", 8, "576"),
        ("1", 8, "64"),
        ("0", 8, "0"),
        ("s0", 8, "tl.cdiv(s0, 512) * 64"),
    ],
)
def test_all_slabs_but_the_last_are_the_same_whole_blocks(length: str, slabs: int, chunk: str) -> None:
    """Of the first config's block, whichever config runs."""
    assert chunk_of(length, [FIRST, SECOND], slabs) == chunk
    if length.isdigit():
        assert int(chunk) % 64 == 0 and int(chunk) * slabs >= int(length)


def test_a_slab_ends_where_the_row_does() -> None:
    p = rows_printer()
    assert declare_slab(p, "tl.program_id(1)", "576", "4097") == ("first", "end")
    assert [line.strip() for line in p.out.text] == [
        "slab = tl.program_id(1)", "chunk = 576", "first = slab * chunk",
        "end = tl.minimum(first + chunk, 4097)",
    ]  # fmt: skip
    assert p.fresh("first") == "first_2" and p.fresh("chunk") == "chunk_"


def test_each_printer_knows_where_its_present_block_starts() -> None:
    p = rows_printer()
    assert [p.lane_start(dim) for dim in p.dims] == ["", ""]
    p.block_start = "start"
    assert [p.lane_start(dim) for dim in p.dims] == ["", "start"]
    made = group(loop(buffer("out", 6), (ROW,), read(W, ROW)), axes=(ROW,))
    (dim,) = dims_of(ROW)
    assert tiles(made, W, dims=[dim], kind=PointsPrinter).lane_start(dim) == "start"


@pytest.mark.parametrize(
    ("reread", "last", "policy"),
    [(True, False, ', eviction_policy="evict_last"'), (True, True, ', eviction_policy="evict_last"'),
     (False, True, ', eviction_policy="evict_first"'), (False, False, "")],
)  # fmt: skip
def test_a_row_stays_in_the_cache_while_it_is_walked_again(reread: bool, last: bool, policy: str) -> None:
    p = rows_printer()
    p.block_start, p.reread, p.last = "start", reread, last
    assert p.policy(load(p, "x")) == policy
    assert p.load(load(p, "x"), {}).bare == f"tl.load(x_ptr + i*40 + j{policy})"


def test_nothing_is_told_of_what_all_rows_or_all_columns_share() -> None:
    p = rows_printer()
    p.block_start, p.reread = "start", True
    assert p.policy(load(p, "w")) == p.policy(load(p, "v")) == ""
    p.block_start = ""  # the row is held whole
    assert p.policy(load(p, "x")) == ""
