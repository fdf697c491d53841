"""Tensors of a graph that are not where its kernels work: a mask that stays on the CPU and is returned, what
``.cpu()`` gives, a shard on another GPU.

No kernel is given their memory. Whatever makes or reads one is called as itself, as eager calls it; all else
of the graph has kernels. Numbers that come in on the CPU are moved, and so is what is only read as a copy.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from nbcompile.compiler.stages import is_plain

_COPY = torch.ops.aten._to_copy.default


def away(module: fx.GraphModule, device: torch.device) -> frozenset[fx.Node]:
    """The nodes whose tensors are not on ``device``, or not all of them."""
    return frozenset(
        node
        for node in module.graph.nodes
        if node.op != "output"
        and _is_away(node.meta.get("val"), device)
        and not (node.op in ("placeholder", "get_attr") and _is_moved(node, device))
    )


def _is_moved(node: fx.Node, device: torch.device) -> bool:
    """Whether the launcher brings an input or constant to ``device``: all that read it are there."""
    value = node.meta["val"]
    if value.device.type != "cpu" or any(
        user.op == "output" or _is_away(user.meta.get("val"), device) for user in node.users
    ):
        return False
    if value.dim() == 0:
        return True
    copied = node.op == "placeholder" and all(user.target is _COPY for user in node.users)
    return copied and is_plain(value)


def _is_away(value: Any, device: torch.device) -> bool:
    items = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(item, torch.Tensor) and item.device != device for item in items)
