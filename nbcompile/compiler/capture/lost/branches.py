"""Branches of a ``torch.cond`` whose results differ in size, where torch has come to one size for both.

Dynamo gives what the two may return a size of its own (``u0``), known when the branch has run. What is done
with the result may equate that size with another (``result + x``): torch then writes that one wherever the
own one stood, nothing checks it when the graph runs, and every later size is wrong where a branch gives
another (torch 2.11 to 2.13). Run in ATen, such a graph takes the sizes as they come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from nbcompile.errors import LoweringError


def branches_lost(module: fx.GraphModule) -> LoweringError | None:
    """What is wrong if an ATen graph supposes a size of a ``cond`` that a branch of it does not give."""
    for owner in (item for item in module.modules() if isinstance(item, fx.GraphModule)):
        for node in owner.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond):
            for branch in node.args[1:3]:
                for supposed, given in _sizes(node, getattr(owner, branch.target)):
                    if not free_unbacked_symbols(supposed) and not statically_known_true(supposed == given):
                        said = f"torch supposes that cond gives a size of {supposed}; a branch gives {given}"
                        return LoweringError(
                            said,
                            advice="Have both branches return one size, or choose with torch.where.",
                        )
    return None


def _sizes(node: fx.Node, branch: fx.GraphModule) -> Iterator[tuple[Any, Any]]:
    """Each extent of the results of a ``cond``, as its graph has it and as a branch does."""
    (output,) = branch.graph.find_nodes(op="output")
    inner = [item.meta.get("val") if isinstance(item, fx.Node) else item for item in output.args[0]]
    outer = node.meta.get("val")
    for told, made in zip(outer if isinstance(outer, tuple | list) else (outer,), inner, strict=False):
        if isinstance(told, torch.Tensor) and isinstance(made, torch.Tensor) and told.dim() == made.dim():
            yield from zip(told.shape, made.shape, strict=True)
