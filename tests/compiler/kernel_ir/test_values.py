"""The values of a kernel as data: what one needs, and the order in which they can be computed."""

from __future__ import annotations

import torch

from nbcompile.compiler.kernel_ir.values import Gathered, Value, gathered, walk_values
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, index

ROW = Axis("i", index(6))
PLACE = Value(0, "load", torch.int64, buffer="p", place=index(ROW))
CHOSEN = IndexExpr({(Gathered(PLACE, index(8)),): 4}) + 1
TAKEN = Value(1, "load", torch.float32, buffer="x", place=CHOSEN)


def test_values_inside_an_index_are_inputs() -> None:
    assert gathered(CHOSEN) == [PLACE] and TAKEN.inputs() == (PLACE,)
    guard = Value(2, "guard", torch.float32, (TAKEN, TAKEN), bounds=((CHOSEN, index(0), index(9)),))
    assert guard.inputs() == (TAKEN, TAKEN, PLACE)


def test_inputs_come_before_their_users_and_each_once() -> None:
    total = Value(2, "op", torch.float32, (TAKEN, TAKEN), op="add")
    assert walk_values([total, TAKEN]) == [PLACE, TAKEN, total]


def test_one_value_as_an_index_of_two_sizes_is_two_atoms() -> None:
    """What is proved of the one does not hold of the other; nor of a value that is numbered so elsewhere."""
    small, large = (IndexExpr({(Gathered(PLACE, index(size)),): 1}) for size in (8, 80))
    assert small != large and len((small * 8 + large).terms) == 2
    assert small == IndexExpr({(Gathered(PLACE, index(8)),): 1})
    other = Value(0, "load", torch.int64, buffer="q", place=index(ROW))
    assert small != IndexExpr({(Gathered(other, index(8)),): 1})
