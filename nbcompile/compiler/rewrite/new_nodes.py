"""New nodes in a graph that AOTAutograd traced: their fake results, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

_OWN = ("val", "tensor_meta", "unbacked_bindings", "eager_input_vals")  # of a node's meta: about its result


def fake_mode(graph: fx.Graph) -> Any:
    """The mode that made the fake tensors of ``graph``; None if there are none among its inputs."""
    from torch._guards import detect_fake_mode

    return detect_fake_mode([node.meta.get("val") for node in graph.nodes if node.op == "placeholder"])


@contextmanager
def fake_tensors(mode: Any) -> Iterator[None]:
    """Within it, operators on the fake tensors of ``mode`` give fake tensors, also of symbolic sizes."""
    from torch._dispatch.python import enable_python_dispatcher

    with mode, enable_python_dispatcher(), torch.no_grad():
        yield


def run(node: fx.Node) -> Any:
    """What a node returns for the fake results of what it reads. Call it within :func:`fake_tensors`."""
    function: Callable[..., Any] = node.target  # type: ignore[assignment]
    args, kwargs = map_arg((node.args, node.kwargs), lambda item: item.meta["val"])
    return function(*args, **kwargs)


def insert(origin: fx.Node, target: Any, args: tuple[Any, ...], name: str, **kwargs: Any) -> fx.Node:
    """A new node at the graph's point of insertion, which came from wherever ``origin`` did, with its fake
    result. Call it within :func:`fake_tensors`."""
    node = origin.graph.create_node("call_function", target, args, kwargs, name=name)
    node.meta = {key: value for key, value in origin.meta.items() if key not in _OWN}
    set_result(node, run(node), "tensor_meta" in origin.meta)
    return node


def set_result(node: fx.Node, result: Any, described: bool) -> None:
    """Note a node's fake result; ``described``: with what torch's partitioner and printers read of it."""
    node.meta["val"] = result
    if described and isinstance(result, torch.Tensor):
        from torch.fx.passes.shape_prop import _extract_tensor_metadata

        node.meta["tensor_meta"] = _extract_tensor_metadata(result)


def replace(node: fx.Node, by: fx.Node) -> None:
    """Have everybody read ``by``, which gives the same. Views of ``node`` are views of it then: that they
    show one memory is told by their fake tensors."""
    old, new = node.meta["val"], by.meta["val"]
    if (old.shape, old.stride(), old.dtype) == (new.shape, new.stride(), new.dtype):
        by.meta["val"] = old
    node.replace_all_uses_with(by)
