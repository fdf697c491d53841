"""Index tensors made from nothing are made again in backward, not saved by forward.

The gradient of a gather by such a tensor (nearest upsampling, flips, strided picks) can be written without
atomics only where the index is seen to be a formula, and a saved tensor shows nothing of that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from nbcompile.compiler.rewrite.overwritten_inputs import keep_old_values

MOST_ELEMENTS = 1 << 16
_INDEXED = frozenset(
    "index _unsafe_index index_put _unsafe_index_put gather index_select index_add index_copy scatter "
    "scatter_add scatter_reduce embedding_dense_backward".split()
)


def make_again(joint: fx.GraphModule, forward_outputs: int) -> bool:
    """Give the backward part of a joint graph its own copies of such tensors. Returns whether there were any:
    the graph must not be searched for common subexpressions after that (it has been, here)."""
    from torch._functorch.compile_utils import fx_graph_cse

    if not any(_index_arguments(node) for node in joint.graph.nodes):
        return False
    joint.graph.eliminate_dead_code()
    if not _finds_sizes_twice(joint):
        joint.graph = fx_graph_cse(joint.graph)
    graph = joint.graph
    constant = _made_from_nothing(graph)
    forward = _needed(graph.find_nodes(op="output")[0].args[0][:forward_outputs])
    copies: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        if node in forward:
            continue
        for used in _index_arguments(node):
            if used in constant and used in forward:
                node.replace_input_with(used, _copy(graph, used, copies))
    if not copies:
        return False
    graph.lint()
    joint.recompile()
    return True


def split(
    joint: fx.GraphModule, inputs: Any, again: bool, **keywords: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Forward and backward by minimum cut. ``again``: what :func:`make_again` returned, whose copies a search
    for common subexpressions would undo."""
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    keep = again or _finds_sizes_twice(joint)
    with config.patch(cse=False) if keep else contextlib.nullcontext():
        parts = min_cut_rematerialization_partition(joint, inputs, **keywords)
        outputs = parts[0].graph.find_nodes(op="output")[0].args[0][keywords["num_fwd_outputs"] :]
        if keep_old_values(joint, {node.name for node in outputs if isinstance(node, fx.Node)}):
            return min_cut_rematerialization_partition(joint, inputs, **keywords)
        return parts


def _finds_sizes_twice(joint: fx.GraphModule) -> bool:
    """Whether several nodes find a size in their data (``nonzero``, ``x[mask]``). Of two alike, torch's
    search for common subexpressions keeps one, and what follows the other names a size that none finds."""
    return sum("unbacked_bindings" in node.meta for node in joint.graph.nodes) > 1


def _index_arguments(node: fx.Node) -> list[fx.Node]:
    if _name(node) not in _INDEXED:
        return []
    return [each for each in node.all_input_nodes if _is_index(each)]


def _is_index(node: fx.Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.int64, torch.int32):
        return False
    return all(isinstance(extent, int) for extent in value.shape) and value.numel() <= MOST_ELEMENTS


def _made_from_nothing(graph: fx.Graph) -> set[fx.Node]:
    """Small tensors that depend on no input of the graph and on no random number."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if torch.Tag.nondeterministic_seeded in node.target.tags or node.target._schema.is_mutable:
            continue
        small = isinstance(value, torch.Tensor) and all(isinstance(extent, int) for extent in value.shape)
        if small and value.numel() <= MOST_ELEMENTS and all(each in found for each in node.all_input_nodes):
            found.add(node)
    return found


def _needed(outputs: Sequence[object]) -> set[fx.Node]:
    """What the first outputs are made from, themselves included."""
    stack = [item for item in outputs if isinstance(item, fx.Node)]
    found: set[fx.Node] = set()
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found


def _copy(graph: fx.Graph, node: fx.Node, copies: dict[fx.Node, fx.Node]) -> fx.Node:
    """A copy of ``node`` and of all it is made from, beside the original."""
    if node not in copies:
        given = {each: _copy(graph, each, copies) for each in node.all_input_nodes}
        with graph.inserting_after(node):  # what it is made from has copies beside what that one is made from
            copies[node] = graph.node_copy(node, lambda each: given[each])
    return copies[node]


def _name(node: fx.Node) -> str:
    target = node.target
    return target._schema.name.rpartition("::")[2] if isinstance(target, torch._ops.OpOverload) else ""
