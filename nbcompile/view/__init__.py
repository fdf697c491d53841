"""Views of a Compilation: text, HTML, SVG. They read the record and nothing else: no torch, no kernel.

The functions are imported on first use, so that ``import nbcompile`` stays light.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nbcompile.view.pending import Pending, sketch

if TYPE_CHECKING:
    from nbcompile.record.compilation import Compilation

MIME = "application/vnd.nbcompile.v1+json"

__all__ = [
    "MIME",
    "Pending",
    "mime_bundle",
    "payload",
    "scene_schema",
    "to_html",
    "to_page",
    "to_text",
    "whole",
]


def mime_bundle(
    compilation: Compilation, show: Sequence[str] = (), pending: Pending | None = None
) -> dict[str, Any]:
    """The three forms a notebook stores side by side: the payload (the record, packed), HTML and plain text.

    ``show`` names the parts that HTML and text are to have (see :mod:`nbcompile.view.facts.parts`); a sketch
    has its head alone there.
    """
    if pending is not None and pending.sketch:
        show = ("cell",)
    return {
        MIME: payload(compilation, pending),
        "text/html": to_html(compilation, show, pending),
        "text/plain": to_text(compilation, show, pending),
    }


def payload(compilation: Compilation, pending: Pending | None = None) -> dict[str, Any]:
    """What the explorer opens: :func:`whole`, packed. :meth:`Compilation.from_dict` reads it as it reads a
    record."""
    from nbcompile.record.packed import pack

    values = whole(compilation, pending)
    return pack(values, f"{values['view']['title']} · {compilation.backend} · {compilation.mode}")


def whole(compilation: Compilation, pending: Pending | None = None) -> dict[str, Any]:
    """The record as JSON values, and under ``view`` what Python derives from it; its peers likewise."""
    from nbcompile.view.scene import scene_dict

    record = sketch(compilation, pending).to_dict()
    for row, peer in zip(record.get("peers", ()), compilation.peers, strict=True):
        row["view"] = scene_dict(peer)
    return {**record, "view": scene_dict(compilation, pending)}


def scene_schema() -> dict[str, Any]:
    """The JSON schema of a payload's ``view``; the record's is
    :func:`nbcompile.record.compilation.json_schema`."""
    from nbcompile.view.scene import scene_schema

    return scene_schema()


def to_html(compilation: Compilation, show: Sequence[str] = (), pending: Pending | None = None) -> str:
    """An HTML fragment for a notebook output: no script, inline styles, at most 1 MB."""
    from nbcompile.view.html.fragment import to_html

    return to_html(compilation, show, pending)


def to_page(
    compilations: Compilation | Sequence[Compilation],
    title: str = "",
    *,
    script: bool = True,
    above: str = "",
) -> str:
    """A complete HTML file that can be mailed: the explorer, no outside resource, light and dark.

    ``script=False``: the same in plain HTML, for places that let no script through. ``above``: a fragment of
    HTML between title and records, as reports make them (escaped, inline styles).
    """
    from nbcompile.view.html.page import to_page

    return to_page(compilations, title, payload if script else None, above)


def to_text(compilation: Compilation, show: Sequence[str] = (), pending: Pending | None = None) -> str:
    """Plain text of at most 100 columns; the first line is the verdict."""
    from nbcompile.view.text import to_text

    return to_text(compilation, show, pending)
