"""Statements of a Triton kernel: names, places, and what masks a load or a store."""

from __future__ import annotations

import pytest
import torch

from nbcompile.compiler.codegen.triton.dims import Dim
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.loop_ir.expr import Constant, Expr, Guarded, IndexValue, Indirect, Load, op
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, Size, floordiv, index, mod
from nbcompile.compiler.loop_ir.nodes import Buffer
from tests.compiler.codegen.c.by_hand import buffer, group, loop, read
from tests.compiler.codegen.triton.tiles import stored, tiles

ROW, COL = Axis("i", 6), Axis("j", 40)
F32, I64 = torch.float32, torch.int64
X, W, P = buffer("x", 6, 40), buffer("w", 6), buffer("p", 6, dtype=I64)
BY_ROW = read(W, ROW)
ZERO = Constant(0.0, F32)
STORE = "tl.store(out_ptr + i, {}, mask=i_in)"


def printer(
    body: Expr, *inputs: Buffer, over: tuple[Axis, ...] = (ROW, COL), dtype: torch.dtype = F32,
    masks: str = "i j",
) -> TilePrinter:  # fmt: skip
    """Of a kernel that stores ``body``; a factor of each row keeps its two axes apart."""
    out = buffer("out", *(axis.extent for axis in over), dtype=dtype)
    return tiles(group(loop(out, over, body), axes=over), *inputs, masks=masks)


def lines(body: Expr, *inputs: Buffer, over: tuple[Axis, ...] = (ROW, COL), masks: str = "i j") -> list[str]:
    return stored(printer(body, *inputs, over=over, masks=masks))


def shifted(by: int) -> Load:
    return read(X, ROW, index(COL) + by)


def test_names_hide_nothing_and_no_two_are_the_same() -> None:
    p = printer(read(X, ROW, COL) * BY_ROW, X, W)
    hints = ("lambda", "tl", "philox", "start", "j", "XBLOCK", "3d", "a.b", "...", "x", "x")
    assert [p.fresh(hint) for hint in hints] == [
        "lambda_", "tl_", "philox_", "start_", "j_2", "XBLOCK_2", "t3d", "a_b", "t", "x", "x_2",
    ]  # fmt: skip


def test_a_place_is_an_operand_that_knows_its_parentheses() -> None:
    p, n = printer(read(X, ROW, COL) * BY_ROW, X, W), Size("s0", 7)
    places = [index(3), index(-3), index(COL), index(COL) * 8 - 4, -index(ROW), index(ROW) * n]
    assert [str(p.place(place)) for place in places] == [
        "3", "(-3)", "j", "(j*8 - 4)", "(-i)", "(i*s0)",
    ]  # fmt: skip
    assert p.place(floordiv(index(COL) + 1, index(8))).bare == "((j + 1) // 8)"
    assert p.place(mod(index(COL) * n, index(9))).bare == "((j*s0) % 9)"
    assert [argument.name for _, argument in p.arguments(())] == ["s0"]


def test_axes_may_be_counted_together_or_from_elsewhere() -> None:
    p, both = printer(read(X, ROW, COL) * BY_ROW, X, W), Axis("k", 240)
    p.letters["k"], p.joined = "k", (ROW, COL, both)
    assert (
        p.place(index(ROW) * 40 + COL).bare == "k" and p.place(index(ROW) * 80 + index(COL) * 2).bare == "k*2"
    )
    assert p.place(index(ROW) * 41 + COL).bare == "i*41 + j" and p.place(index(ROW)).bare == "i"
    p.joined, p.moved = None, {COL: index(COL) + 8}
    assert p.place(index(ROW) * 40 + COL).bare == "i*40 + j + 8"


def test_axes_of_one_dimension_are_read_off_its_variable() -> None:
    p = printer(read(X, ROW, COL) * BY_ROW, X, W)
    p.letters["k"] = "k"
    points = Dim((ROW, Axis("k", 4), COL), "point", "XBLOCK", 0)
    p.declare_axes(points)
    p.declare_axes(points, needed={COL})
    p.declare_axes(Dim((ROW,), "i", "XBLOCK", 0))  # the variable is the axis
    assert [line.strip() for line in p.out.text] == [
        "i = point // 160", "k = (point % 160) // 40", "j = point % 40", "j = point % 40",
    ]  # fmt: skip


def test_a_load_is_masked_along_the_dimensions_that_it_varies_along() -> None:
    assert lines(read(X, ROW, COL) * BY_ROW, X, W) == [
        "x = tl.load(x_ptr + i*40 + j, mask=i_in & j_in)",
        "w = tl.load(w_ptr + i, mask=i_in)",
        "tl.store(out_ptr + i*40 + j, x * w, mask=i_in & j_in)",
    ]
    assert lines(BY_ROW, W, over=(ROW,), masks="") == [
        "out = tl.load(w_ptr + i)",
        "tl.store(out_ptr + i, out)",
    ]
    nothing, empty = Axis("j", 0), buffer("e", 6, 0)
    found = lines(read(empty, ROW, nothing) * BY_ROW, empty, W, over=(ROW, nothing))
    assert found[0] == "e = tl.load(e_ptr + j, mask=False)"


def test_one_number_is_stored_as_it_is_or_as_a_tile_of_one() -> None:
    one = buffer("s")
    made = group(loop(buffer("out"), (), read(one)), axes=())
    assert stored(tiles(made, one)) == ["out = tl.load(s_ptr + 0)", "tl.store(out_ptr + 0, out)"]
    dims = [Dim((ROW,), "i", "YBLOCK", 0, "i_in"), Dim((COL,), "j", "XBLOCK", 1)]
    assert stored(tiles(made, one, dims=dims))[1] == "tl.store(out_ptr + 0 + tl.zeros([1, 1], tl.int32), out)"


def test_a_guard_masks_the_loads_of_either_side() -> None:
    inside = ((index(COL), index(2), index(40)),)
    assert lines(Guarded(inside, shifted(-2), BY_ROW) + BY_ROW, X, W)[-1].startswith(
        "tl.store(out_ptr + i*40 + j, "
        "tl.where((j >= 2), tl.load(x_ptr + i*40 + j - 2, mask=i_in & j_in & ((j >= 2))), w) + w"
    )
    found = lines(Guarded(inside, BY_ROW, shifted(0)) * ZERO, X, W)[-1]
    assert "tl.load(x_ptr + i*40 + j, mask=i_in & j_in & ~((j >= 2)))" in found
    size = index(Size("s0", 7))  # of a number the test is one of Python's, and ~True is -2
    found = lines(Guarded(((size, index(8), index(9)),), BY_ROW, shifted(0)) * 2.0, X, W)[-1]
    assert "((((s0 >= 8) & (s0 < 9)) == 0))" in found
    always = Guarded(((index(COL), index(0), index(40)),), shifted(0), ZERO)
    assert lines(always * BY_ROW, X, W) == lines(shifted(0) * BY_ROW, X, W)


def test_of_two_places_in_one_buffer_one_is_chosen_and_read() -> None:
    inside = ((index(COL), index(2), index(40)),)
    (_, text) = lines(Guarded(inside, shifted(-2), shifted(3)) * BY_ROW, X, W)
    assert "tl.load(x_ptr + i*40 + j + tl.where((j >= 2), -2, 3), mask=i_in & j_in) * w" in text
    other = buffer("y", 6, 40)
    for apart in (read(other, ROW, COL), read(X, ROW, 39 - index(COL)), BY_ROW):
        text = lines(Guarded(inside, shifted(0), apart) * BY_ROW, X, W, other)[-1]
        assert "tl.where((j >= 2), tl.load(x_ptr" in text


def test_gathered_places_are_read_only_if_all_are_inside() -> None:
    columns = buffer("q", 40, dtype=I64)
    row, column = (
        IndexExpr({(Indirect(found, index(size)),): 1})
        for found, size in ((read(P, ROW), 6), (read(columns, COL), 40))
    )
    assert lines(Load("x", (row, column), F32), X, P, columns)[2] == (
        "out = tl.load(x_ptr + p*40 + q, mask=i_in & j_in & (p >= 0) & (p < 6) & (q >= 0) & (q < 40))"
    )


@pytest.mark.parametrize(
    ("dtype", "text"),
    [(torch.float16, ".to(tl.float32)"), (torch.bfloat16, ".to(tl.float32)"), (torch.bool, ".to(tl.int1)"),
     (F32, ""), (I64, "")],
)  # fmt: skip
def test_what_is_loaded_is_worked_with_in_the_type_of_a_register(dtype: torch.dtype, text: str) -> None:
    memory = buffer("m", 6, dtype=dtype)
    p = printer(read(memory, ROW), memory, over=(ROW,), dtype=dtype)
    assert stored(p)[0] == f"out = tl.load(m_ptr + i, mask=i_in){text}"


def test_a_counted_number_is_as_wide_as_its_type() -> None:
    counted = IndexValue(index(COL), I64) + read(P, ROW)
    p = printer(counted, P, dtype=I64)
    assert "(j).to(tl.int64) + p" in stored(p)[-1]
    assert p.full("0", torch.bfloat16) == "tl.full([YBLOCK, XBLOCK], 0, tl.float32)"
    assert p.full("0", I64, []) == "tl.full((), 0, tl.int64)"


@pytest.mark.parametrize(("rows", "wide"), [(1 << 25, False), (1 << 26, True)])
def test_indices_take_64_bits_where_memory_asks_for_them(rows: int, wide: bool) -> None:
    row = Axis("i", Size("s0", rows))
    memory = buffer("x", row.extent, 40)
    p = tiles(group(loop(buffer("out", row.extent), (row,), read(memory, row, 3)), axes=(row,)), memory)
    p.place(row.extent)
    assert p.lanes(p.dims[0], offset="start") == f"start + tl.arange(0, XBLOCK){'.to(tl.int64)' * wide}"
    assert [item.type for _, item in p.arguments(())] == ["i64" if wide else "i32"]


def test_an_argument_says_whether_its_memory_is_ours_and_written() -> None:
    before = buffer("before", 6, 40)  # another kernel made it
    p = printer(read(before, ROW, COL) * BY_ROW, before, W)
    stored(p)
    assert [(name, item.ours, item.written) for name, item in p.arguments(())] == [
        ("before", False, False), ("w", False, False), ("out", True, True),
    ]  # fmt: skip
    shared = dict(p.arguments(["before"]))["before"]
    assert shared.ours and shared.written, "functions of one kernel use it in turn"


def test_loads_and_what_is_used_twice_have_names() -> None:
    power = op("exp", BY_ROW)
    assert lines(power + power, W, over=(ROW,))[1:] == ["t = libdevice.exp(w)", STORE.format("t + t")]
    assert lines(power + BY_ROW, W, over=(ROW,))[1:] == [STORE.format("libdevice.exp(w) + w")]


def test_what_does_not_vary_within_a_loop_is_made_before_it() -> None:
    power = op("exp", BY_ROW)
    p = printer(shifted(0) * (power + 1.0), X, W)
    scope = p.hoist([item.value for item in p.values.stores], frozenset({COL}), {})
    assert [line.strip() for line in p.out.text] == [
        "w = tl.load(w_ptr + i, mask=i_in)", "t = libdevice.exp(w) + 1.0",
    ]  # fmt: skip
    p.define([item.value for item in p.values.stores], scope)
    assert len(p.out.text) == 3 and "x = tl.load(" in p.out.text[-1]
