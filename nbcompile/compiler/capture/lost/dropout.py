"""Dropout that is turned off.

``F.dropout(x, p, training=False)`` returns ``x`` itself, and so does one of ``p=0``: what is written to it in
place, in the graph or after it, is written to ``x``. AOTAutograd traces a tensor apart (``aot_eager`` and
Inductor too, torch 2.11 to 2.13), and ``x`` keeps its numbers, in silence. Here it is what it is in eager.

A graph may then return an input, or one result twice, which Dynamo's never do and AOTAutograd gets wrong (a
gradient is lost where that input is overwritten, another tensor is returned where it is merged with others):
such results are taken out of the graph, and what they are is put in their places after the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import functional

DROPOUTS = (
    functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d,
    functional.alpha_dropout, functional.feature_alpha_dropout, torch.dropout, torch.alpha_dropout,
    torch.feature_dropout, torch.feature_alpha_dropout,
)  # fmt: skip
"""All take ``(input, p, training)``, the last of which torch's own call ``train``."""


def off_is_its_input(module: fx.GraphModule) -> int:
    """Put its input in place of each dropout that is turned off; how many were."""
    off = [node for node in module.graph.nodes if node.op == "call_function" and _is_off(node)]
    for node in off:
        node.replace_all_uses_with(_argument(node, 0, "input"))
        module.graph.erase_node(node)
    if off:
        module.recompile()
    return len(off)


Place = tuple[bool, int]
"""Where a result is found: whether among the inputs, else among what the graph returns, and its place."""


def without_repeated(module: fx.GraphModule) -> list[Place] | None:
    """Take the results out of a graph that are its inputs or earlier results; where each of the results that
    it had is found then, None if all are left in it."""
    (output,) = module.graph.find_nodes(op="output")
    inputs = {node: place for place, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    left: dict[Any, int] = {}
    places: list[Place] = []
    for item in output.args[0]:
        known = inputs.get(item)
        places.append((True, known) if known is not None else (False, left.setdefault(item, len(left))))
    if all(places[place] == (False, place) for place in range(len(places))):
        return None
    output.args = (tuple(left),)
    module.recompile()
    return places


def with_repeated(call: Callable[..., Any], places: Sequence[Place]) -> Callable[..., Any]:
    """A graph whose repeated results were taken out, with them."""

    def run(*given: Any) -> tuple[Any, ...]:
        results = call(*given)
        return tuple((given if of_inputs else results)[place] for of_inputs, place in places)

    return run


def _is_off(node: fx.Node) -> bool:
    if node.target not in DROPOUTS or not isinstance(_argument(node, 0, "input"), fx.Node):
        return False
    probability = _argument(node, 1, "p")
    never = isinstance(probability, int | float) and probability == 0
    return never or _argument(node, 2, "training", "train") is False


def _argument(node: fx.Node, place: int, *names: str) -> Any:
    """What a call is given there or by one of these names; None: nothing."""
    if len(node.args) > place:
        return node.args[place]
    return next((node.kwargs[name] for name in names if name in node.kwargs), None)
