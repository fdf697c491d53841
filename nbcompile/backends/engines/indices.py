"""Indices of gathers and scatters, for compilers that read wherever an index points.

Eager mode counts negative ones from the end, where they are allowed, and raises IndexError for what lies
outside. Here they are made positive and kept inside, and one more result says whether one lay outside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from nbcompile.backends.engines.engine import StaticGraph
from nbcompile.compiler.rewrite.new_nodes import fake_mode, fake_tensors, insert

aten = torch.ops.aten

# operator on a tensor, its first argument → position of its index, and of the dimension (None: the first)
_ONE_INDEX: dict[Any, tuple[int, int | None]] = {
    aten.embedding.default: (1, None),
    aten.gather.default: (2, 1),
    aten.index_select.default: (2, 1),
    aten.scatter.src: (2, 1),
    aten.scatter.value: (2, 1),
    aten.scatter_add.default: (2, 1),
}
_LISTS = (aten.index.Tensor, aten.index_put.default, aten._unsafe_index.Tensor)  # an index a dimension


def inside(graph: StaticGraph) -> tuple[StaticGraph, bool]:
    """The same graph with indices in range, and whether it has one result more: how many were not."""
    made = fx.Graph()
    returned: Any = made.graph_copy(graph.module.graph, {})
    outside: list[fx.Node] = []

    def bounded(node: fx.Node, axis: int, index: Any, wrap: bool) -> Any:
        if not isinstance(index, fx.Node):
            return index
        tensor: Any = node.args[0]
        extent = tensor.meta["val"].shape[axis] if tensor.meta["val"].dim() else 1
        with made.inserting_before(node):
            if wrap:
                negative = insert(node, aten.lt.Scalar, (index, 0), "negative")
                from_end = insert(node, aten.add.Tensor, (index, extent), "from_end")
                index = insert(node, aten.where.self, (negative, from_end, index), "index")
            kept = insert(node, aten.clamp.default, (index, 0, max(extent - 1, 0)), "kept")
            moved = insert(node, aten.ne.Tensor, (index, kept), "moved")
            counted = insert(node, aten._to_copy.default, (moved,), "counted", dtype=torch.int64)
            outside.append(insert(node, aten.sum.default, (counted,), "outside"))
        return kept

    with fake_tensors(fake_mode(made)):
        for node in list(made.nodes):
            if node.target is aten.select.int:
                tensor, dim, index = node.args
                if index < 0:
                    node.update_arg(2, index + tensor.meta["val"].shape[dim])
            elif node.target in _ONE_INDEX:
                place, axis = _ONE_INDEX[node.target]
                axis = axis if axis is None else node.args[axis]
                node.update_arg(place, bounded(node, axis or 0, node.args[place], wrap=False))
            elif node.target in _LISTS:
                listed = [bounded(node, axis, each, wrap=True) for axis, each in enumerate(node.args[1])]
                node.update_arg(1, listed)
        total = outside[0] if outside else None
        for other in outside[1:]:
            total = insert(other, aten.add.Tensor, (total, other), "outside")
    made.output((*returned, *([total] if total is not None else [])))
    return StaticGraph(graph.aten, fx.GraphModule(torch.nn.Module(), made)), bool(outside)
