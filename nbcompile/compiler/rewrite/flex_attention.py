"""FlexAttention written out: its products, and between them whatever the user's functions make of the scores,
as operators of the graph like all others, so that they are fused.

The formulas are torch's own (``sdpa_dense`` and ``sdpa_dense_backward`` of
``torch._higher_order_ops.flex_attention``), traced with the graph's fake tensors. The scores of all pairs are
in memory then, as in eager mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.utils._pytree import tree_flatten, tree_unflatten

from nbcompile.compiler.rewrite.new_nodes import fake_mode, fake_tensors, replace, set_result
from nbcompile.compiler.stages import STEP_OF
from nbcompile.units import bytes_text

NAMES = ("flex_attention", "flex_attention_backward")


def write_out(module: fx.GraphModule, table: Mapping[Any, Any]) -> list[str]:
    """Put the steps of each FlexAttention of a graph in its place, in operators that the decompositions of
    ``table`` leave. Returns a sentence for each."""
    nodes = [node for node in module.graph.nodes if _is_flex(node)]
    said = []
    for node in nodes:
        said.append(f"{node.name} is written out, {_size(node)} of scores in memory")
        _write_out(module, node, table)
    if nodes:
        module.graph.eliminate_dead_code()
        module.graph.lint()
        module.recompile()
    return said


def _is_flex(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.HigherOrderOperator) and str(node.target) in NAMES


def _size(node: fx.Node) -> str:
    query, key = (node.args[place].meta["val"] for place in (0, 1))  # type: ignore[union-attr]
    wide = 8 if query.dtype == torch.float64 else 4
    return bytes_text(math.prod(int(n) for n in (*query.shape[:3], key.shape[2])) * wide)


def _write_out(module: fx.GraphModule, node: fx.Node, table: Mapping[Any, Any]) -> None:
    graph = module.graph
    flat, spec = tree_flatten((node.args, node.kwargs))
    places = [n for n, item in enumerate(flat) if isinstance(item, fx.Node) and not _is_body(module, item)]
    held = [_body(module, item) if isinstance(item, fx.Node) else item for item in flat]
    function: Any = node.target
    dense: Callable[..., Any] = function.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd]

    def steps(*given: torch.Tensor) -> list[Any]:
        filled = list(held)
        for place, item in zip(places, given, strict=True):
            filled[place] = item
        args, kwargs = tree_unflatten(filled, spec)
        return tree_flatten(dense(*args, **kwargs))[0]

    given = [flat[place] for place in places]
    fakes = [item.meta["val"] for item in given]
    with fake_tensors(fake_mode(graph)):
        traced = make_fx(torch.func.functionalize(steps), decomposition_table=table)(*fakes)
    results = _spliced(module, traced, given, node)
    _, result_spec = tree_flatten(node.meta["val"])
    made = tree_unflatten(results, result_spec)
    _hand_out(node, made)
    graph.erase_node(node)


def _spliced(module: fx.GraphModule, traced: fx.GraphModule, given: list[fx.Node], of: fx.Node) -> list[Any]:
    """The nodes of ``traced`` before ``of``, whose steps they are; returns its results."""
    graph = module.graph
    known: dict[fx.Node, Any] = dict(zip(traced.graph.find_nodes(op="placeholder"), given, strict=True))
    meta = {key: value for key, value in of.meta.items() if key not in ("val", "tensor_meta")}
    with graph.inserting_before(of):
        for node in traced.graph.nodes:
            if node.op == "placeholder":
                continue
            if node.op == "output":
                return list(map_arg(node.args[0], lambda item: known[item]))
            if node.op == "get_attr":
                name = f"{of.name}{node.target}"
                module.register_buffer(name, getattr(traced, str(node.target)))
                made = known[node] = graph.get_attr(name)
                made.meta = {**meta, "val": node.meta.get("val", getattr(module, name))}
                continue
            if node.target is torch.ops.aten._to_copy.default and not isinstance(node.args[0], fx.Node):
                known[node] = node.args[0]  # a number, which vmap has made a tensor of
                continue
            made = known[node] = graph.node_copy(node, lambda item: known[item])
            made.meta = {**meta, STEP_OF: str(of.target)}
            set_result(made, node.meta["val"], described=True)
    raise AssertionError("a traced graph has an output")


def _hand_out(node: fx.Node, made: Any) -> None:
    """Have everybody who takes one of the results of ``node`` take what was made of it."""
    for user in list(node.users):
        place: Any = user.args[1]
        item = made[place]
        if isinstance(item, fx.Node):
            replace(user, item)
            user.graph.erase_node(user)
        else:
            _hand_out(user, item)
            user.graph.erase_node(user)


def _is_body(module: fx.GraphModule, node: fx.Node) -> bool:
    return node.op == "get_attr" and isinstance(_body(module, node), fx.GraphModule)


def _body(module: fx.GraphModule, node: fx.Node) -> Any:
    if node.op != "get_attr":
        return None
    found: Any = module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found
