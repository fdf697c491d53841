"""Matrix products of an odd width, padded: a vocabulary of 50257, say.

cuBLAS has fast kernels for half types only where rows start at multiples of 16 bytes; for another width it
takes kernels several times slower (measured on an H200: 8192 x 768 x 50257 in 6.7 ms, padded 0.9 ms). The
padded operand costs one small copy, the result is read through a view of its real columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, compute_dtype, constant
from nbcompile.compiler.loop_ir.index import ZERO, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.operators.joining import only_where

aten = torch.ops.aten
ALIGNED, PADDED = 8, 64  # elements: of a width that needs nothing, and what others are padded to
LEAST_WORK = 1 << 32  # multiplications for which the copy pays
REASON = "matrix product: the BLAS does it best (padded to an aligned width)"


def padded_product(b: Builder, target: Any, args: Sequence[Any], kwargs: Any) -> View | None:
    """``mm(x, y)`` or ``addmm(bias, x, y)`` with a padded ``y``; None where that gains nothing."""
    if b.options.chip.kind != "cuda" or kwargs or target not in (aten.mm.default, aten.addmm.default):
        return None
    *bias, x, y = args
    result = b.result
    width = y.shape[1].constant
    if result.dtype not in (torch.float16, torch.bfloat16) or width is None or width % ALIGNED == 0:
        return None
    work = width * x.shape[0].hint() * x.shape[1].hint()
    if work < LEAST_WORK or any(len(item.axes) != 1 or item.shape[0] != width for item in bias):
        return None
    whole = -(-width // PADDED) * PADDED
    upright = View(y.buffer, y.axes[::-1], y.index)
    tall = _padded(b, upright, whole)
    wide = View(tall.buffer, tall.axes[::-1], tall.index)
    given = [_padded(b, item, whole) for item in bias]
    fake = result.new_empty((result.shape[0], whole))
    product = b.call(target, (*given, x, wide), result=fake, reason=REASON)
    return b.view(product, b.result_shape(), lambda row, column: (row, column))


def _padded(b: Builder, x: View, extent: int) -> View:
    """``x`` with zeros after it in its first dimension."""
    zero = constant(0, compute_dtype(x.dtype))

    def body(*where: IndexExpr) -> Expr:
        bounds = [(where[0], ZERO, x.shape[0])]
        return only_where(bounds, b.element(x, where, compute_dtype(x.dtype)), zero)

    return b.generate((index(extent), *x.shape[1:]), x.dtype, body, name="padded")
