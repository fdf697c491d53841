"""Which parts of a view to show: the head, breaks and notes always; the rest by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from nbcompile.record.compilation import Compilation

_FIELDS: dict[str, dict[str, Any]] = {
    "cell": {"cell": None},
    "graph": {"graphs": ()},
    "fusion": {"decisions": ()},
    "kernels": {"kernels": ()},
    "times": {"measurements": (), "accuracy": (), "autotune": ()},
    "passes": {"passes": ()},
    "capture": {"walks": ()},
    "guards": {"guards": (), "recompiles": ()},
}
PARTS = tuple(_FIELDS)


def selected(compilation: Compilation, parts: Sequence[str]) -> Compilation:
    """``compilation`` with only what the sections named in ``parts`` show; all of it if none is named.

    For sections alone: a head made from the result would say that nothing was captured or timed.
    """
    if not parts:
        return compilation
    dropped: dict[str, Any] = {}
    for part, fields in _FIELDS.items():
        if part not in parts:
            dropped.update(fields)
    return dataclasses.replace(compilation, **dropped)
