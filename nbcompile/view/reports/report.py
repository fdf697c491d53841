"""A value that is not a record, as text and HTML: a heading, and sections of a table or a listing each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nbcompile.units import clip, wrap
from nbcompile.view.html.fragment import printable
from nbcompile.view.html.styles import Styler

_WIDEST, _LINES = 60, 8
_LISTING = 20_000
_NARROW = 90
"""Characters before a table's last column, above which it goes on lines of its own."""
_UNBROKEN = 28
"""Characters of an HTML cell, above which its column's cells may be broken into lines."""


@dataclass(frozen=True)
class Section:
    """``rows`` under ``heads``, or ``listing``, a preformatted text that HTML folds away."""

    title: str
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    listing: str = ""


def to_text(title: str, sections: Sequence[Section], width: int = 120) -> str:
    """Tables with their last column wrapped; listings as they are."""
    out = [title]
    for section in sections:
        out += ["", section.title] if section.title else [""]
        out += _table(section, width)
        out += section.listing.rstrip().splitlines() if section.listing else []
    return "\n".join(line.rstrip() for line in out) + "\n"


def _table(section: Section, width: int) -> list[str]:
    if not section.rows:
        return []
    shown = _used(section)
    last = len(shown[0]) - 1
    widths = [min(_WIDEST, max(len(row[n]) for row in shown)) for n in range(last)]
    out = []
    for row in shown:
        start = "  ".join(clip(cell, size).ljust(size) for cell, size in zip(row, widths))
        if len(start) > _NARROW:
            out.append(f"  {start}")
            out += [f"      {line}" for line in wrap(row[last], width - 6, _LINES) if line]
            continue
        first, *rest = wrap(row[last], width - len(start) - 4, _LINES)
        out.append(f"  {start}  {first}" if widths else f"  {first}")
        out += [" " * (len(start) + 4) + line for line in rest]
    return out


def _used(section: Section) -> list[tuple[str, ...]]:
    """The heads, if there are any, and the rows, without the columns that are empty but for the last."""
    shown = [section.heads, *section.rows] if any(section.heads) else list(section.rows)
    last = max(map(len, shown)) - 1
    used = [n for n in range(last) if any(row[n] for row in section.rows)]
    return [(*(row[n] for n in used), row[last]) for row in shown]


def to_html(title: str, sections: Sequence[Section]) -> str:
    """A fragment for a notebook output: inline styles, everything escaped."""
    css = Styler(page=False)
    out = Markup("<div {}><div {}><p {}>{}</p></div>").format(
        css("root"), css("head"), css("verdict", "none"), title
    )
    for section in sections:
        if section.title:
            out += Markup("<p {}>{}</p>").format(css("title"), section.title)
        if section.rows:
            shown = _used(section)
            head = _row(css, shown.pop(0), ["th"] * len(shown[0])) if any(section.heads) else Markup("")
            styles = ["tdw" if max(map(len, column)) > _UNBROKEN else "td" for column in zip(*shown)]
            rows = Markup("").join(_row(css, row, styles) for row in shown)
            out += Markup("<div {}><table {}>{}{}</table></div>").format(
                css("scroll"), css("table"), head, rows
            )
        if section.listing:
            text = section.listing[:_LISTING]
            out += Markup(
                "<details {}><summary {}>{} lines</summary><div {}><pre {}>{}</pre></div></details>"
            ).format(css("fold"), css("summary"), len(text.splitlines()), css("scroll"), css("pre"), text)
    return printable(str(out + Markup("</div>")))


def _row(css: Styler, cells: Sequence[str], styles: Sequence[str]) -> Markup:
    made = [
        Markup("<{} {}>{}</{}>").format(tag, css(style), cell, tag)
        for style, cell in zip(styles, cells)
        for tag in [Markup("th" if style == "th" else "td")]
    ]
    return Markup("<tr {}>{}</tr>").format(css("row"), Markup("").join(made))
