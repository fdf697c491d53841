"""Products of a small matrix and a vector on a CPU: a call of the BLAS takes longer than their loop, which is
also one with what is around it (a state-space model's ``einsum("bdn,bn->bd", h, c)`` at each step)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import HALF
from nbcompile.compiler.loop_ir.index import product
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder, at

aten = torch.ops.aten
LONGEST = 64
"""Elements of a sum: more are added up in vectors by the BLAS, and in another order."""
MOST = 1 << 15
"""Multiplications. A call takes about 10 microseconds beside them."""
LONGEST_OF_HALVES = 1 << 12
MOST_OF_HALVES = 1 << 19
"""A call takes 40 microseconds and more, of a vector no less than of a matrix: attention to cached keys."""


def small_product(b: Builder, target: Any, args: Sequence[Any], kwargs: Any) -> View | None:
    """``mm(x, y)`` or ``bmm(x, y)`` of known sizes as a loop, where ``x`` is one row or ``y`` one column;
    None where that gains nothing."""
    if b.options.chip.is_gpu or kwargs or target not in (aten.mm.default, aten.bmm.default):
        return None
    x, y = args
    *batch, rows, length = x.shape
    columns = y.shape[-1]
    if x.dtype not in (torch.float32, torch.float64, *HALF) or not (rows == 1 or columns == 1):
        return None
    half = x.dtype in HALF
    work, longest = product((*batch, rows, columns, length)).constant, LONGEST_OF_HALVES if half else LONGEST
    if work is None or not 0 < work <= (MOST_OF_HALVES if half else MOST) or (length.constant or 0) > longest:
        return None
    axes = b.axes((*batch, rows, columns, length))
    *outer, row, column, inner = at(axes)
    body = b.element(x, (*outer, row, inner)) * b.element(y, (*outer, inner, column))
    total = b.total(axes[:-1], axes[-1:], body)
    return b.copy(total, x.dtype) if half else total
