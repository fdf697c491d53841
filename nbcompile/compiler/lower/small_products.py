"""Products of a small matrix and a vector, and of matrices of three or four columns, on a CPU: a call of the
BLAS takes longer than their loop, which is also one with what is around it (a state-space model's
``einsum("bdn,bn->bd", h, c)`` at each step; points that are turned, colours, poses)."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import HALF, Expr
from nbcompile.compiler.loop_ir.index import Index, index, product
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder, at

aten = torch.ops.aten
_PRODUCTS = (aten.mm.default, aten.bmm.default)
_OF_VECTORS = (aten.dot.default, aten.vdot.default, aten.mv.default)
LONGEST = 64
"""Elements of a sum: more are added up in vectors by the BLAS, and in another order."""
MOST = 1 << 15
"""Multiplications. A call takes about 10 microseconds beside them."""
LONGEST_OF_HALVES = 1 << 12
MOST_OF_HALVES = 1 << 19
"""A call takes 40 microseconds and more, of a vector no less than of a matrix: attention to cached keys."""
SHORTEST = 4
"""Elements of a sum that is written out: then the loop is one over the results, of any number."""
SHORTEST_OF_BATCHES = 8
NAIVE = 400
"""Multiplications: ATen itself makes plain loops of batches of less, one matrix after the other."""


def small_product(b: Builder, target: Any, args: Sequence[Any], kwargs: Any) -> View | None:
    """``mm(x, y)``, ``addmm(bias, x, y)`` or ``bmm(x, y)`` as a loop, where ``x`` is one row, ``y`` one
    column, or the sums are short, and ``dot(x, y)`` and ``mv(x, y)``; None where that gains nothing."""
    if b.options.chip.is_gpu or kwargs or target not in (*_PRODUCTS, *_OF_VECTORS, aten.addmm.default):
        return None
    x, y = args[-2:]
    if x.dtype not in (torch.float32, torch.float64, *HALF):
        return None
    if target in _OF_VECTORS:
        return _of_vectors(b, x, y)
    if _is_short(x, y):
        return _written_out(b, x, y, args[:-2])
    *batch, rows, length = x.shape
    columns = y.shape[-1]
    if target not in _PRODUCTS or not (rows == 1 or columns == 1):
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


def _of_vectors(b: Builder, x: View, y: View) -> View | None:
    """The inner product of two vectors, of any length: a sum like any other; a small matrix by one."""
    if x.dtype in HALF:
        return None
    if len(x.shape) > 1:
        work, length = product(x.shape).constant, x.shape[-1].constant
        if work is None or length is None or not 0 < work <= MOST or length > LONGEST:
            return None
    axes = b.axes(x.shape)
    where = at(axes)
    return b.total(axes[:-1], axes[-1:], b.element(x, where) * b.element(y, where[-1:]))


def _is_short(x: View, y: View) -> bool:
    """Whether the sums of a product are written out."""
    *batch, rows, length = x.shape
    summed, work = length.constant or 0, product((rows, length, y.shape[-1])).constant
    naive = bool(batch) and work is not None and work < NAIVE
    return 0 < summed <= (SHORTEST_OF_BATCHES if naive else SHORTEST)


def _written_out(b: Builder, x: View, y: View, bias: Sequence[View]) -> View:
    def body(*where: Index) -> Expr:
        *outer, row, column = where
        terms = [
            b.element(x, (*outer, row, index(n))) * b.element(y, (*outer, index(n), column))
            for n in range(x.shape[-1].constant or 0)
        ]
        total = functools.reduce(operator.add, terms)
        return total + b.element(bias[0], where) if bias else total

    return b.generate((*x.shape[:-1], y.shape[-1]), x.dtype, body)
