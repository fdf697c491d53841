"""A record that is shown while it is still being measured."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbcompile.record.compilation import Compilation

LARGE = 2_000
"""Nodes that are left out of the first view of a record: it is there in a third of the time without them."""
_FIRST = ("fused", "loops")


@dataclass(frozen=True)
class Pending:
    """What is still to come: ``text`` says what is being done, ``since`` is when measuring began, in seconds
    since 1970. ``sketch``: for now only the graphs are there that kernels are made of (:func:`sketch`)."""

    text: str
    since: float
    sketch: bool = False


def deserves_a_sketch(compilation: Compilation) -> bool:
    """Whether so much of a record is in other graphs than those that kernels are made of that it should be
    shown without them first."""
    if not any(graph.stage == "fused" for graph in compilation.graphs):
        return False
    return sum(len(graph.nodes) for graph in compilation.graphs if graph.stage not in _FIRST) > LARGE


def sketch(compilation: Compilation, pending: Pending | None) -> Compilation:
    """``compilation`` with the graphs alone that kernels are made of where that is ``pending``, else all of
    it. For what is drawn and sent: figures are those of the whole."""
    if pending is None or not pending.sketch:
        return compilation
    kept = tuple(graph for graph in compilation.graphs if graph.stage in _FIRST)
    return dataclasses.replace(compilation, graphs=kept)
