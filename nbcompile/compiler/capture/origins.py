"""Which FX nodes an ATen graph's nodes came from: by what torch wrote into them when it made them."""

from __future__ import annotations

from typing import Any

from torch import fx

from nbcompile.compiler.capture.graph_record import places_of
from nbcompile.compiler.stages import FxGraph
from nbcompile.record.compilation import Span

MOST = 64
"""Of a sum of gradients: one of all that thousands of calls gave is from nowhere in particular."""


class Origins:
    """Links the nodes of ATen graphs to those of ``graph``. To be made before anything rewrites its module:
    ``inputs`` are its placeholders."""

    def __init__(self, graph: FxGraph, cell_file: str) -> None:
        self.graph = graph
        self.cell_file = cell_file
        self.inputs = [node for node in graph.module.graph.nodes if node.op == "placeholder"]
        self.spans_by_id = {graph.ids[name]: spans for name, spans in graph.spans.items()}

    def of(self, graph: fx.Graph) -> dict[str, tuple[str, ...]]:
        """Node name → ids of the FX nodes it came from. Forward nodes carry the name of their FX node
        through ``from_node``; backward nodes that of the forward op whose autograd node made them."""
        ids = self.graph.ids
        positions = self.input_positions(graph)
        origins: dict[str, tuple[str, ...]] = {}
        by_sequence: dict[int, tuple[str, ...]] = {}
        for node in graph.nodes:
            if node.op == "output":
                continue
            if node.op == "placeholder":
                place = positions.get(node.name)
                if place is not None and place < len(self.inputs):
                    origins[node.name] = (ids[self.inputs[place].name],)
                continue
            meta = node.meta
            backward = "fwd_source_fn_stack" in meta or meta.get("autograd_backward")
            number = meta.get("seq_nr")
            name = None if backward else root_name(meta.get("from_node"), ids)
            if name is None:
                stack = meta.get("fwd_source_fn_stack" if backward else "source_fn_stack")
                name = next((item[0] for item in reversed(stack or ()) if item[0] in ids), None)
            if name is not None:
                origins[node.name] = self.graph.merged.get(name, (ids[name],))
                if not backward and number is not None:
                    by_sequence[number] = _union(by_sequence.get(number, ()), origins[node.name])
            elif number in by_sequence and "Gradient addition" not in str(meta.get("stack_trace")):
                origins[node.name] = by_sequence[number]
            else:
                # Made by autograd itself (sums of gradients, whose number is a stale one; ones_like):
                # from what it reads.
                read = [each for each in node.all_input_nodes if each.op != "placeholder"]
                merged = _union(*(origins.get(each.name, ()) for each in read))[:MOST]
                if merged:
                    origins[node.name] = merged
        return origins

    def spans(self, graph: fx.Graph, origins: dict[str, tuple[str, ...]]) -> dict[str, tuple[Span, ...]]:
        """A node's own stack trace, else the spans of the (first) FX node it came from. Inputs have no
        place of their own: Dynamo gives them that of their first use."""
        spans = {}
        for node in graph.nodes:
            own = places_of(node, self.cell_file, self.graph.callers)
            if not own:
                own = next((s for o in origins.get(node.name, ()) if (s := self.spans_by_id.get(o))), ())
            if own:
                spans[node.name] = own
        return spans

    def input_positions(self, graph: fx.Graph) -> dict[str, int]:
        """Placeholder name → position of the FX graph's input it stands for (tangents have none)."""
        positions: dict[str, int] = {}
        plain = 0
        for node in graph.nodes:
            if node.op != "placeholder" or node.name.startswith("tangents"):
                continue
            # AOTAutograd describes its inputs; without that (or where it made a new one), by order.
            description = node.meta.get("desc")
            place = getattr(description, "idx", None) if description is not None else plain
            plain += 1
            if isinstance(place, int) and not type(description).__name__.startswith(("Tangent", "Synthetic")):
                positions[node.name] = place
        return positions


def root_name(sources: Any, known: Any) -> str | None:
    """The innermost known name in a chain of torch.fx NodeSource objects."""
    for source in reversed(sources or ()):
        deeper = root_name(getattr(source, "from_node", None), known)
        if deeper is not None:
            return deeper
        name = getattr(source, "name", None)
        if name in known:
            return str(name)
    return None


def _union(*groups: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))
