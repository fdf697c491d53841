"""What an operator wants to fit, and its shape function does not compare: extents that are to be the same,
and numbers that are converted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from nbcompile.compiler.loop_ir.index import ONE, IndexExpr, product
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.loop_ir.proofs import proves
from nbcompile.compiler.lower.builder import Builder
from nbcompile.errors import LoweringError


def require(
    b: Builder, found: Sequence[IndexExpr], wanted: Sequence[IndexExpr], what: str, *, broadcast: bool = False
) -> None:
    """LoweringError unless ``what``, of extents ``found``, surely has those ``wanted``: the operator itself
    then says whether it has. ``broadcast``: it may have fewer dimensions, and extents of 1."""
    facts = b.sizes.facts()

    def same(left: IndexExpr, right: IndexExpr) -> bool:
        return left == right or (proves(left - right, facts) and proves(right - left, facts))

    fewer = len(wanted) - len(found)
    right = len(found) == len(wanted) or (broadcast and fewer > 0)
    pairs = zip(found, wanted[max(fewer, 0) :], strict=False)
    if not right or not all((broadcast and left == ONE) or same(left, right) for left, right in pairs):
        sizes = " × ".join(map(str, found)), " × ".join(map(str, wanted))
        raise LoweringError(f"{what} of {sizes[0]}, where {sizes[1]} is wanted")


def require_slices(b: Builder, x: View, dim: int, picked: View, source: View) -> None:
    """LoweringError unless ``source`` surely has a slice of ``x`` along ``dim`` for each index ``picked``."""
    if x.axes:
        require(b, source.shape, (*x.shape[:dim], product(picked.shape), *x.shape[dim + 1 :]), "a source")


def require_fit(values: torch.dtype, into: torch.dtype) -> None:
    """Values of one type that are written where numbers of another are: eager converts one number, and
    refuses it where it is too large. LoweringError unless each number of their type has a place there."""
    if values == into or torch.bool in (values, into):
        return
    kinds = [dtype.is_complex + (dtype.is_complex or dtype.is_floating_point) for dtype in (values, into)]
    (least, most), (lowest, highest) = _range(values), _range(into)
    if kinds[0] > kinds[1] or least < lowest or most > highest:
        raise LoweringError(f"a number of {values} may not fit into {into}")


def require_number(value: object, dtype: torch.dtype) -> None:
    """LoweringError for a number that eager refuses to make one of this type, as too large for it. (Unsigned
    types take the negative of each number that they hold.)"""
    if not isinstance(value, int | float) or dtype == torch.bool or dtype.is_complex:
        return
    lowest, highest = _range(dtype)
    if dtype.is_floating_point:
        held = not math.isfinite(value) or lowest <= value <= highest
    else:
        held = min(lowest, -highest) <= value <= highest
    if not held:
        raise LoweringError(f"{value} does not fit into {dtype}")


def _range(dtype: torch.dtype) -> tuple[float, float]:
    info = torch.finfo(dtype) if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype)
    return info.min, info.max
