"""What is computed into a tensor (``out=``), whose strides AOTAutograd forgets.

``torch.add(a, b, out=c)`` leaves ``c`` laid out as it was. AOTAutograd traces the sum without ``c``, and what
comes after reads, and may return, a tensor of the strides that ``a + b`` has (``aot_eager`` and Inductor too,
torch 2.11 to 2.13). Copied into ``c`` it has those of ``c``.
"""

from __future__ import annotations

import torch
from torch import fx


def copy_into_out(module: fx.GraphModule) -> int:
    """Compute apart, and copy, what a captured graph computes into a tensor that is laid out otherwise than
    what it is computed of; how many there were."""
    found = [node for node in module.graph.nodes if node.op == "call_function" and _is_forgotten(node)]
    for node in found:
        out = node.kwargs["out"]
        with module.graph.inserting_before(node):
            given = {name: value for name, value in node.kwargs.items() if name != "out"}
            apart = module.graph.call_function(node.target, node.args, given)
            copied = module.graph.call_method("copy_", (out, apart))
        apart.meta, copied.meta = dict(node.meta), dict(node.meta)
        node.replace_all_uses_with(copied)
        module.graph.erase_node(node)
    if found:
        module.recompile()
    return len(found)


def _is_forgotten(node: fx.Node) -> bool:
    out = node.kwargs.get("out")
    into = out.meta.get("example_value") if isinstance(out, fx.Node) else None
    given = [item.meta.get("example_value") for item in node.all_input_nodes if item is not out]
    tensors = [item for item in given if isinstance(item, torch.Tensor)]
    if not isinstance(into, torch.Tensor) or any(item.dtype != into.dtype for item in tensors):
        return False  # of another type it may be computed otherwise: a sum adds up in that of ``out``
    made = node.meta.get("example_value")
    if not isinstance(made, torch.Tensor) or made.shape != into.shape:
        return False  # it is given another size
    alike = [item for item in tensors if item.dim() == into.dim()]
    return any(item.stride() != into.stride() for item in alike)
