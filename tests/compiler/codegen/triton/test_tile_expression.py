"""An expression knows its parentheses and its literal, so nobody reads its text again."""

from __future__ import annotations

import math

import pytest
import torch

from nbcompile.compiler.codegen.triton.expressions import TritonWriter, constant
from nbcompile.compiler.codegen.triton.tile_expression import grouped, named, with_type, without_type

F32, I64, I32, BOOL = torch.float32, torch.int64, torch.int32, torch.bool


def op(name: str, *args, dtype: torch.dtype = F32, of: torch.dtype = F32):
    return TritonWriter().op(name, args, dtype, of)


def test_an_operator_takes_parentheses_beside_another_only() -> None:
    total = op("add", "x", "y")
    assert total.bare == "x + y" and str(total) == "(x + y)"
    assert op("mul", total, "z").bare == "(x + y) * z"
    assert str(op("sqrt", total)) == "tl.sqrt_rn((x + y))"


def test_text_that_begins_and_ends_with_parentheses_is_not_one_group() -> None:
    product = op("mul", op("add", "a", "b"), op("add", "c", "d"))
    assert product.bare == "(a + b) * (c + d)"


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.5, F32, "1.5"), (-1.5, F32, "(-1.5)"), (0.1, F32, "0.1"), (7, I32, "7"), (-7, I32, "(-7)"),
        (-math.inf, F32, 'float("-inf")'), (7, I64, "tl.full((), 7, tl.int64)"),
        (True, BOOL, "tl.full((), True, tl.int1)"), (-0.0, F32, "(tl.full((), 0.0, tl.float32) * -1.0)"),
        (1e-40, F32, "tl.full((), 1e-40, tl.float32)"),
    ],
)  # fmt: skip
def test_a_constant_has_its_type_where_triton_would_give_it_another(value, dtype, text) -> None:
    assert str(constant(value, dtype)) == text


def test_beside_an_operand_of_the_type_a_number_is_bare() -> None:
    seven = constant(7, I64)
    assert seven.typed and op("add", "x", seven, dtype=I64, of=I64).bare == "x + 7"
    assert op("sub", "x", constant(-7, I64), dtype=I64, of=I64).bare == "x - (-7)"
    # two numbers: one of them says the type
    assert op("add", seven, seven, dtype=I64, of=I64).bare == (
        "tl.full((), 7, tl.int64) + tl.full((), 7, tl.int64)"
    )
    half = constant(0.5, F32)
    assert op("add", half, half).bare == "tl.full((), 0.5, tl.float32) + 0.5"


def test_a_truth_value_is_never_bare() -> None:
    assert op("and", "x", constant(True, BOOL), dtype=BOOL, of=BOOL).bare == "x & tl.full((), True, tl.int1)"


def test_a_name_that_looks_like_a_number_is_a_name() -> None:
    assert with_type(named("e5"), "tl.float32") == named("e5")
    assert without_type(grouped("x + 1"), F32) == "(x + 1)"


def test_a_conversion_of_a_number_keeps_its_literal() -> None:
    same = TritonWriter().cast(constant(2.0, F32), F32, F32)
    assert same.literal is not None and str(same) == "tl.full((), 2.0, tl.float32)"
    assert TritonWriter().cast(same, F32, I64).literal is None


def test_without_precision_division_by_a_number_is_a_product() -> None:
    writer = TritonWriter()
    assert writer.op("div", ["x", constant(3.0, F32)], F32, F32).bare == "x / 3.0"
    writer.precise = False
    assert writer.op("div", ["x", constant(3.0, F32)], F32, F32).bare == "x * 0.33333333"
    assert writer.op("div", ["x", constant(0.0, F32)], F32, F32).bare == "x / 0.0"
    assert writer.op("div", ["x", "y"], F32, F32).bare == "x / y"
