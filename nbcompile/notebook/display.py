"""The record on screen and on disk."""

from __future__ import annotations

import json
from pathlib import Path

from nbcompile.errors import ExplorerError
from nbcompile.notebook.arguments import CellOptions
from nbcompile.notebook.play.exploring import explore
from nbcompile.notebook.progress import OutputPlace
from nbcompile.record.compilation import Compilation
from nbcompile.view import MIME, mime_bundle, payload, to_page


def show(compilation: Compilation, options: CellOptions, place: OutputPlace) -> None:
    """Replace the progress line at ``place`` by the record, all of it or the parts asked for.

    The record stored in the notebook is whole in any case, but for ``--live``: then it is a widget, with the
    HTML and text of the record for where there are none.
    """
    bundle = mime_bundle(compilation, options.show)
    metadata = None
    if options.live and place.live:
        try:
            widget = explore(compilation)._repr_mimebundle_()
        except ExplorerError as error:
            print(f"nbcompile: {error}")
        else:
            assert widget is not None, "a widget has a view"
            del bundle[MIME]
            bundle, metadata = {**widget[0], **bundle}, widget[1]
    place.show(bundle, metadata)


def save(compilation: Compilation, file: str) -> None:
    """Write the payload, which any explorer opens (``.json``), or a page that stands alone (``.html``)."""
    if file.endswith(".html"):
        text = to_page(compilation)
    else:
        text = json.dumps(payload(compilation), ensure_ascii=False, separators=(",", ":"))
    Path(file).expanduser().write_text(text, encoding="utf-8")
