"""Pairs of loops that a user named, of which a program has not both."""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.near import did_you_mean
from nbcompile.options import Options
from nbcompile.record.compilation import Graph


def pairs_not_there(options: Options, graphs: Sequence[Graph]) -> list[str]:
    """A sentence for each pair of ``no_fuse`` and ``force_fuse`` naming a loop that is not there: nothing
    was decided by it."""
    known = {node.name for graph in graphs if graph.stage in ("loops", "fused") for node in graph.nodes}
    said = []
    for option, pairs in (("no_fuse", options.no_fuse), ("force_fuse", options.force_fuse)):
        for pair in pairs if known else ():
            for name in pair:
                if name not in known:
                    meant = did_you_mean(name, known)
                    said.append(f"{option} {':'.join(pair)}: there is no loop {name} here. {meant}".strip())
    return said
