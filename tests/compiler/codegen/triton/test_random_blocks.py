"""Random numbers of neighbours: whether a tile's come four to a Philox block."""

from __future__ import annotations

import torch

from nbcompile.compiler.codegen.triton.dims import Dim
from nbcompile.compiler.codegen.triton.random_blocks import Blocks, blocks_of_four, word_bound
from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.loop_ir.index import ZERO, Axis, IndexExpr, index

ROW, J = Axis("i", 8), Axis("j", 12)


def value(kind: str, place: IndexExpr = ZERO, **more) -> Value:
    return Value(0, kind, torch.float32, place=place, axes=frozenset(place.axes()), **more)


def drawn(place: IndexExpr) -> Value:
    """A random number of the element at ``place``."""
    args = value("load"), value("index", place)
    return Value(1, "op", torch.float32, args=args, op="philox_uniform", axes=frozenset(place.axes()))


def found(place: IndexExpr, *dims: Dim, start: str = "", starts=()) -> Blocks | None:
    return blocks_of_four(drawn(place), dims, start, dict(starts))


def test_rows_of_a_multiple_of_four_are_blocks() -> None:
    tile = Dim((J,), "j", "XBLOCK", 0)
    blocks = found(index(ROW) * 12 + J, tile, start="start")
    assert blocks is not None and blocks.base == index(ROW) * 3
    assert (blocks.dim, blocks.start, blocks.down) == (tile, "start", False)


def test_numbers_that_are_not_side_by_side_are_drawn_singly() -> None:
    assert found(index(ROW) * 12 + index(J) * 2, Dim((J,), "j", "XBLOCK", 0)) is None
    assert found(index(ROW) * 13 + J, Dim((J,), "j", "XBLOCK", 0)) is None  # a row starts within a block


def test_numbers_may_be_counted_down_the_tile() -> None:
    down, across = Dim((J,), "j", "YBLOCK", 0), Dim((ROW,), "i", "XBLOCK", 1)
    place = index(ROW) * 12 + J
    assert found(place, down, across) is None  # nobody knows where the first dimension starts
    blocks = found(place, down, across, starts={"YBLOCK": "begin"})
    assert blocks is not None and blocks.down and blocks.start == "begin"


def test_what_is_below_a_constant_is_decided_on_the_word() -> None:
    assert word_bound(value("const", literal=0.5)) == 1 << 31
    assert word_bound(value("const", literal=0.0)) is None and word_bound(value("const", literal=1.0)) is None
    assert word_bound(value("const", literal=float("nan"))) is None and word_bound(value("load")) is None
