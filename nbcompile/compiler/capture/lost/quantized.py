"""Quantised tensors: torch's fake tensors have no such types, so a graph that makes one is traced with plain
numbers in its place, and returns those (``aot_eager`` and Inductor too, torch 2.11 to 2.13)."""

from __future__ import annotations

import torch
from torch import fx

from nbcompile.errors import LoweringError

_MAKING = "quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel"
MADE_BY = frozenset(getattr(torch, name) for name in _MAKING.split())


def quantized_lost(graph: fx.Graph) -> LoweringError | None:
    """What is lost where a captured graph makes a quantised tensor; None where it makes none."""
    made = next((node for node in graph.nodes if node.op == "call_function" and node.target in MADE_BY), None)
    return None if made is None else LoweringError("it would lose the type of a quantised tensor")
