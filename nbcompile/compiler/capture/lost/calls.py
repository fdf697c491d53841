"""Calls of torch's functions in a captured graph, of which ours take the places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx


def put_in_place_of(module: fx.GraphModule, function: Callable[..., Any], ours: Callable[..., Any]) -> int:
    """Put ``ours`` in place of ``function`` in a graph and those within it; how many calls there were."""
    found = 0
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            calls = part.graph.find_nodes(op="call_function", target=function)
            for node in calls:
                node.target = ours
            if calls:
                part.recompile()
            found += len(calls)
    return found
