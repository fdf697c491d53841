"""Results of a graph that are conjugates or negatives by a mark.

In eager ``torch.conj`` copies nothing: its result shows its operand's memory, marked (``is_conj``), as the
imaginary part of a conjugate is (``is_neg``). The memory that kernels make holds what it shows, so what the
caller sees with a mark is made by a call of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from nbcompile.compiler.in_aten import shares_elements
from nbcompile.compiler.marked import marked
from nbcompile.compiler.rewrite.new_nodes import fake_mode, fake_tensors, insert


def mark_results(module: fx.GraphModule) -> int:
    """Let each marked result of a graph be made by such a call, in place; returns how many there are. One
    that shows memory which the graph is given is AOTAutograd's to make."""
    graph = module.graph
    output = next(iter(reversed(graph.nodes)))
    inputs = [node.meta.get("val") for node in graph.find_nodes(op="placeholder")]
    given = {_memory(item) for item in inputs if isinstance(item, torch.Tensor)}
    shown = [
        node for node in output.all_input_nodes if _is_marked(node) and _memory(node.meta["val"]) not in given
    ]
    for node in shown:
        value = node.meta["val"]
        with graph.inserting_after(node), fake_tensors(fake_mode(graph)):
            args = (node, list(value.stride()), value.is_conj())
            made = insert(node, marked(), args, f"{node.name}_marked")
        output.replace_input_with(node, made)
    if shown:
        module.recompile()
    return len(shown)


def _is_marked(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and all(isinstance(stride, int) for stride in value.stride())
        and not shares_elements(value)
        and (value.is_conj() or value.is_neg())
    )


def _memory(value: torch.Tensor) -> Any:
    return value.untyped_storage()._cdata if value.layout == torch.strided else None
