"""Whether the ranks compiled the same graphs: the first node where a rank's record leaves rank 0's."""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.compilation import Compilation, Graph, Node
from nbcompile.ranks import Difference, RankRecord


def differences(ranks: Sequence[RankRecord]) -> tuple[Difference, ...]:
    """At most one a rank: the first graph, in the order Dynamo captured them, that is not rank 0's."""
    out = []
    for record in ranks[1:]:
        found = _first(ranks[0].compilation, record.compilation, record.rank)
        if found is not None:
            out.append(found)
    return tuple(out)


def _first(mine: Compilation, other: Compilation, rank: int) -> Difference | None:
    left = [graph for graph in mine.graphs if graph.stage == "fx"]
    right = [graph for graph in other.graphs if graph.stage == "fx"]
    for ours, theirs in zip(left, right):
        place = _parting(ours, theirs)
        if place is None:
            continue
        one, two = _at(ours, place), _at(theirs, place)
        text = f"{_told(two)}, where rank 0 has {_told(one)}"
        return _difference(rank, ours.id.partition(".")[0], text, two or one)
    if len(left) != len(right):
        longer = (left if len(left) > len(right) else right)[min(len(left), len(right))]
        node = next((n for n in longer.nodes if n.spans), None)
        text = f"{len(right)} graphs, where rank 0 has {len(left)}"
        return _difference(rank, longer.id.partition(".")[0], text, node)
    return None


def _parting(left: Graph, right: Graph) -> int | None:
    for place, (one, two) in enumerate(zip(left.nodes, right.nodes)):
        if _key(one) != _key(two):
            return place
    return min(len(left.nodes), len(right.nodes)) if len(left.nodes) != len(right.nodes) else None


def _key(node: Node) -> tuple[object, ...]:
    inputs = tuple(id.partition(".")[2] for id in node.inputs)
    return node.op, node.kind, inputs, node.shape, node.dtype, node.text


def _at(graph: Graph, place: int) -> Node | None:
    return graph.nodes[place] if place < len(graph.nodes) else None


def _told(node: Node | None) -> str:
    return (node.text or f"{node.name} = {node.op}") if node is not None else "the end of the graph"


def _difference(rank: int, graph: str, text: str, node: Node | None) -> Difference:
    span = node.spans[-1] if node is not None and node.spans else None
    own = next((s for s in node.spans if not s.file), None) if node is not None else None
    best = own or span
    return Difference(rank, graph, text, best.line if best else None, best.file if best else "")
