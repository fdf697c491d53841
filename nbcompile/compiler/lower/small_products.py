"""Products of a small matrix and a vector on a CPU: a call of the BLAS takes longer than their loop, which is
also one with what is around it (a state-space model's ``einsum("bdn,bn->bd", h, c)`` at each step)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.index import product
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder, at

aten = torch.ops.aten
LONGEST = 64
"""Elements of a sum: more are added up in vectors by the BLAS, and in another order."""
MOST = 1 << 15
"""Multiplications. A call takes about 10 microseconds beside them."""


def small_product(b: Builder, target: Any, args: Sequence[Any], kwargs: Any) -> View | None:
    """``mm(x, y)`` or ``bmm(x, y)`` of known sizes as a loop, where ``x`` is one row or ``y`` one column;
    None where that gains nothing."""
    if b.options.chip.is_gpu or kwargs or target not in (aten.mm.default, aten.bmm.default):
        return None
    x, y = args
    *batch, rows, length = x.shape
    columns = y.shape[-1]
    if x.dtype not in (torch.float32, torch.float64) or not (rows == 1 or columns == 1):
        return None
    work = product((*batch, rows, columns, length)).constant
    if work is None or not 0 < work <= MOST or (length.constant or 0) > LONGEST:
        return None
    axes = b.axes((*batch, rows, columns, length))
    *outer, row, column, inner = at(axes)
    body = b.element(x, (*outer, row, inner)) * b.element(y, (*outer, inner, column))
    return b.total(axes[:-1], axes[-1:], body)
