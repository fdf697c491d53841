"""Whether the ranks compiled the same graphs: the first node where a rank's record leaves rank 0's."""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.record.compilation import Graph, Node
from nbcompile.record.ranks import Difference, RankRecord


def differences(ranks: Sequence[RankRecord]) -> tuple[Difference, ...]:
    """At most one a rank: the first graph, in the order Dynamo captured them, that is not rank 0's."""
    out = []
    for record in ranks[1:]:
        found = _first(ranks[0], record)
        if found is not None:
            out.append(found)
    return tuple(out)


def _first(mine: RankRecord, other: RankRecord) -> Difference | None:
    left = mine.compilation.of_stage("fx")
    right = other.compilation.of_stage("fx")
    for ours, theirs in zip(left, right):
        place = _parting(ours, theirs)
        if place is None:
            continue
        one, two = _at(ours, place), _at(theirs, place)
        text = f"{_told(two)}, where rank 0 has {_told(one)}"
        return _difference(other, ours.id.partition(".")[0], text, two or one)
    if len(left) != len(right):
        holder = mine if len(left) > len(right) else other
        longer = (left if len(left) > len(right) else right)[min(len(left), len(right))]
        node = next((n for n in longer.nodes if n.spans), None)
        text = f"{len(right)} graphs, where rank 0 has {len(left)}"
        return _difference(other, longer.id.partition(".")[0], text, node, holder)
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


def _difference(
    record: RankRecord, graph: str, text: str, node: Node | None, holder: RankRecord | None = None
) -> Difference:
    spans = node.spans if node is not None else ()
    own = next((span.line for span in spans if not span.file), None)
    line = own or (holder or record).lines.get(graph)
    return Difference(record.rank, graph, text, line, spans[-1] if spans and not own else None)
