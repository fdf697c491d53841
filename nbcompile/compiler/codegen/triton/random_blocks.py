"""Random numbers of neighbouring points, four to a Philox block, where they lie so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nbcompile.compiler.codegen.triton.dims import Dim
from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.loop_ir.index import IndexExpr


def word_bound(limit: Value) -> int | None:
    """What the words of random numbers are below where the numbers are below a constant: ``(w >> 8) / 2**24 <
    p`` is ``w < ceil(p * 2**24) << 8``. None if it is none, or all or no numbers are below it."""
    if limit.kind != "const" or not math.isfinite(limit.literal):
        return None
    bound = math.ceil(float(limit.literal) * (1 << 24)) << 8
    return bound if 0 < bound < 1 << 32 else None


@dataclass(frozen=True)
class Blocks:
    """The blocks whose words are the random numbers of a tile: four neighbours along ``dim``, its last
    dimension, or (``down``) the first of two. They are counted from ``base``, in a tile from a quarter of
    ``start`` on (empty: from 0)."""

    base: IndexExpr
    dim: Dim
    start: str
    down: bool


def blocks_of_four(
    number: Value, dims: Sequence[Dim], start: str, starts: Mapping[str, str]
) -> Blocks | None:
    """How the random numbers of a tile of ``dims`` come in blocks, in order; None where they do not.
    ``start``: where the last dimension's present block starts, ``starts``: that of others, by block."""
    offset = number.args[1]
    if offset.kind != "index" or not dims:
        return None
    first, last = dims[0], dims[-1]
    base = _base_along(offset, last)
    if base is not None:
        return Blocks(base, last, start, down=False)
    # numbers are counted as the tensor's elements are, which may lie in another order, as channels-last
    if first is last or first.block not in starts or number.axes < {*first.axes, *last.axes}:
        return None
    base = _base_along(offset, first)
    return Blocks(base, first, starts[first.block], down=True) if base is not None else None


def _base_along(offset: Value, last: Dim) -> IndexExpr | None:
    """The number of the first block where four neighbours along ``last`` share one."""
    fast = last.axes[-1]
    step = offset.place.coefficient(fast)
    whole = last.extent.constant
    if step is None or step.constant != 1 or whole is None or whole % 4 or fast.extent.constant is None:
        return None
    if len(last.axes) > 1 and not _counts(offset.place, last):
        return None
    rest = offset.place
    for axis in last.axes:
        coefficient = offset.place.coefficient(axis)
        if coefficient is None:
            return None
        rest = rest - coefficient * axis
    if any(coeff % 4 for _, coeff in rest.terms) or rest.atoms() & set(last.axes):
        return None
    return IndexExpr({mono: coeff // 4 for mono, coeff in rest.terms})


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
