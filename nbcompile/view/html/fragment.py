"""A compilation as an HTML fragment: for a notebook's output, and for a page that stands alone.

It needs no JavaScript, torch or kernel. Jinja escapes everything that comes from the record; the only
Markup is made by :mod:`styles`, :mod:`highlight` and :mod:`nbcompile.view.drawing.svg`, each of which escapes
what it is given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from nbcompile.record.compilation import Compilation
from nbcompile.units import printable
from nbcompile.view.html.model import Model
from nbcompile.view.html.rows import Caps, first_line_kept
from nbcompile.view.html.styles import Styler
from nbcompile.view.pending import Pending
from nbcompile.view.reports.report import section_html

MAX_BYTES = 1_000_000
"""Upper limit of a fragment, in bytes of UTF-8."""
_RUNGS = (1.0, 0.5, 0.25, 0.1, 0.0)
_FIGURE = re.compile(r"(?<!\w)\d(?:[\d,.]*\d)?(?:×|%| [kMGT]?B\b| (?:s|ms|µs|ns)\b)?")


def to_html(compilation: Compilation, show: Sequence[str] = (), pending: Pending | None = None) -> str:
    """An HTML fragment for a notebook output: inline styles only, at most 1 MB, legible in any theme."""
    return str(_fragment(compilation, Styler(page=False), show, pending))


def page_fragment(compilation: Compilation) -> Markup:
    """The same for a page of ours, whose style sheet has the classes of :mod:`styles`."""
    return _fragment(compilation, Styler(page=True))


def _fragment(
    compilation: Compilation, css: Styler, show: Sequence[str] = (), pending: Pending | None = None
) -> Markup:
    """The largest version that fits: huge records are shown with tighter caps, and say so."""
    template = environment().get_template("fragment.html")
    text = ""
    for rung in _RUNGS:
        caps = Caps() if rung == 1.0 else Caps().shrunk(rung)
        text = printable(template.render(m=Model(compilation, css, caps, show, pending), css=css))
        if len(text.encode()) <= MAX_BYTES:
            break
    return Markup(text)


def _emphasise(text: str) -> Markup:
    """Figures in a sentence of facts in bold, the rest escaped."""
    out, last = Markup(""), 0
    for match in _FIGURE.finditer(text):
        out += escape(text[last : match.start()]) + Markup("<b>{}</b>").format(match.group())
        last = match.end()
    return out + escape(text[last:])


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Of the templates: everything is escaped but Markup."""
    environment = Environment(
        loader=PackageLoader("nbcompile.view.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["emphasise"] = _emphasise
    environment.filters["first_line_kept"] = first_line_kept
    environment.filters["table"] = section_html
    environment.filters["title_case"] = lambda text: text[:1].upper() + text[1:]
    return environment
