"""What a printer of tiles is told of a dimension, and what it makes of that."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nbcompile.compiler.codegen.triton.dims import Chosen, Condition, Dim
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, Size, index
from tests.compiler.codegen.c.by_hand import buffer, group, loop, read
from tests.compiler.codegen.triton.tiles import dims_of, tiles

ROW, COL = Axis("i", 6), Axis("j", 40)
X, W = buffer("x", 6, 40), buffer("w", 6)


def printer(*dims: Dim) -> TilePrinter:
    made = loop(buffer("out", 6, 40), (ROW, COL), read(X, ROW, COL) * read(W, ROW))
    return tiles(group(made, axes=(ROW, COL)), X, W, dims=dims)


def place(p: TilePrinter, where: IndexExpr, *under: Condition, buffer: str = "x") -> tuple[str, str]:
    return p.element(buffer, where, {}, under, write=False)


@pytest.mark.parametrize(
    ("axes", "extent"),
    [((ROW, COL), index(240)), ((), ONE), ((ROW, Axis("j", 0)), index(0)),
     ((ROW, Axis("j", Size("s0", 9))), index(Size("s0", 9)) * 6)],
    ids=["two", "none", "an empty one", "one whose size is not known"],
)  # fmt: skip
def test_axes_are_counted_as_one(axes: tuple[Axis, ...], extent: IndexExpr) -> None:
    assert Dim(axes, "point", "XBLOCK", 0).extent == extent


def test_a_dimension_without_a_place_is_one_number_for_the_program() -> None:
    row, (_, within) = Dim((ROW,), "i", "XBLOCK", None), dims_of(ROW, COL)
    p = printer(row, replace(within, place=0))
    assert p.dims_of([ROW]) == frozenset() and p.dims_of([ROW, COL]) == {0}
    assert p.shape_text() == "[XBLOCK]" and p.across("t", None) == "t" == p.across("t", 0)
    square = printer(*dims_of(ROW, COL))
    assert (square.across("t", 0), square.across("t", 1)) == ("t[:, None]", "t[None, :]")


def test_a_dimension_of_which_all_lanes_exist_has_no_mask() -> None:
    where = X.offset((index(ROW), index(COL)))
    assert place(printer(*dims_of(ROW, COL)), where) == ("x_ptr + i*40 + j", "")
    assert place(printer(*dims_of(ROW, COL, masks="j")), where)[1] == ", mask=j_in"


def test_lanes_that_are_cut_off_by_the_extent_may_read_whole_groups() -> None:
    """37 of 40 columns: those up to 40 are the buffer's own, and nobody stores what is read there."""
    along = Axis("j", 37)
    wide = buffer("x", 6, 40)
    dims = dims_of(ROW, along, masks="j")
    made = loop(buffer("out", 6, 37), (ROW, along), read(wide, ROW, along) * read(W, ROW))
    p = tiles(group(made, axes=(ROW, along)), wide, W, dims=dims)
    where = wide.offset((index(ROW), index(along)))
    assert place(p, where)[1] == ", mask=j_in"
    dims[1].cut = True
    assert place(p, where)[1] == ", mask=(j < 40)"
    assert p.element("x", where, {}, (), write=True)[1] == ", mask=j_in"


def test_a_load_under_a_condition_has_its_shape_too() -> None:
    """What varies along rows alone is read once a point where the condition varies along columns."""
    p = printer(*dims_of(ROW, COL, masks="i j"))
    assert place(p, index(ROW), buffer="w") == ("w_ptr + i", ", mask=i_in")
    assert place(p, index(ROW), Condition("(j >= 2)", frozenset({1})), buffer="w") == (
        "w_ptr + i + tl.zeros([YBLOCK, XBLOCK], tl.int32)", ", mask=i_in & j_in & (j >= 2)",
    )  # fmt: skip
    assert place(p, index(ROW), Condition("(n > 2)", frozenset()), buffer="w") == (
        "w_ptr + i", ", mask=i_in & (n > 2)",
    )  # fmt: skip


def test_what_is_chosen_varies_along_what_its_conditions_do() -> None:
    p = printer(*dims_of(ROW, COL, masks="i j"))
    (item,) = p.values.stores
    load = next(arg for arg in item.value.args if arg.buffer == "w")
    one = Chosen(load, index(ROW), "tl.where((j >= 2), 0, 1)", frozenset({1}))
    assert p.load(load, {}, (), one).bare == (
        "tl.load(w_ptr + i + tl.where((j >= 2), 0, 1), mask=i_in & j_in)"
    )
    assert p.load(load, {}).bare == "tl.load(w_ptr + i, mask=i_in)" and load.dtype == torch.float32


A, B, C = Axis("i", 2), Axis("j", 7), Axis("k", 4)


def test_an_index_of_neighbouring_axes_is_one_number() -> None:
    """Of ``i*28 + j*4 + k`` Triton would not see that neighbours in the tile are neighbours in memory."""
    whole, rows = buffer("x", 2, 7, 4), buffer("w", 2, 9, 7, 4)
    made = loop(buffer("out", 2, 7, 4), (A, B, C), read(whole, A, B, C))
    dim = Dim((A, B, C), "point", "XBLOCK", 0)
    p = tiles(group(made, axes=(A, B, C)), whole, rows, dims=(dim,))
    p.letters = {axis.text: axis.name for axis in (A, B, C)}
    p.declare_axes(dim)
    a, b, c = index(A), index(B), index(C)
    assert p.place(a * 28 + b * 4 + c).bare == "point"
    assert p.place((a * 28 + b * 4 + c) * 3 + 5).bare == "point*3 + 5"
    assert p.place(a * 252 + b * 4 + c + 56).bare == "i*252 + (point % 28) + 56"
    assert p.place(a * 7 + b + c * 14).bare == "(point // 4) + k*14"
    assert p.place(a + b * 4 + c, wide=True).bare == "i.to(tl.int64) + (point % 28).to(tl.int64)"
    p.out.add(f"tl.store(out_ptr + {p.place(a * 252 + b * 4 + c).bare}, x)")
    assert p.unread() == {"j = (point % 28) // 4", "k = point % 4"}


def test_axes_that_have_other_names_by_now_are_written_out() -> None:
    dim = Dim((ROW, COL), "point", "XBLOCK", 0)
    p = printer(dim)
    p.declare_axes(dim)
    p.letters = p.letters | {ROW.text: "other_row"}
    assert p.place(index(ROW) * 40 + index(COL)).bare == "other_row*40 + j"
