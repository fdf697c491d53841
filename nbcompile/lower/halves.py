"""Results in half types are read as they are stored.

A value of a half type is held in float32 while a kernel works with it. What a graph returns, or keeps for its
backward pass, is rounded as it is stored: if whoever else uses it in the graph took it unrounded, backward
would compute other numbers anew from the stored one than forward did, and ``x == x.amax()`` could hold
nowhere (a gradient of 0/0), ``x - mean(x)`` of a row of one element be other than 0.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from nbcompile.loop_ir.expr import Expr, Load, Op
from nbcompile.loop_ir.nodes import Loop, LoopProgram

_HALF = (torch.float16, torch.bfloat16)


def read_as_stored(program: LoopProgram) -> LoopProgram:
    """The program with each read of a result in a half type rounded to it."""
    buffers = program.buffers()
    rounded = frozenset(name for name in program.results if buffers[name].dtype in _HALF)
    if not rounded:
        return program
    statements = tuple(
        replace(item, body=_rounded(item.body, rounded)) if isinstance(item, Loop) else item
        for item in program.statements
    )
    return replace(program, statements=statements)


def _rounded(expr: Expr, names: frozenset[str]) -> Expr:
    if isinstance(expr, Load):
        return Op("cast", (expr,), expr.dtype) if expr.buffer in names else expr
    children = expr.children()
    changed = tuple(_rounded(item, names) for item in children)
    if all(new is old for new, old in zip(changed, children, strict=True)):
        return expr
    return expr.rebuild(changed, expr.indices())
