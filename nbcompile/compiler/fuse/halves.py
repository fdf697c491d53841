"""Values of half types are read as they are stored.

A value of a half type is held in float32 while a kernel works with it. What is stored, for another kernel, as
a result or for the backward pass, is rounded then. If its own kernel went on with the number as it was,
another kernel, or backward, would compute other numbers anew from what is stored: ``x == x.amax()`` could
hold nowhere (a gradient of 0/0), ``x - mean(x)`` of a row of one element be other than 0.
"""

from __future__ import annotations

from dataclasses import replace

from nbcompile.compiler.loop_ir.expr import HALF, Expr, Load, Op
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group


def read_as_stored(fused: FusedProgram) -> FusedProgram:
    """The program with each read of a stored value in a half type rounded to it."""
    stored = frozenset[str]().union(*(group.stored for group in fused.groups))
    buffers = fused.program.buffers()
    halves = frozenset(name for name in stored if name in buffers and buffers[name].dtype in HALF)
    if not halves:
        return fused

    items = tuple(_in_group(item, halves) if isinstance(item, Group) else item for item in fused.items)
    return replace(fused, items=items)


def _in_group(group: Group, halves: frozenset[str]) -> Group:
    """What a kernel makes itself is rounded where it uses it; what it loads has been."""
    own = halves & {out.name for loop in group.loops for out in loop.outputs}
    if not own:
        return group
    return replace(group, loops=tuple(replace(loop, body=_rounded(loop.body, own)) for loop in group.loops))


def _rounded(expr: Expr, names: frozenset[str]) -> Expr:
    if isinstance(expr, Load):
        return Op("cast", (expr,), expr.dtype) if expr.buffer in names else expr
    children = expr.children()
    changed = tuple(_rounded(item, names) for item in children)
    if all(new is old for new, old in zip(changed, children, strict=True)):
        return expr
    return expr.rebuild(changed, expr.indices())
