"""Compilers with one fault each, which the fuzzer has to find: they run Dynamo's graph as it is, but for
that."""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

Compiled = Callable[..., Any]


def wrong_numbers(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """A sum is a little too large."""
    return _patched(graph, {"sum": lambda x, *args, **kwargs: x.sum(*args, **kwargs) * 1.001})


def spoils_its_process(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Nothing is wrong with its results, but no other program can be drawn after them."""
    from tests.fuzz import draw

    draw._attempt = lambda *_: None  # type: ignore[assignment]
    return graph.forward


def wrong_edge(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """The last element along the first axis of what torch.cat gives is a zero."""

    def cat(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        joined = torch.cat(tensors, *args, **kwargs)
        mask = torch.ones_like(joined)
        if joined.numel():
            mask[-1:] = 0
        return joined * mask

    return _patched(graph, {"cat": cat})


def drops_update(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """``x.add_(y)`` leaves ``x`` as it was."""
    return _patched(graph, {"add_": lambda x, *args, **kwargs: x.add(*args, **kwargs)})


def copies_views(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Every result has memory of its own."""
    return lambda *args: tuple(_each(graph.forward(*args), torch.clone))


def shares_copies(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """A clone is what it was made of."""
    return _patched(graph, {"clone": lambda x, *args, **kwargs: x})


def grows(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Every result has an axis more."""
    return lambda *args: tuple(_each(graph.forward(*args), lambda x: x[None]))


def other_strides(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Results that are no views come with the strides of a plain tensor."""

    def plain(x: torch.Tensor) -> torch.Tensor:
        return x if x._is_view() or x.is_contiguous() else x.contiguous()

    return lambda *args: tuple(_each(graph.forward(*args), plain))


def other_dtype(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """A comparison gives integers."""
    return _patched(graph, {"gt": lambda x, y: (x > y).long()})


def no_gradient(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """No gradient passes a product."""
    return _patched(graph, {"mul": lambda x, y: (x * y).detach()})


def extra_draw(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Every call draws a random number."""

    def call(*args: Any) -> Any:
        torch.rand(())
        return graph.forward(*args)

    return call


def slightly_off(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """All results are off by an error that may be eager's own, or not."""
    return lambda *args: [item + 1e-4 for item in graph.forward(*args)]


def raises(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Cannot compile torch.flip."""
    if any(_name(node) == "flip" for node in graph.graph.nodes):
        raise NotImplementedError("flip")
    return graph.forward


def dies(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Ends the process where there is a flip, and hangs where there is a roll."""
    names = {_name(node) for node in graph.graph.nodes}
    if "flip" in names:
        os._exit(11)
    if "roll" in names:
        time.sleep(1000)
    return graph.forward


def _each(results: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> list[Any]:
    return [change(item) if isinstance(item, torch.Tensor) else item for item in results]


def _name(node: fx.Node) -> str:
    if node.op == "call_method":
        return str(node.target)
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def _patched(graph: fx.GraphModule, changes: dict[str, Callable[..., Any]]) -> Compiled:
    """The graph with other functions in place of those called so."""
    for node in list(graph.graph.nodes):
        change = changes.get(_name(node))
        if change is not None and not (node.target is operator.mul and not isinstance(node.args[0], fx.Node)):
            node.op, node.target = "call_function", change
    graph.recompile()
    return graph.forward
