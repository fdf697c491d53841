"""An expression of the generated language, as data: nobody reads a printed one again to learn what it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch


class Binds(IntEnum):
    """How tightly the parts of an expression hold together, from the tightest on."""

    NAME = 0  # a variable: it may be read any number of times
    TIGHT = 1  # a call, an element of memory, a literal
    SIGNED = 2  # a literal that begins with a minus, which no other sign may stand before
    LOOSE = 3  # operators: in parentheses wherever it is an operand


@dataclass(frozen=True)
class Expression:
    """An expression: its ``text`` without parentheses around it, the type that it has in a register (None for
    an index, which has that of its context), and how its parts hold together."""

    text: str
    dtype: torch.dtype | None
    binds: Binds = Binds.TIGHT

    @property
    def operand(self) -> str:
        """The text as an operand of whatever stands around."""
        return f"({self.text})" if self.binds is Binds.LOOSE else self.text

    @property
    def signed(self) -> str:
        """The text behind a sign: two in a row would be a decrement."""
        return f"({self.text})" if self.binds >= Binds.SIGNED else self.text

    @property
    def is_name(self) -> bool:
        """Whether reading it again costs nothing."""
        return self.binds is Binds.NAME


def name(text: str, dtype: torch.dtype | None) -> Expression:
    """A variable."""
    return Expression(text, dtype, Binds.NAME)


def loose(text: str, dtype: torch.dtype | None) -> Expression:
    """What operators make."""
    return Expression(text, dtype, Binds.LOOSE)
