"""What an extreme is compared with in backward is what it was found in.

The gradient of ``amax`` goes where ``x == x.amax()``, shared out among as many; so do those of other
extremes, of medians and of ``scatter_reduce``. Were ``x`` computed anew in backward, by another kernel, its
last bit could be another (a scalar ``erf`` beside a vector one, a product and a sum in one step, a step that
is stored there and so rounded to a half type): then no element is the largest, and the gradient is 0/0.
"""

from __future__ import annotations

import operator

import torch
from torch import fx

aten = torch.ops.aten
_FOUND = frozenset(  # an element of the first argument, or of others
    {aten.amax.default, aten.amin.default, aten.max.default, aten.min.default, aten.median.default,
     aten.nanmedian.default, aten.linalg_vector_norm.default, aten.dist.default, aten.scatter_reduce.two,
     aten.index_reduce.default}
)  # fmt: skip
_PICKS = frozenset({aten.gather.default, aten.index_select.default, aten.index.Tensor, aten.abs.default})
_COPIES = frozenset({aten.clone.default, aten._to_copy.default, aten._unsafe_view.default})


def keep_compared(joint: fx.GraphModule) -> None:
    """Have the partitioner save what an extreme is the extreme of, wherever the two are compared."""
    from torch.utils.checkpoint import CheckpointPolicy

    for node in joint.graph.nodes:
        if node.target is not aten.eq.Tensor:
            continue
        compared = [_source(side) for side in node.args]
        for found in compared:
            if found is None or found.target not in _FOUND:
                continue
            # of a view the partitioner keeps nothing, and makes what it shows anew
            for kept in (*compared, found.args[0], _source(found.args[0])):
                if isinstance(kept, fx.Node) and kept.op == "call_function":
                    kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _source(node: object) -> fx.Node | None:
    """The node that a chain of views, copies and picked elements shows."""
    while isinstance(node, fx.Node) and _shows(node):
        node = node.args[0]
    return node if isinstance(node, fx.Node) else None


def _shows(node: fx.Node) -> bool:
    target = node.target
    of_several = target is operator.getitem and isinstance(node.args[0], fx.Node)  # of a split
    if of_several:
        target = node.args[0].target  # type: ignore[union-attr]
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return target in _COPIES | _PICKS or any(item.alias_info is not None for item in target._schema.returns)
