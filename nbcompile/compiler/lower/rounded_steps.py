"""Quotients of two tensors of a half type, rounded to whole numbers: ATen's kernels round each step to that
type, and where a quotient is rounded up to a whole number that is another one.

The steps are those of ATen's ``div_floor_floating`` (c10/util/generic_math.h)."""

from __future__ import annotations

import torch

from nbcompile.compiler.loop_ir.expr import Expr, as_held, constant, op, where


def truncated_quotient(x: Expr, y: Expr, dtype: torch.dtype) -> Expr:
    """``x / y`` without its fraction, both as a tensor of ``dtype`` holds them."""
    return op("trunc", as_held(x / y, dtype))


def floored_quotient(x: Expr, y: Expr, dtype: torch.dtype) -> Expr:
    """``x / y`` rounded down, both as a tensor of ``dtype`` holds them."""

    def held(value: Expr) -> Expr:
        return as_held(value, dtype)

    rest = held(op("fmod", x, y))
    quotient = held(held(x - rest) / y)
    other_sign = op("and", rest.ne(0), (y < 0).ne(rest < 0))
    quotient = where(other_sign, held(quotient - 1), quotient)
    whole = op("floor", quotient)
    whole = where(held(quotient - whole) > 0.5, whole + 1, whole)
    none = op("copysign", constant(0.0, x.dtype), x / y)
    return where(y.eq(0), x / y, where(quotient.eq(0), none, whole))
