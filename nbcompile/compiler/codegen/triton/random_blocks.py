"""Random numbers of neighbouring points, four to a Philox block, where they lie so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.loop_ir.index import IndexExpr

if TYPE_CHECKING:
    from nbcompile.compiler.codegen.triton.tile_printer import Dim, Scope, TilePrinter


def four_coins(p: TilePrinter, value: Value, scope: Scope) -> str:
    """Whether random numbers are below a constant, decided on their words: ``(w >> 8) / 2**24 < p`` is
    ``w < ceil(p * 2**24) << 8``."""
    number, limit = value.args
    if number.op != "philox_uniform" or number.number in scope or limit.kind != "const":
        return ""
    bound = math.ceil(float(limit.literal) * (1 << 24)) << 8 if math.isfinite(limit.literal) else 0
    if not 0 < bound < 1 << 32:
        return ""
    found = blocks_of_four(p, number, scope)
    if found is None:
        return ""
    return p.writer.philox_below4(p.text(number.args[0], scope), found.block, bound, down=found.down)


def four_at_once(p: TilePrinter, value: Value, scope: Scope) -> str:
    """Random numbers of neighbours, four to a Philox block: empty where they do not lie so."""
    found = blocks_of_four(p, value, scope)
    if found is None:
        return ""
    return p.writer.philox_uniform4(p.text(value.args[0], scope), found.block, down=found.down)


@dataclass(frozen=True)
class Blocks:
    """The blocks whose words are the random numbers of a tile: four neighbours along its last dimension, or
    ``down``, along the first of two."""

    block: str
    down: bool


def blocks_of_four(p: TilePrinter, value: Value, scope: Scope) -> Blocks | None:
    """Whether the random numbers of the tile come in blocks, in order."""
    offset = value.args[1]
    if offset.kind != "index" or not p.tiled:
        return None
    first, last = p.in_order()[0], p.in_order()[-1]
    block = _blocks_along(p, offset, last, p.lane_start(last), scope)
    if block:
        return Blocks(block, down=False)
    # numbers are counted as the tensor's elements are, which may lie in another order, as channels-last
    if first is last or first.block not in p.starts or value.axes < {*first.axes, *last.axes}:
        return None
    block = _blocks_along(p, offset, first, p.starts[first.block], scope)
    return Blocks(block, down=True) if block else None


def _blocks_along(p: TilePrinter, offset: Value, last: Dim, start: str, scope: Scope) -> str:
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
