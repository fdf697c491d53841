"""Small tensors that a program makes on the CPU and uses on a GPU are made on that GPU.

``x[torch.tensor([0, 2])]``, a mask from ``torch.arange(n)`` or a position table passed as an argument are CPU
nodes in a graph that works on a GPU, which kernels cannot read. Eager copies what they hold where it is used;
here the nodes themselves go over, as far as nobody could tell.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import fx

from nbcompile.compiler.rewrite.new_nodes import fake_mode, fake_tensors, insert, run, set_result
from nbcompile.compiler.stages import device_of, is_plain

aten = torch.ops.aten


def gather(module: fx.GraphModule) -> None:
    """Move the CPU nodes of a graph that works on a GPU there, but for those that must stay: what the graph
    returns or overwrites, random numbers (the CPU's generator makes others), copies from the GPU, and what
    these are made from or make. An input that is used there has a copy as its first reader: the launcher's to
    make."""
    device = device_of(module)
    if device.type == "cpu":
        return
    moving = _that_may_move(module, device)
    inputs = [node for node in module.graph.nodes if _is_input(node) and _is_used_there(node, moving, device)]
    if not moving and not inputs:
        return
    with contextlib.nullcontext() if (mode := fake_mode(module.graph)) is None else fake_tensors(mode):
        for node in inputs:
            _copy_there(node, moving, device)
        for node in module.graph.nodes:
            if node in moving:
                _make_there(module, node, device)
    module.recompile()


def _that_may_move(module: fx.GraphModule, device: torch.device) -> set[fx.Node]:
    """The CPU nodes that can be on ``device`` without the graph's results, or what it overwrites, being
    other than they are."""
    moving = {node for node in module.graph.nodes if _may_be_made_there(node)}

    def stays(node: fx.Node) -> bool:
        return _on_cpu(node) and not _is_input(node) and node not in moving

    while True:
        apart = {
            node
            for node in moving
            if any(map(stays, node.all_input_nodes))
            or any(user not in moving and not _is_on(user, device) for user in node.users)
        }
        if not apart:
            return moving
        moving -= apart


def _may_be_made_there(node: fx.Node) -> bool:
    if not _on_cpu(node):
        return False
    if node.op == "get_attr":
        return True
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    if torch.Tag.nondeterministic_seeded in target.tags:
        return False
    tensors = [item for item in node.all_input_nodes if isinstance(item.meta.get("val"), torch.Tensor)]
    return all(_on_cpu(item) and (item.op != "placeholder" or _is_input(item)) for item in tensors)


def _on_cpu(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _is_input(node: fx.Node) -> bool:
    """A CPU input that a copy of is laid out in the same way."""
    return node.op == "placeholder" and _on_cpu(node) and is_plain(node.meta["val"])


def _is_used_there(node: fx.Node, moving: set[fx.Node], device: torch.device) -> bool:
    """By nothing else than what is on the GPU, or goes there; numbers may be read directly."""
    if node.meta["val"].dim() == 0:
        return any(user in moving for user in node.users)
    return bool(node.users) and all(user in moving or _is_on(user, device) for user in node.users)


def _is_on(node: fx.Node, device: torch.device) -> bool:
    value = node.meta.get("val")
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and not node.target._schema.is_mutable
        and all(
            isinstance(item, torch.Tensor) and item.device == device
            for item in (value if isinstance(value, list | tuple) else (value,))
        )
    )


def _copy_there(node: fx.Node, moving: set[fx.Node], device: torch.device) -> None:
    # a number may also be read on the CPU
    users = [user for user in node.users if user in moving or _is_on(user, device)]
    with node.graph.inserting_after(node):
        copy = insert(node, aten._to_copy.default, (node,), f"{node.name}_there", device=device)
    for user in users:
        user.replace_input_with(node, copy)


def _make_there(module: fx.GraphModule, node: fx.Node, device: torch.device) -> None:
    described = "tensor_meta" in node.meta
    if node.op == "get_attr":
        value: Any = module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        node.target = f"{node.name}_there"
        module.register_buffer(node.target, _moved(value, device))
        # its own extents, which torch may have traced as symbols that no guard can name
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
        set_result(node, made, described)
        return
    if "device" in node.kwargs or not any(
        isinstance(item.meta.get("val"), torch.Tensor) for item in node.all_input_nodes
    ):
        node.kwargs = {**node.kwargs, "device": device}
    set_result(node, run(node), described)


def _moved(constant: torch.Tensor, device: torch.device) -> torch.Tensor:
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        return constant.to(device)
