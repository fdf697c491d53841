"""Symbolic sizes made numbers, where a compiler can say too little of the symbols."""

from __future__ import annotations

import sympy
import torch
from torch import fx

from nbcompile.compiler.stages import hint_of, is_named
from nbcompile.errors import LoweringError


def fix_sizes(module: fx.GraphModule) -> bool:
    """Guard every symbolic size of a graph to be the number that it was traced with, which it is from then
    on. Whether there was any, and guards can still be asked for. LoweringError for a size that Dynamo has no
    name for."""
    values = [node.meta.get("val") for node in module.graph.nodes]
    flat = [item for value in values for item in (value if isinstance(value, tuple | list) else (value,))]
    extents = [n for item in flat if isinstance(item, torch.Tensor) for n in (*item.shape, *item.stride())]
    nodes = [item.node for item in (*flat, *extents) if isinstance(item, torch.SymInt)]
    found = {(symbol, node.shape_env) for node in nodes for symbol in node.expr.free_symbols}
    for symbol, env in found:
        if env.frozen or hint_of(symbol, env) is None:
            return False
        if not is_named(symbol, env):
            raise LoweringError(
                f"the size {symbol} is known of the tensor alone that several inputs show parts of, and no "
                "guard can name it: pass that tensor, or copies"
            )
    for symbol, env in found:
        env.evaluate_expr(sympy.Eq(symbol, hint_of(symbol, env)))
    return bool(found)
