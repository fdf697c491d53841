"""A complete HTML file that can be mailed: the explorer with its records, and the same as plain HTML within.

The file's content-security policy lets exactly two scripts run, named by their hashes: the explorer, and the
chart library once a chart is shown. Records stand in elements that run nothing. The plain HTML is what a
viewer without scripts shows, what is shown beside a record that the explorer refuses, and what is printed.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from markupsafe import Markup

from nbcompile.record.compilation import Compilation
from nbcompile.record.packed import deflated
from nbcompile.units import clip, printable
from nbcompile.view.html.fragment import environment, page_fragment
from nbcompile.view.html.styles import page_style_sheet

MAX_RECORDS = 50
"""More are counted and left out."""
NO_EXPLORER = (
    "This page has no explorer, because this copy of nbcompile was installed without it: in a checkout, "
    "`make explorer` builds it."
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def to_page(
    compilations: Compilation | Sequence[Compilation],
    title: str,
    payload: Callable[[Compilation], dict[str, Any]] | None,
    above: str = "",
) -> str:
    """A complete HTML file with no outside resource, light and dark by the reader's setting.

    ``payload`` makes what the explorer opens; without it there is no explorer, for places that let no script
    through. ``above`` is HTML, shown before the records.
    """
    many = [compilations] if isinstance(compilations, Compilation) else list(compilations)
    shown = many[:MAX_RECORDS]
    name = clip(title, 200) or (f"{many[0].backend} compilation" if len(many) == 1 else "nbcompile")
    explorer = _explorer() if payload else None
    return (
        environment()
        .get_template("page.html")
        .render(
            title=printable(name),
            # The explorer's own head names a record that stands alone.
            heading=explorer is None or title or len(many) != 1,
            policy=Markup(explorer.policy if explorer else _POLICY),
            style=Markup(page_style_sheet() + (explorer.style if explorer else "")),
            note=NO_EXPLORER if payload and explorer is None else "",
            above=Markup(above),
            fragments=[page_fragment(compilation) for compilation in shown],
            payloads=[inert_json(payload(compilation)) for compilation in shown]
            if payload and explorer
            else [],
            explorer=explorer,
            more=len(many) - len(shown),
        )
    )


def inert_json(value: Any) -> Markup:
    """JSON that neither ends the ``<script>`` element it stands in nor is anything else than JSON."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    # All of these can only be inside strings, where an escape means the same.
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@dataclasses.dataclass(frozen=True)
class _Explorer:
    """What ``make explorer`` built, in the form that a page holds it; ``charts`` is deflated, in base64."""

    style: Markup
    script: Markup
    charts: str
    policy: str


def static() -> Traversable:
    """The folder of what ``make explorer`` builds."""
    return files("nbcompile.view").joinpath("static")


def _explorer() -> _Explorer | None:
    """``None`` in a checkout where it has not been built."""
    folder = static()
    if not all(folder.joinpath(name).is_file() for name in ("explorer.js", "plotly.js", "explorer.css")):
        return None
    script, charts = _script(folder.joinpath("explorer.js")), _script(folder.joinpath("plotly.js"))
    return _Explorer(
        style=Markup(folder.joinpath("explorer.css").read_text("utf-8").replace("</", "<\\2f ")),
        script=Markup(script),
        charts=deflated(charts),
        policy=f"default-src 'none'; script-src {_hash(script)} {_hash(charts)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'",
    )


def _script(file: Traversable) -> str:
    """The text as a browser will have it: a page's line ends are newlines.

    What would end or change the element is inside strings and regular expressions of a bundle.
    """
    text = file.read_text("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    return re.sub(r"<(?=!--|/?script)", r"\\x3c", text, flags=re.IGNORECASE)


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
