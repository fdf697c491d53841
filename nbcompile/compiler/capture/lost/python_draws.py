"""Numbers that a program draws by Python's ``random``.

Dynamo makes each draw an input of the graph, and tells the compiler of a float32 tensor; what it gives the
graph at each call is the draw as float64 (torch 2.11 to 2.13). A kernel made for the one reads four bytes of
the other: ``x * random.random()`` was any number (Inductor's still is). Here the input is what comes, and
what is computed of draws and numbers alone stays float64, as in Python. Where such a number meets a tensor it
has the type that Dynamo told of, unless the result is of float64: a number does not widen a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

EXACT = (torch.float64, torch.complex128)


def told_as_they_come(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Sequence[Any]:
    """Make the draws among a graph's inputs float64, and the graph one that takes them so; the inputs."""
    inputs = module.graph.find_nodes(op="placeholder")
    drawn = [place for place, node in enumerate(inputs) if _is_drawn(node)]
    if not drawn:
        return example_inputs
    examples = list(example_inputs)
    wide: dict[fx.Node, fx.Node | None] = {}
    for place in drawn:
        # Dynamo's example, which may be a fake tensor already, is of the type that it told of.
        examples[place] = torch.zeros((), dtype=torch.float64)
        _tell(inputs[place])
        wide[inputs[place]] = None
    for node in list(module.graph.nodes):
        met = [each for each in node.all_input_nodes if each in wide]
        if not met or node.op == "output":
            continue
        kind = _kind(node)
        if (
            all(each in wide or _kind(each) is None for each in node.all_input_nodes)
            and kind == torch.float32
        ):
            _tell(node)
            wide[node] = None
        elif kind not in EXACT:
            for each in met:
                node.replace_input_with(each, _narrow(each, wide, node))
    module.recompile()
    return examples


def _is_drawn(node: fx.Node) -> bool:
    from torch._dynamo.source import RandomValueSource

    source = getattr(node.meta.get("grapharg"), "source", None)
    return isinstance(source, RandomValueSource) and _kind(node) == torch.float32


def _kind(node: fx.Node) -> torch.dtype | None:
    value = node.meta.get("example_value")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _tell(node: fx.Node) -> None:
    node.meta["example_value"] = node.meta["example_value"].to(torch.float64)


def _narrow(node: fx.Node, made: dict[fx.Node, fx.Node | None], user: fx.Node) -> fx.Node:
    """The number as float32, once: at the line of its first ``user``, as it has none of its own."""
    narrow = made[node]
    if narrow is None:
        with node.graph.inserting_after(_last_input(node)):
            narrow = node.graph.call_method("to", (node, torch.float32))
        narrow.meta = dict(user.meta)
        narrow.meta["example_value"] = node.meta["example_value"].to(torch.float32)
        made[node] = narrow
    return narrow


def _last_input(node: fx.Node) -> fx.Node:
    """After which something may be computed of a node: inputs stand together."""
    return [*node.graph.find_nodes(op="placeholder")][-1] if node.op == "placeholder" else node
