"""Arithmetic of two tensors, or of a tensor and a number."""

from __future__ import annotations

from typing import Any

import torch

from nbcompile.loop_ir.expr import Expr, op
from nbcompile.loop_ir.nodes import View
from nbcompile.lower.builder import Builder, Operand
from nbcompile.lower.registry import lowering
from nbcompile.lower.samples import binary

aten = torch.ops.aten


@lowering(aten.add.Tensor, aten.add.Scalar, samples=binary(alpha=[1, 2]))
def add(b: Builder, x: Operand, y: Operand, alpha: Any = 1) -> View:
    def body(x: Expr, y: Expr) -> Expr:
        scaled = y if alpha == 1 else y * alpha
        return op("or", x, scaled) if x.dtype == torch.bool else x + scaled

    return b.pointwise(body, x, y)
