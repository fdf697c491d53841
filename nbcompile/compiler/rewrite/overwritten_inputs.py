"""What backward needs of an input that forward overwrites is saved as it was.

The partitioner takes an input for what costs nothing to keep. Forward graphs overwrite some of theirs
(``copy_`` at the end, for those that need no gradient), and backward would then make anew from the new
numbers what forward made from the old ones: the gradient of ``torch.hypot(x, y)`` followed by ``x.sub_(x)``
is wrong with torch 2.13's own partitioner and Inductor. Others AOTAutograd overwrites after the graph (those
whose update needs a gradient), and autograd then refuses what was saved of them: ``y = x + b; b += y.sum()``
with any other backend.
"""

from __future__ import annotations

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

aten = torch.ops.aten


def keep_old_values(joint: fx.GraphModule, saved: set[str]) -> bool:
    """Have a joint graph read a copy of each overwritten input of those ``saved``, and backward be given that
    copy. Returns whether there was any."""
    graph = joint.graph
    writes = [node for node in graph.nodes if node.target is aten.copy_.default]
    overwritten = {node.args[0] for node in writes} | _overwritten_after(graph)
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    found = False
    for node in list(graph.nodes):
        if node.op != "placeholder" or node not in overwritten or node.name not in saved:
            continue
        with graph.inserting_after(last):
            copy = graph.call_function(aten.clone.default, (node,))
        copy.meta = {**node.meta, "recompute": CheckpointPolicy.MUST_SAVE}
        for user in list(node.users):
            if user is copy or user.op == "output":
                continue
            if user in writes and user.args[0] is node:
                user.args = (node, *(copy if arg is node else arg for arg in user.args[1:]))
            else:
                user.replace_input_with(node, copy)
        found = True
    if found:
        graph.lint()
        joint.recompile()
    return found


def _overwritten_after(graph: fx.Graph) -> set[fx.Node]:
    """Inputs that AOTAutograd overwrites with results of the graph, once it has run."""
    told = graph.find_nodes(op="output")[0].meta.get("desc") or ()
    inputs = [each.mutated_input for each in told if hasattr(each, "mutated_input")]
    return {node for node in graph.find_nodes(op="placeholder") if node.meta.get("desc") in inputs}
