"""Results of a graph that are conjugates or negatives by a mark.

In eager ``torch.conj`` copies nothing: its result shows its operand's memory, marked (``is_conj``), as the
imaginary part of a conjugate is (``is_neg``). The memory that kernels make holds what it shows, so what the
caller sees with a mark is made by a call of its own, and all that shows the same memory by views of that.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from nbcompile.compiler.in_aten import shows_an_argument
from nbcompile.compiler.marked import marked
from nbcompile.compiler.rewrite.new_nodes import fake_mode, fake_tensors, insert
from nbcompile.compiler.stages import SHOWS_A_MARK

aten = torch.ops.aten


def mark_results(module: fx.GraphModule) -> int:
    """Let marked results of a graph be made by such calls, in place; returns how many calls there are. What
    shows memory that the graph is given is made by ATen's views of that
    (:mod:`nbcompile.compiler.lower.outputs`)."""
    graph = module.graph
    output = graph.output_node()
    inputs = [node.meta.get("val") for node in graph.find_nodes(op="placeholder")]
    given = {_memory(item) for item in inputs if isinstance(item, torch.Tensor)}
    results = [node for node in output.all_input_nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    marks: dict[fx.Node, Any] = {}  # the views that mark, by what they show
    for node in results:
        node.meta.pop(SHOWS_A_MARK, None)
        if _is_marked(node) and _memory(node.meta["val"]) not in given:
            node.meta[SHOWS_A_MARK] = True  # whatever becomes of it here, it stays what it is
            path = _path(node)
            mark = next(item for item in path if _is_marked(item))
            able = [item for item in path[: path.index(mark)] if _can_be(item, mark.meta["val"])]
            sharing = [item for item in results if _memory(item.meta["val"]) == _memory(node.meta["val"])]
            if able and all(able[0] in _path(item) for item in sharing):
                marks.setdefault(able[0], mark.target)
    count = 0
    for source, mark in marks.items():
        with fake_tensors(fake_mode(graph)):
            made = _made(source, mark)
            if made is None:
                continue
            count += 1
            with graph.inserting_after(made):
                plain = insert(made, mark, (made,), f"{source.name}_unmarked")
            for node in results:
                path = _path(node)
                if source in path:
                    again = _again(path[path.index(source) :], made, plain, mark)
                    output.replace_input_with(node, again)
    if count:
        graph.eliminate_dead_code()
        module.recompile()
    return count


def _is_marked(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and (value.is_conj() or value.is_neg())
    )


def _memory(value: torch.Tensor) -> Any:
    return value.untyped_storage()._cdata if value.layout == torch.strided else None


def _path(node: fx.Node) -> list[fx.Node]:
    """The views that lead to a node, the first of all that it shows before them."""
    path = [node]
    while _is_view(path[-1]) and isinstance(path[-1].args[0], fx.Node):
        path.append(path[-1].args[0])
    return path[::-1]


def _is_view(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and _is_view(node.args[0])
    return isinstance(node.target, torch._ops.OpOverload) and shows_an_argument(node.target)


def _can_be(node: fx.Node, marked_value: torch.Tensor) -> bool:
    """Whether what a node makes could be marked in the same way."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and (value.is_complex() or not marked_value.is_conj())


def _made(source: fx.Node, mark: Any) -> fx.Node | None:
    """The call that makes what ``source`` is, marked by ``mark``; None if nothing can say how that lies."""
    value = source.meta["val"]
    with source.graph.inserting_after(source):
        node = insert(source, mark, (source,), f"{source.name}_to_mark")
    conj = node.meta["val"].is_conj()
    args: tuple[Any, ...] = (node, list(value.stride()), conj)
    if not all(isinstance(stride, int) for stride in value.stride()):
        order = sorted(range(value.dim()), key=lambda dim: -_hint(value.stride(dim)))
        if not _in_one_piece(value, order):
            return None
        args = (node, [], conj, order)
    with node.graph.inserting_after(node):
        made = insert(node, marked(), args, f"{node.name}_marked")
    made.meta[SHOWS_A_MARK] = True
    return made


def _in_one_piece(value: torch.Tensor, order: list[int]) -> bool:
    """By the sizes at hand, as its strides are symbols that may be told in other words."""
    step = 1
    for dim in reversed(order):
        if _hint(value.stride(dim)) != step and _hint(value.shape[dim]) != 1:
            return False
        step *= _hint(value.shape[dim])
    return True


def _hint(size: Any) -> int:
    return int(size) if isinstance(size, int) else int(size.node.hint or 1)


def _again(path: list[fx.Node], made: fx.Node, plain: fx.Node, mark: Any) -> fx.Node:
    """The views of ``path`` after its first node, of what ``made`` shows with the mark and ``plain`` shows
    without it."""
    at = plain
    for node in path[1:]:
        if at is plain and node.target is mark:
            at = made
            continue
        with node.graph.inserting_after(max(at, node)):
            at = insert(node, node.target, (at, *node.args[1:]), f"{node.name}_shown", **node.kwargs)
        at.meta[SHOWS_A_MARK] = True
    return at
