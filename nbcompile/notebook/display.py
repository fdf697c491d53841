"""The record on screen and on disk."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from nbcompile.compilation import Compilation
from nbcompile.notebook.arguments import PARTS, CellOptions
from nbcompile.notebook.progress import Place
from nbcompile.view import MIME, mime_bundle, to_page

# What a part of the view is made from. Graphs carry the links between all others, so they stay unless
# nothing that links is shown; breaks and notes always stay.
_FIELDS: dict[str, dict[str, Any]] = {
    "cell": {"cell": None},
    "graph": {},
    "fusion": {"decisions": ()},
    "kernels": {"kernels": ()},
    "times": {"measurements": (), "accuracy": (), "autotune": ()},
    "passes": {"passes": ()},
    "guards": {"guards": (), "recompiles": ()},
}
assert set(_FIELDS) == set(PARTS), "--show offers exactly these"


def show(compilation: Compilation, options: CellOptions, place: Place) -> None:
    """Replace the progress line at ``place`` by the record, all of it or the parts asked for.

    The record stored in the notebook is whole in any case.
    """
    bundle = mime_bundle(selected(compilation, options.show))
    if options.show:
        bundle[MIME] = json.loads(compilation.to_json())
    place.show(bundle)


def selected(compilation: Compilation, parts: tuple[str, ...]) -> Compilation:
    """``compilation`` with only what the named ``parts`` of a view show; all of it if none is named."""
    if not parts:
        return compilation
    dropped: dict[str, Any] = {}
    for part, fields in _FIELDS.items():
        if part not in parts:
            dropped.update(fields)
    if not {"graph", "cell", "fusion", "kernels"} & set(parts):
        dropped["graphs"] = ()
    return dataclasses.replace(compilation, **dropped)


def save(compilation: Compilation, file: str) -> None:
    """Write the record (``.json``) or a page that stands alone (``.html``)."""
    text = to_page(compilation) if file.endswith(".html") else compilation.to_json(indent=1)
    Path(file).expanduser().write_text(text, encoding="utf-8")
