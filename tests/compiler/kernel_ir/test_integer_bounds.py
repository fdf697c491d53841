"""Proofs that an integer lies in a range, by the cases that it is taken apart into."""

from __future__ import annotations

import pytest
import torch

from nbcompile.compiler.kernel_ir.integer_bounds import cases_of, lies_within
from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.loop_ir.index import Axis, index

ROW = Axis("i", index(6))
HERE = Value(0, "index", torch.int64, place=index(ROW))
ANY = Value(1, "load", torch.int64, buffer="p", place=index(ROW))
BYTE = Value(2, "load", torch.uint8, buffer="q", place=index(ROW))


def const(number: int) -> Value:
    return Value(10 + number, "const", torch.int64, literal=number)


def made(op: str, *args: Value) -> Value:
    return Value(100, "op", args[-1].dtype, args, op=op)


@pytest.mark.parametrize(
    ("value", "size", "inside"),
    [
        (HERE, 6, True),
        (HERE, 5, False),
        (ANY, 1 << 40, False),
        (BYTE, 256, True),
        (BYTE, 255, False),
        (made("sub", const(5), HERE), 6, True),
        (made("abs", made("sub", HERE, const(3))), 4, True),
        (made("minimum", HERE, const(2)), 3, True),
        (made("maximum", HERE, const(2)), 5, False),
        (made("remainder", ANY, const(7)), 7, True),
        (made("remainder", ANY, const(8)), 7, False),
        (made("floordiv", HERE, const(2)), 3, True),
    ],
)
def test_what_is_known_of_a_result(value: Value, size: int, inside: bool) -> None:
    assert lies_within(value, index(size)) is inside


def test_a_choice_knows_its_condition() -> None:
    below = Value(50, "op", torch.bool, (HERE, const(3)), op="lt")
    wrapped = Value(51, "op", torch.int64, (below, made("add", HERE, const(3)), HERE), op="where")
    assert lies_within(wrapped, index(6)) and not lies_within(wrapped, index(5))


def test_nothing_is_known_of_a_float() -> None:
    assert cases_of(Value(60, "load", torch.float32, buffer="x")) is None
