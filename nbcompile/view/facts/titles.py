"""What the graphs of a record are called."""

from __future__ import annotations

from nbcompile.record.compilation import Compilation, Graph
from nbcompile.units import clip

STAGE_TITLE = {
    "fx": "FX graph", "joint": "joint graph", "forward": "forward graph", "backward": "backward graph",
    "loops": "loop program", "fused": "fused program",
}  # fmt: skip


OWN_TITLE = {"jaxpr": "jaxpr", "stablehlo": "StableHLO"}
"""What a graph is called whose id ends so, whatever its stage."""

MAX_GRAPHS = 1_000
"""Of a record with more, all are named as those of several captures and of both directions."""


def graph_title(compilation: Compilation, graph: Graph) -> str:
    """``Backward fused program``, ``g1 FX graph`` where several were captured, ``true fused program`` of a
    graph within one."""
    many = len(compilation.graphs) > MAX_GRAPHS
    several = many or len({g.id.split(".")[0] for g in compilation.graphs}) > 1
    parent = ""
    if graph.stage in ("loops", "fused"):
        parts = graph.id.split(".")
        known = {"fw": "forward", "bw": "backward"}
        parent = next((known[part] for part in parts if part in known), "")
        if (
            parent
            and not many
            and not any(part == "bw" for g in compilation.graphs for part in g.id.split("."))
        ):
            parent = ""
    within = graph.id.split(".")[2 : -1 if graph.stage in ("loops", "fused") else None]
    capture = graph.id.split(".")[0] if several else ""
    stage = OWN_TITLE.get(graph.id.rpartition(".")[2], STAGE_TITLE.get(graph.stage, graph.stage))
    words = [capture, parent, *within, stage]
    text = clip(" ".join(word for word in words if word), 60)
    return text[:1].upper() + text[1:] if not several else text
