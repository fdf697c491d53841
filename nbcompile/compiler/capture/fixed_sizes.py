"""Symbolic sizes made numbers, where a compiler can say too little of the symbols, and sizes that torch made
numbers of without a guard."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch import fx

from nbcompile.compiler.stages import can_be_guarded, hint_of, is_named
from nbcompile.errors import LoweringError


def guards_lost() -> LoweringError | None:
    """What is wrong if the graph being compiled supposes something of sizes that no guard will hold a later
    call to; None if all that it supposes is held. What it supposes is forgotten with it.

    Of an input that another input shows a part of, AOTAutograd takes the sizes to be those of "the tensor
    that is shown": symbols that Dynamo has no name for, so it drops their guards (seen with torch 2.13, under
    dynamic sizes). The graph may then hold a size of this call as a number; Dynamo's own graph does not.
    """
    context = torch._guards.TracingContext.try_get()
    env = context and context.fake_mode and context.fake_mode.shape_env
    if not env:
        return None

    def unnamed(expr: sympy.Basic) -> list[str]:
        return sorted(str(symbol) for symbol in expr.free_symbols if not is_named(symbol, env))

    supposed = [guard.expr for guard in env.guards]
    supposed += [sympy.Eq(symbol, value) for symbol, value in env.replacements.items()]
    wrong = next((expr for expr in supposed if unnamed(expr)), None)
    if wrong is None:
        return None
    # They go with the graph that supposed them: Dynamo would fail to write them, in some of its paths.
    env.guards[:] = [guard for guard in env.guards if not unnamed(guard.expr)]
    return LoweringError(
        f"it supposes {wrong}, and no guard can name {unnamed(wrong)[0]}, a size of the tensor that several "
        "inputs show parts of.",
        advice="Pass that tensor alone, or copies of its parts.",
    )


def fix_sizes(module: fx.GraphModule) -> bool:
    """Guard every symbolic size of a graph to be the number that it was traced with, which it is from then
    on. Whether there was any, and guards can still be asked for. LoweringError for a size that Dynamo has no
    name for."""
    if not can_fix(module):
        return False
    for symbol, env in _symbols(module):
        if not can_be_guarded(symbol, env):
            raise LoweringError(
                f"the size {symbol} is known of the tensor alone that several inputs show parts of, and no "
                "guard can name it: pass that tensor, or copies"
            )
    for symbol, env in _symbols(module):
        env.evaluate_expr(sympy.Eq(symbol, hint_of(symbol, env)))
    return True


def can_fix(module: fx.GraphModule) -> bool:
    """Whether a graph has symbolic sizes, and all can still be guarded to be what they were traced with: not
    those that the program has marked to be symbols (``mark_dynamic``), for which that is an error."""
    found = _symbols(module)
    if any(symbol in _marked(env) for symbol, env in found):
        return False
    return bool(found) and not any(env.frozen or hint_of(symbol, env) is None for symbol, env in found)


def _marked(env: Any) -> set[sympy.Symbol]:
    """The symbols that have to stay symbols, or Dynamo raises."""
    found: set[sympy.Symbol] = set()
    for tracked in env.tracked_fakes or ():
        told = getattr(tracked.symbolic_context, "constraint_sizes", None) or ()
        for extent, constraint in zip(getattr(tracked.fake, "shape", ()), told, strict=False):
            if isinstance(extent, torch.SymInt) and constraint and not constraint.warn_only:
                found |= extent.node.expr.free_symbols
    return found


def _symbols(module: fx.GraphModule) -> set[tuple[sympy.Symbol, Any]]:
    """The symbols in the sizes of a graph, each with the environment that knows it."""
    values = [node.meta.get("val") for node in module.graph.nodes]
    flat = [item for value in values for item in (value if isinstance(value, tuple | list) else (value,))]
    extents = [n for item in flat if isinstance(item, torch.Tensor) for n in (*item.shape, *item.stride())]
    nodes = [item.node for item in (*flat, *extents) if isinstance(item, torch.SymInt)]
    return {(symbol, node.shape_env) for node in nodes for symbol in node.expr.free_symbols}
