"""A value that is not a record, as text and HTML: a heading, and sections of a table, lines or a listing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nbcompile.units import clip, printable, wrap
from nbcompile.view.html.rows import first_line_kept
from nbcompile.view.html.styles import Styler

_WIDEST, _LINES = 60, 8
_LISTING = 20_000
_NARROW = 30
"""Characters beside a table's other columns, below which a longer text goes on lines of its own."""
_UNBROKEN = 28
"""Characters of an HTML cell, above which its column's cells may be broken into lines."""


@dataclass(frozen=True)
class Styled:
    """A text in a style of :mod:`nbcompile.view.html.styles`; HTML shows ``tip`` where it is pointed at."""

    text: str
    style: str = ""
    tip: str = ""


Value = str | Styled


@dataclass(frozen=True)
class Section:
    """``rows`` under ``heads``, then ``lines``, then ``listing``, a preformatted text that HTML folds away,
    then the sections in it. Columns whose numbers are in ``right`` hold figures; HTML draws a line above the
    rows whose numbers are in ``ruled``, and folds all away if ``folded``. ``more`` rows are left out.
    A table that may be long is ``dense``: a style for every cell would be most of its bytes in HTML. A
    ``shown`` listing is not folded away."""

    title: str = ""
    heads: tuple[Value, ...] = ()
    rows: tuple[tuple[Value, ...], ...] = ()
    listing: str = ""
    lines: tuple[Value, ...] = ()
    inner: tuple[Section, ...] = ()
    right: Collection[int] = ()
    ruled: Collection[int] = ()
    folded: bool = False
    dense: bool = False
    more: int = 0
    shown: bool = False


def to_text(title: str, sections: Sequence[Section], width: int = 120) -> str:
    """Tables with their last column wrapped; listings as they are; all printable."""
    out = wrap(title, width)
    for section in sections:
        out += ["", *_section_text(section, width)]
    return printable("\n".join(line.rstrip() for line in out) + "\n")


def _section_text(section: Section, width: int) -> list[str]:
    out = [section.title] if section.title else []
    out += table_text(section, width)
    for line in section.lines:
        first, *rest = wrap(_plain(line), width - 4, 3)
        out += [f"  {first}", *(f"    {each}" for each in rest)]
    out += section.listing.rstrip().splitlines() if section.listing else []
    return out + [line for each in section.inner for line in _section_text(each, width)]


def table_text(section: Section, width: int) -> list[str]:
    """The lines of a section's table, of at most ``width`` columns where its own fit."""
    if not section.rows:
        return []
    used, shown = _used(section)
    table = [tuple(map(_plain, row)) for row in shown]
    widths = [min(_WIDEST, max(map(len, column))) for column in zip(*table)]
    out = []
    for row in table:
        cells = [
            clip(cell, size).rjust(size) if n in section.right else clip(cell, size).ljust(size)
            for n, cell, size in zip(used, row, widths)
        ]
        start, last = "  ".join(cells[:-1]), (cells[-1] if used[-1] in section.right else row[-1])
        room = width - len(start) - 4
        if room < _NARROW and len(last) > room:
            out.append(f"  {start}")
            out += [f"      {line}" for line in wrap(last, width - 6, _LINES) if line]
            continue
        first, *rest = wrap(last, room, _LINES) if used[-1] not in section.right else [last]
        out.append(f"  {start}  {first}" if cells[:-1] else f"  {first}")
        out += [" " * (len(start) + 4) + line for line in rest]
    return out + ([f"  … {section.more:,} more"] if section.more > 0 else [])


def _used(section: Section) -> tuple[list[int], list[tuple[Value, ...]]]:
    """The numbers of the columns that are not empty, and the last; their heads, if any, and their rows."""
    shown = [section.heads, *section.rows] if any(section.heads) else list(section.rows)
    last = max(map(len, shown)) - 1
    used = [n for n in range(last) if any(_plain(row[n]) for row in section.rows)] + [last]
    return used, [tuple(row[n] for n in used) for row in shown]


def _plain(value: Value) -> str:
    return value.text if isinstance(value, Styled) else value


def to_html(
    title: str, sections: Sequence[Section], about: Sequence[str] = (), below: Markup | None = None
) -> str:
    """A fragment for a notebook output: inline styles, no script, everything escaped. ``about`` has lines
    below the title, ``below`` stands at the end."""
    css = Styler(page=False)
    head = _tag("p", css("verdict", "none"), title)
    head += Markup("").join(_tag("div", css("meta"), line) for line in about)
    body = Markup("").join(section_html(section, css) for section in sections)
    return printable(
        str(_tag("div", css("root"), _tag("div", css("head"), head) + body + (below or Markup(""))))
    )


def section_html(section: Section, css: Styler) -> Markup:
    """A section as HTML in the styles of ``css``, everything escaped."""
    out = Markup("")
    if section.title and not section.folded:
        out += _tag("p", css("title"), section.title)
    if section.rows:
        out += _tag("div", css("scroll"), _tag("table", css("table"), _rows_html(section, css)))
    if section.more > 0:
        out += _tag("div", css("note", "dim"), f"… {section.more:,} more")
    for line in section.lines:
        style = line.style if isinstance(line, Styled) else ""
        out += _tag("div", css(*["note", style][: 1 + bool(style)]), _plain(line))
    if section.listing:
        text, more = section.listing[:_LISTING], len(section.listing) - _LISTING
        text += f"\n… {more:,} more characters" if more > 0 else ""
        shown = _tag("div", css("scroll"), _tag("pre", css("pre", "listing"), text))
        out += shown if section.shown else _fold(css, f"{len(text.splitlines())} lines", shown)
    for each in section.inner:
        out += section_html(each, css)
    return _fold(css, section.title, out) if section.folded else out


def _fold(css: Styler, title: str, body: Markup) -> Markup:
    return _tag("details", css("fold"), _tag("summary", css("summary"), title) + body)


def _rows_html(section: Section, css: Styler) -> Markup:
    used, shown = _used(section)
    out = Markup("")
    if any(section.heads):
        styles = ["numh" if n in section.right else "th" for n in used]
        heads = (_cell(css, style, head, "th") for style, head in zip(styles, shown.pop(0)))
        out += _tag("tr", css("row"), Markup("").join(heads))
    if section.dense:
        columns = (_column(css, [*map(_plain, column)], n, section) for n, column in zip(used, zip(*shown)))
        return out + _tag("tr", css("cellrow"), Markup("").join(columns))
    broken = [max(len(_plain(value)) for value in column) > _UNBROKEN for column in zip(*shown)]
    styles = ["num" if n in section.right else "tdw" if wide else "td" for n, wide in zip(used, broken)]
    for number, row in enumerate(shown):
        cells = Markup("").join(_cell(css, style, value) for style, value in zip(styles, row))
        out += _tag("tr", css("row", *(["rule"] if number in section.ruled else [])), cells)
    return out


def _column(css: Styler, values: Sequence[str], number: int, section: Section) -> Markup:
    """All of a column as one cell, a line a row."""
    width = max(map(len, values)) if number in section.right else 0
    text = first_line_kept("\n".join(value.rjust(width) for value in values))
    return _tag("td", css("column"), _tag("pre", css("gutter" if number else "pre"), text))


def _cell(css: Styler, style: str, value: Value, tag: str = "td") -> Markup:
    if isinstance(value, str):
        return _tag(tag, css(style), value)
    made = css(style, value.style) if value.style else css(style)
    return _tag(tag, made + Markup(' title="{}"').format(value.tip) if value.tip else made, value.text)


def _tag(name: str, style: Markup, content: str) -> Markup:
    """An element with a style; ``content`` is escaped unless it is Markup."""
    return Markup("<{0} {1}>{2}</{0}>").format(Markup(name), style, content)
