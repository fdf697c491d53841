"""Dropout that is turned off.

``F.dropout(x, p, training=False)`` returns ``x`` itself, and so does one of ``p=0``: what is written to it in
place is written to ``x``.
AOTAutograd traces a tensor apart (``aot_eager`` and Inductor too, torch 2.11 to 2.13), and ``x`` keeps its
numbers, in silence. Here it is what it is in eager.

A graph may then return an input, or one result twice, which Dynamo's never do and AOTAutograd gets wrong (a
gradient is lost where that input is overwritten, another tensor is returned where it is merged with others):
such results are taken out of the graph, and what they are is put in their places after the call.
"""

from __future__ import annotations

import operator
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
_IN_PLACE = frozenset(
    getattr(operator, name)
    for name in "iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift setitem".split()
)


def off_is_its_input(module: fx.GraphModule) -> int:
    """Put its input in place of each dropout that is turned off, where anything is written in place; how
    many were."""
    if not any(map(_writes, module.graph.nodes)):
        return 0
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
    left: dict[fx.Node, int] = {}
    results: list[Any] = []
    places: list[Place] = []
    for item in output.args[0]:
        if item in inputs:
            places.append((True, inputs[item]))
            continue
        if not isinstance(item, fx.Node) or item not in left:
            if isinstance(item, fx.Node):
                left[item] = len(results)
            results.append(item)
            places.append((False, len(results) - 1))
        else:
            places.append((False, left[item]))
    if len(results) == len(places):
        return None
    output.args = (tuple(results),)
    module.recompile()
    return places


def with_repeated(call: Callable[..., Any], places: Sequence[Place]) -> Callable[..., Any]:
    """A graph whose repeated results were taken out, with them."""

    def run(*given: Any) -> tuple[Any, ...]:
        results = call(*given)
        return tuple((given if of_inputs else results)[place] for of_inputs, place in places)

    return run


def _writes(node: fx.Node) -> bool:
    if node.op == "call_method":
        name = str(node.target)
        return name.endswith("_") and not name.endswith("__")
    name = getattr(node.target, "__name__", "")
    return node.op == "call_function" and (
        node.target in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
    )


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
