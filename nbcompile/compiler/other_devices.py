"""Tensors of a graph that are not where its kernels work: a mask that stays on the CPU and is returned, what
``.cpu()`` gives, a shard on another GPU.

No kernel is given their memory. Whatever makes or reads one is called as itself, as eager calls it; all else
of the graph has kernels. Numbers that come in on the CPU are moved, and so is what is only read as a copy.
What is written into an input that is elsewhere (an optimizer's count of steps) is written after the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from nbcompile.compiler.stages import AtenGraph, is_plain

_COPY = torch.ops.aten._to_copy.default
_WRITE = torch.ops.aten.copy_.default


def away(module: fx.GraphModule, device: torch.device) -> frozenset[fx.Node]:
    """The nodes whose tensors are not on ``device``, or not all of them."""
    return frozenset(
        node
        for node in module.graph.nodes
        if node.op != "output"
        and _is_away(node.meta.get("val"), device)
        and not (node.op in ("placeholder", "get_attr") and _is_moved(node, device))
    )


def writing_last(aten: AtenGraph, device: torch.device) -> tuple[AtenGraph, tuple[int, ...]]:
    """The graph less what it writes into inputs that are not on ``device``, and the places of those inputs.
    What each is to hold stands behind the results, for :func:`writes`."""
    nodes = list(aten.module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    written = [
        node
        for node in nodes
        if node.op == "call_function" and node.target is _WRITE and not node.users
        and node.args[0] in inputs and _is_away(node.args[0].meta.get("val"), device)
    ]  # fmt: skip
    if not written:
        return aten, ()
    graph, made = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in nodes:
        if node in written:
            continue
        made[node] = graph.node_copy(node, made.__getitem__)
        if node.op == "output":
            returned: Any = made[node].args[0]
            made[node].args = ((*returned, *(made[item.args[1]] for item in written)),)
    places = tuple(inputs.index(item.args[0]) for item in written)
    return replace(aten, module=fx.GraphModule(aten.module, graph)), places


def writes(call: Callable[[list[Any]], Any], places: tuple[int, ...]) -> Callable[[list[Any]], Any]:
    """``call`` of a graph of :func:`writing_last`, and then what it left out."""

    def writing(args: list[Any]) -> Any:
        targets = [args[place] for place in places]
        results = list(call(args))
        new = results[-len(places) :]
        del results[-len(places) :]
        for target, value in zip(targets, new, strict=True):
            target.copy_(value)
        return results

    return writing


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
