"""Draws that backward repeats (``torch.utils.checkpoint`` with dropout in it), ready to be lowered.

The partitioner splits such a draw in two, as higher-order operators: forward saves the generator's state with
the draw, backward draws from that state again (``torch/_prims/rng_prims.py``). It does not note what they
return, which lowering has to know.
"""

from __future__ import annotations

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from nbcompile.compiler.loop_ir.nodes import REPEATED_DRAW, SAVED_DRAW
from nbcompile.compiler.rewrite.new_nodes import fake_mode, fake_tensors, run


def tell_repeated_draws(module: fx.GraphModule) -> None:
    """Note the results of a graph's draws that backward repeats, those of one tensor or of several."""
    nodes = [
        node
        for node in module.graph.nodes
        if "val" not in node.meta and _name(node) in (SAVED_DRAW, REPEATED_DRAW)
    ]
    if not nodes:
        return
    with fake_tensors(fake_mode(module.graph)):
        for node in nodes:
            made = run(node)
            drawn = made[1] if _name(node) == SAVED_DRAW else made
            if all(isinstance(item, torch.Tensor) for item in tree_leaves(drawn)):
                node.meta["val"] = made


def _name(node: fx.Node) -> str:
    target = node.target
    return str(target) if isinstance(target, torch._ops.HigherOrderOperator) else ""
