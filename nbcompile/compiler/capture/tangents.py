"""What autograd gives a compiled backward graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx


def with_memory(call: Callable[[list[Any]], Any], module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """``call`` of a backward graph, given tensors whose memory is what they hold. Autograd's zeros have none
    at all (the gradient of ``sgn`` gives such), and the imaginary part of a conjugate has the opposite of its
    numbers there; no compiler sees that a gradient is to be one, for it is made only at run time."""
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    places = [place for place, node in enumerate(inputs) if node.name.startswith("tangents")]

    def checked(args: list[Any]) -> Any:
        for place in places:
            given = args[place]
            if isinstance(given, torch.Tensor) and (given._is_zerotensor() or given.is_neg()):
                args[place] = given.clone()
        return call(args)

    return checked
