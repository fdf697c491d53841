"""Index expressions with axes replaced by others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nbcompile.compiler.loop_ir.index import (
    ZERO,
    Atom,
    Axis,
    FloorDiv,
    IndexExpr,
    Mod,
    floordiv,
    index,
    mod,
    product,
)


def joined(axes: Sequence[Axis]) -> Axis:
    """One axis that walks the points of ``axes``, the last of them fastest."""
    parts = [part for axis in axes for part in axis.parts or (axis,)]
    return Axis("_".join(axis.name for axis in axes), product(axis.extent for axis in axes), parts)


def substitute(expr: IndexExpr, mapping: Mapping[Axis, IndexExpr]) -> IndexExpr:
    """``expr`` with axes replaced, all at once, and simplified again."""
    bare = expr.axis
    if bare is not None:  # by far the most common index
        return mapping.get(bare, expr)
    if not mapping or not any(axis in mapping for axis in expr.axes()):
        return expr
    result = ZERO
    for mono, coeff in expr.terms:
        term = index(coeff)
        for atom in mono:
            term = term * _substitute_atom(atom, mapping)
        result = result + term
    return result


def _substitute_atom(atom: Atom, mapping: Mapping[Axis, IndexExpr]) -> IndexExpr:
    if isinstance(atom, Axis):
        return mapping.get(atom, index(atom))
    if isinstance(atom, FloorDiv):
        return floordiv(substitute(atom.numerator, mapping), substitute(atom.denominator, mapping))
    if isinstance(atom, Mod):
        return mod(substitute(atom.numerator, mapping), substitute(atom.denominator, mapping))
    return atom.substitute(mapping)
