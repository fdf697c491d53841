"""Backward of a log_softmax reads its input again, with two numbers a row, and not its result.

The gradient is written in terms of the result, so the result would be stored, though often nobody else
wants all of it: a loss picks one element a row. Written out as ``x - max - log(sum)``, its maximum and the
logarithm are what is saved, and forward reads the logits once and writes none. The gradient is also nearer
to the exact one, for a result of a half type was rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from nbcompile.compiler.rewrite.new_nodes import fake_mode, fake_tensors, insert, replace
from nbcompile.compiler.stages import STEP_OF

aten = torch.ops.aten

_FORWARD, _BACKWARD = aten._log_softmax.default, aten._log_softmax_backward_data.default
_VIEWS = (aten.alias.default, aten.detach.default)
_WIDE = {torch.bfloat16: torch.float32, torch.float16: torch.float32}


def write_out(joint: fx.GraphModule) -> int:
    """Write out each log_softmax of a joint graph whose gradient is taken, and that gradient. Returns how
    many there were."""
    graph = joint.graph
    mode = fake_mode(graph)
    found = [node for node in graph.nodes if node.op == "call_function" and node.target is _FORWARD]
    done = 0
    for node in found if mode is not None else ():
        gradients = _gradients(node)
        if not gradients or not _is_plain(node):
            continue
        with fake_tensors(mode):
            exact = _result(graph, node)
            for gradient in gradients:
                _gradient(graph, gradient, exact)
        done += 1
    if done:
        graph.eliminate_dead_code()
        graph.lint()
        joint.recompile()
    return done


def _gradients(node: fx.Node) -> list[fx.Node]:
    """The gradients that are made of a result, seen through views of the whole of it."""
    found: list[fx.Node] = []
    for user in node.users:
        if user.target in _VIEWS:
            found += _gradients(user)
        elif user.target is _BACKWARD and user.args[1] is node:
            found.append(user)
    return found


def _is_plain(node: fx.Node) -> bool:
    """Whether its rows have elements, and its result lies as that of the steps would."""
    x, result = _tensor(node.args[0]), _tensor(node)
    if x.dim() == 0 or any(isinstance(extent, int) and extent == 0 for extent in x.shape):
        return False
    return x.stride() == result.stride()


def _tensor(node: Any) -> torch.Tensor:
    """The fake result of a node."""
    value: torch.Tensor = node.meta["val"]
    return value


def _steps(node: fx.Node, of: str) -> Callable[..., fx.Node]:
    """What makes the steps ``(name, target, *arguments)`` that ``node``, the operator ``of``, consists of."""

    def step(name: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        made = insert(node, target, args, f"{node.name}_{name}", **kwargs)
        made.meta[STEP_OF] = of
        return made

    return step


def _result(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Put the steps of a log_softmax in its place; returns the result before it is rounded."""
    x, dim = node.args[:2]
    step = _steps(node, "_log_softmax")
    with graph.inserting_before(node):
        wide = _WIDE.get(_tensor(x).dtype)
        logits = step("wide", aten._to_copy.default, x, dtype=wide) if wide else x
        top = step("max", aten.amax.default, logits, [dim], True)
        below = step("below", aten.sub.Tensor, logits, top)
        each = step("exp", aten.exp.default, below)
        total = step("sum", aten.sum.dim_IntList, each, [dim], True)
        exact = step("exact", aten.sub.Tensor, below, step("log", aten.log.default, total))
        dtype, result = _tensor(node).dtype, exact
        if _tensor(exact).dtype != dtype:
            result = step("result", aten._to_copy.default, exact, dtype=dtype)
    replace(node, result)
    return exact


def _gradient(graph: fx.Graph, node: fx.Node, exact: fx.Node) -> None:
    """Put the steps of a gradient in its place: ``g - exp(y) * sum(g)``."""
    grad, _, dim, dtype = node.args
    step = _steps(node, "_log_softmax_backward_data")
    with graph.inserting_before(node):
        wide = _WIDE.get(_tensor(grad).dtype)
        given = step("wide", aten._to_copy.default, grad, dtype=wide) if wide else grad
        total = step("sum", aten.sum.dim_IntList, given, [dim], True)
        share = step("share", aten.mul.Tensor, step("exp", aten.exp.default, exact), total)
        result = step("exact", aten.sub.Tensor, given, share)
        if _tensor(result).dtype != dtype:
            result = step("result", aten._to_copy.default, result, dtype=dtype)
    replace(node, result)
