"""The device that a program makes its tensors on.

Under ``torch.set_default_device`` or ``with torch.device(...)`` Dynamo of torch 2.11 writes ``arange(3)``
with no device into its graph, and leaves it to the modes that are there when the graph runs (torch 2.13
writes the device). AOTAutograd, and whatever compiles for it, traces without those modes: on a GPU positions
and masks come back on the CPU (``aot_eager`` and Inductor too).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx
from torch.utils._device import DeviceContext, _device_constructors

OF_DATA = (torch.tensor, torch.as_tensor)
"""What takes numbers makes a real tensor of them, with which no fake one on a GPU can be traced: it is copied
there."""


def write_default_device(module: fx.GraphModule) -> None:
    """Write the device that the program had as its default into every node of a captured graph, and of those
    within it, that makes a tensor and names none."""
    unnamed = list(_unnamed(module))
    device = _default_device() if unnamed else None
    if device is None:
        return
    for node in unnamed:
        if node.target in OF_DATA:
            _moved(node, device)
            continue
        node.update_kwarg("device", device)
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor):
            node.meta["example_value"] = value.to(device)
    for part in _parts(module):
        part.recompile()


def _moved(node: fx.Node, device: torch.device) -> None:
    with node.graph.inserting_after(node):
        there = node.graph.call_method("to", (node, device))
    there.meta = dict(node.meta)
    value = node.meta.get("example_value")
    if isinstance(value, torch.Tensor):
        there.meta["example_value"] = value.to(device)
    node.replace_all_uses_with(there, lambda user: user is not there)


def _parts(module: fx.GraphModule) -> Iterator[fx.GraphModule]:
    return (part for part in module.modules() if isinstance(part, fx.GraphModule))


def _unnamed(module: fx.GraphModule) -> Iterator[fx.Node]:
    made = _device_constructors()
    for part in _parts(module):
        for node in part.graph.nodes:
            if node.op == "call_function" and node.target in made and node.kwargs.get("device") is None:
                yield node


def _default_device() -> torch.device | None:
    """Of the modes that were there where Dynamo began; it has taken them down since."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        modes = InstructionTranslator.current_tx().output.torch_function_mode_stack
    except AttributeError:  # Dynamo is not at work, or keeps them otherwise
        return None
    devices = [mode.device for mode in modes if isinstance(mode, DeviceContext)]
    return devices[-1] if devices else None
