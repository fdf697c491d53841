"""How index expressions print: ``4*i + j - 1``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def factor_text(text: str) -> str:
    """An expression as a factor: in parentheses unless it is one word."""
    return text if text.isalnum() else f"({text})"


def terms_text(terms: Iterable[tuple[Sequence[Any], int]]) -> str:
    """A sum of products: each of atoms, which have a ``text``, and a coefficient."""
    if not terms:
        return "0"
    parts: list[str] = []
    for mono, coeff in terms:
        factors = "*".join(atom.text for atom in mono)
        if not mono:
            body = str(abs(coeff))
        elif abs(coeff) == 1:
            body = factors
        else:
            body = f"{abs(coeff)}*{factors}"
        sign = "-" if coeff < 0 else "+"
        parts.append((f" {sign} " if parts else ("-" if coeff < 0 else "")) + body)
    return "".join(parts)
