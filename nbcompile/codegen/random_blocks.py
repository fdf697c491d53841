"""Random numbers of neighbouring points, four to a Philox block, where they lie so."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nbcompile.codegen.values import Value
from nbcompile.loop_ir.index import IndexExpr

if TYPE_CHECKING:
    from nbcompile.codegen.tile_printer import Dim, Scope, TilePrinter


def four_coins(p: TilePrinter, value: Value, scope: Scope) -> str:
    """Whether random numbers are below a constant, decided on their words: ``(w >> 8) / 2**24 < p`` is
    ``w < ceil(p * 2**24) << 8``."""
    number, limit = value.args
    if number.op != "philox_uniform" or number.number in scope or limit.kind != "const":
        return ""
    bound = math.ceil(float(limit.literal) * (1 << 24)) << 8 if math.isfinite(limit.literal) else 0
    if not 0 < bound < 1 << 32:
        return ""
    block = block_of_four(p, number, scope)
    if not block:
        return ""
    return p.writer.philox_below4(p.text(number.args[0], scope), block, bound)


def four_at_once(p: TilePrinter, value: Value, scope: Scope) -> str:
    """Random numbers of neighbours, four to a Philox block: empty where they do not lie so."""
    block = block_of_four(p, value, scope)
    return p.writer.philox_uniform4(p.text(value.args[0], scope), block) if block else ""


def block_of_four(p: TilePrinter, value: Value, scope: Scope) -> str:
    """The blocks whose words are the random numbers of the tile, in order; empty if there are none."""
    offset = value.args[1]
    if offset.kind != "index" or not p.tiled:
        return ""
    last = p.in_order()[-1]
    fast = last.axes[-1]
    step = offset.place.coefficient(fast)
    whole = last.extent.constant
    if step is None or step.constant != 1 or whole is None or whole % 4 or fast.extent.constant is None:
        return ""
    if len(last.axes) > 1 and not _counts(offset.place, last):
        return ""
    rest = offset.place
    for axis in last.axes:
        coefficient = offset.place.coefficient(axis)
        if coefficient is None:
            return ""
        rest = rest - coefficient * axis
    if any(coeff % 4 for _, coeff in rest.terms) or rest.atoms() & set(last.axes):
        return ""
    base = IndexExpr({mono: coeff // 4 for mono, coeff in rest.terms})
    start = p.lane_start(last)
    quarter = p.across(f"tl.arange(0, {last.block} // 4)", last.place)
    return f"({p.place(base, scope)}) + {f'{start} // 4 + ' if start else ''}{quarter}"


def _counts(place: IndexExpr, dim: Dim) -> bool:
    """Whether ``place`` steps by one along the whole of ``dim``."""
    expected: int | None = 1
    for axis in reversed(dim.axes):
        step = place.coefficient(axis)
        if step is None or expected is None or step.constant != expected:
            return False
        extent = axis.extent.constant
        expected = expected * extent if extent is not None else None
    return True
