"""What an extreme is compared with in backward is what it was found in.

The gradient of ``amax`` goes where ``x == x.amax()``, shared out among as many. Were ``x`` computed anew in
backward, by another kernel, its last bit could be another (a scalar ``erf`` beside a vector one, a product
and a sum in one step): then no element is the largest, and the gradient is 0/0.
"""

from __future__ import annotations

import torch
from torch import fx

aten = torch.ops.aten
_EXTREMES = frozenset({aten.amax.default, aten.amin.default, aten.max.default, aten.min.default,
                       aten.linalg_vector_norm.default})  # fmt: skip
_SAME = frozenset(
    {aten.unsqueeze.default, aten.expand.default, aten.view.default, aten.alias.default, aten.squeeze.dim,
     aten.squeeze.dims, aten.reshape.default, aten.permute.default, aten.detach.default, aten.clone.default,
     aten._to_copy.default, aten._unsafe_view.default}
)  # fmt: skip


def keep_compared(joint: fx.GraphModule) -> None:
    """Have the partitioner save what an extreme is the extreme of, wherever the two are compared."""
    from torch.utils.checkpoint import CheckpointPolicy

    for node in joint.graph.nodes:
        if node.target is not aten.eq.Tensor:
            continue
        for extreme in map(_source, node.args):
            if extreme is None or extreme.target not in _EXTREMES:
                continue
            # of a view the partitioner keeps nothing, and makes what it shows anew
            for kept in (extreme, extreme.args[0], _source(extreme.args[0])):
                if isinstance(kept, fx.Node) and kept.op == "call_function":
                    kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _source(node: object) -> fx.Node | None:
    """The node that a chain of views shows."""
    while isinstance(node, fx.Node) and node.target in _SAME:
        node = node.args[0]
    return node if isinstance(node, fx.Node) else None
