"""How index expressions print: ``4*i + j - 1``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbcompile.compiler.loop_ir.index import IndexExpr, Monomial


def factor_text(expr: IndexExpr) -> str:
    """``expr`` as a factor: in parentheses unless it is one word."""
    text = str(expr)
    return text if text.isalnum() else f"({text})"


def terms_text(terms: tuple[tuple[Monomial, int], ...]) -> str:
    """A sum of products."""
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
