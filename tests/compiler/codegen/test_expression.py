"""Expressions of the generated language: where parentheses stand around what was printed."""

from __future__ import annotations

import pytest
import torch

from nbcompile.compiler.codegen.expression import Binds, Expression, loose, name

F = torch.float32


@pytest.mark.parametrize(
    ("text", "binds", "operand", "signed"),
    [
        ("x", Binds.NAME, "x", "x"),
        ("f(x)", Binds.TIGHT, "f(x)", "f(x)"),
        ("-1.5", Binds.SIGNED, "-1.5", "(-1.5)"),
        ("x + y", Binds.LOOSE, "(x + y)", "(x + y)"),
    ],
)
def test_parentheses_stand_around_operators_and_between_two_signs(
    text: str, binds: Binds, operand: str, signed: str
) -> None:
    made = Expression(text, F, binds)
    assert (made.text, made.operand, made.signed) == (text, operand, signed)


def test_only_a_variable_may_be_read_again_for_nothing() -> None:
    assert {binds for binds in Binds if Expression("x", F, binds).is_name} == {Binds.NAME}


def test_what_has_the_looser_parts_is_the_greater() -> None:
    """So a printer may ask for the loosest of several."""
    assert sorted(Binds) == [Binds.NAME, Binds.TIGHT, Binds.SIGNED, Binds.LOOSE]
    assert max(name("x", F).binds, loose("x + y", F).binds) is Binds.LOOSE


def test_an_expression_knows_its_type_and_an_index_has_none() -> None:
    assert Expression("f(x)", F) == Expression("f(x)", F, Binds.TIGHT) != Expression("f(x)", torch.float64)
    assert name("i", None) == Expression("i", None, Binds.NAME)
    assert loose("i + 1", None) == Expression("i + 1", None, Binds.LOOSE)
