"""A Triton expression as a value: its text, and what others must know of it to write it beside something."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from nbcompile.compiler.loop_ir.expr import Number


@dataclass(frozen=True)
class Literal:
    """A number as it is written in Triton; ``value`` is what that text reads back as."""

    text: str
    value: Number
    finite: bool = True

    @property
    def operand(self) -> str:
        """The number beside an operator."""
        return f"({self.text})" if self.finite and self.value < 0 else self.text


@dataclass(frozen=True)
class TileExpression:
    """``str()`` of it is an operand: it stands beside any operator. ``bare`` is the same where nothing stands
    beside it, as on the right of an assignment. ``name``: it is one. ``literal``: the number that it is;
    ``typed``: the text says that number's type."""

    bare: str
    grouped: bool = False
    name: bool = False
    literal: Literal | None = None
    typed: bool = False

    def __str__(self) -> str:
        return f"({self.bare})" if self.grouped else self.bare


Operand = TileExpression | str
"""A name, or any other text that stands beside an operator as it is, is an operand too."""


def grouped(text: str) -> TileExpression:
    """A text with an operator, which takes parentheses beside another."""
    return TileExpression(text, grouped=True)


def named(text: str) -> TileExpression:
    """A variable."""
    return TileExpression(text, name=True)


def as_expression(operand: Operand) -> TileExpression:
    """A name as the expression that it is."""
    return TileExpression(operand) if isinstance(operand, str) else operand


def with_type(operand: Operand, type_name: str) -> TileExpression:
    """A bare number as one of a type; anything else as it is."""
    found = as_expression(operand)
    if found.literal is None or found.typed:
        return found
    text = f"tl.full((), {found.literal.text}, {type_name})"
    return replace(found, bare=text, grouped=False, typed=True)


def without_type(operand: Operand, dtype: torch.dtype) -> str:
    """The number alone, where the operand beside it gives the type; of truth values there is no such."""
    found = as_expression(operand)
    if found.literal is None or not found.typed or dtype == torch.bool:
        return str(found)
    return found.literal.operand
