"""The first call of a graph of complex numbers is made outside AOTAutograd's check of custom operators.

AOTAutograd makes the first call of every graph within a dispatch mode that looks for custom operators whose
results alias their arguments. Within it, an operator that is composed of others reads conjugates that nobody
resolves: ``torch.linalg.pinv`` of complex numbers then gives other numbers, that once, under every backend
(seen with torch 2.13, ``aot_eager`` and Inductor too). A graph without custom operators has nothing
for it to find.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

_CHECK = "_AnalyzeCustomOpInputOutputMode"
_TORCHS = frozenset({"aten", "prims", "prim"})
Call = Callable[[list[Any]], Any]


def outside_checks(call: Call, module: fx.GraphModule) -> Call:
    """``call``, which runs ``module``: its first time outside that mode, if that can matter."""
    return first_outside(call) if _is_complex(module) and not has_custom_operators(module) else call


def first_outside(call: Call) -> Call:
    """``call``, its first time outside that mode."""
    first = [True]

    def run(inputs: list[Any]) -> Any:
        if not first:
            return call(inputs)
        first.clear()
        from torch.utils import _python_dispatch as modes

        stack = modes._get_current_dispatch_mode_stack()
        if [type(mode).__name__ for mode in stack] != [_CHECK]:
            return call(inputs)
        with modes._disable_current_modes():
            return call(inputs)

    return run


def _is_complex(module: fx.GraphModule) -> bool:
    values = tree_leaves([node.meta.get("val") for node in module.graph.nodes])
    return any(isinstance(value, torch.Tensor) and value.is_complex() for value in values)


def has_custom_operators(module: fx.GraphModule) -> bool:
    """Whether that mode could find anything in a graph."""
    return any(
        getattr(node.target, "namespace", "aten") not in _TORCHS
        for node in module.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
    )
