"""Updates that torch loses on the way to AOTAutograd, or that AOTAutograd writes as what torch refuses.

A tensor without axes, of float64 and on the CPU, is what Dynamo wraps a Python number in. The pass that takes
such numbers out of graphs again (``torch.fx.passes._tensorify_python_scalars``) meets the user's own tensors
too, restarts Dynamo, and the graph that comes then has lost what the user's program writes into one:
``torch.compile(lambda x: x.mul_(2).sin(), backend="aot_eager")`` leaves ``x = torch.tensor(1.0).double()`` as
it is (torch 2.11 to 2.13).

What is written through an ``expand`` AOTAutograd adds to the tensor as the difference to what it held, and
torch subtracts no bools: of fixed sizes it fails then, of symbolic ones it makes a graph that cannot run.
"""

from __future__ import annotations

import operator

import torch
from torch import fx

_SUB = torch.ops.aten.sub.Tensor
_IN_PLACE = {
    operator.iadd, operator.iand, operator.ifloordiv, operator.imod, operator.imul, operator.ior,
    operator.ipow, operator.isub, operator.itruediv, operator.ixor, operator.setitem,
}  # fmt: skip


def updated_number(module: fx.GraphModule) -> str:
    """The name of an input of this kind that a captured graph writes to, it or what may show its memory;
    empty if there is none."""
    held: dict[fx.Node, str] = {}  # node → the input whose memory it may show
    for node in module.graph.nodes:
        if node.op == "placeholder":
            if _is_number(node.meta.get("example_value")):
                held[node] = str(node.target)
        elif (written := _written(node)) in held:
            return held[written]
        elif node.args and node.args[0] in held:
            held[node] = held[node.args[0]]
    return ""


def subtracts_bools(module: fx.GraphModule) -> bool:
    """Whether an ATen graph holds a subtraction that torch refuses to run."""
    return any(
        all(_is_bool(item) for item in node.args) for node in module.graph.nodes if node.target is _SUB
    )


def _is_bool(item: object) -> bool:
    value = item.meta.get("val") if isinstance(item, fx.Node) else item
    return isinstance(value, bool) or (isinstance(value, torch.Tensor) and value.dtype == torch.bool)


def _is_number(value: object) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and (value.dim(), value.dtype, value.device.type) == (0, torch.float64, "cpu")
    )  # fmt: skip


def _written(node: fx.Node) -> fx.Node | None:
    """What a node overwrites, if it does."""
    out = node.kwargs.get("out")
    if isinstance(out, fx.Node):
        return out
    name = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    first = node.args[0] if node.args else node.kwargs.get("input")
    overwrites = in_place or node.kwargs.get("inplace") is True or node.target in _IN_PLACE
    return first if overwrites and isinstance(first, fx.Node) else None
