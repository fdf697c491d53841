"""What autograd gives a compiled backward graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

Places = tuple[tuple[int, torch.dtype], ...]
"""Which arguments of a backward graph are gradients, and the dtype that each was traced with."""


def traced(module: fx.GraphModule) -> Places:
    """Where a backward graph takes gradients."""
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    return tuple(
        (place, node.meta["val"].dtype)
        for place, node in enumerate(inputs)
        if node.name.startswith("tangents") and isinstance(node.meta.get("val"), torch.Tensor)
    )


def as_traced(call: Callable[[list[Any]], Any], places: Places) -> Callable[[list[Any]], Any]:
    """``call`` of a backward graph, given tensors of the dtypes that it was traced with, whose memory is what
    they hold. Autograd's zeros have none at all (the gradient of ``sgn`` gives such), and the imaginary part
    of a conjugate has the opposite of its numbers there; no compiler sees that a gradient is to be one, for
    it is made only at run time. AOTAutograd takes a gradient's dtype from fake tensors, which may be told
    another than the result really has (``block_diag`` of a float64 number and a float32 matrix)."""

    def checked(args: list[Any]) -> Any:
        for place, dtype in places:
            given = args[place]
            if not isinstance(given, torch.Tensor):
                continue
            if given._is_zerotensor() or given.is_neg():
                given = args[place] = given.clone()
            if given.dtype is not dtype:
                args[place] = given.to(dtype)
        return call(args)

    return checked
