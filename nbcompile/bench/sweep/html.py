"""A sweep in a notebook's output: the sentence, the notes and the table, legible in any theme, no script."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from nbcompile.units import bytes_text, clip, error_text, ratio_text, seconds_text, significant
from nbcompile.view.html.fragment import printable
from nbcompile.view.html.styles import Styler

if TYPE_CHECKING:
    from nbcompile.bench.sweep.result import Sweep

_MOST_ROWS = 200
_SHOWN = {
    "steady": "steady",
    "speedup": "× eager",
    "cold": "cold",
    "warm": "warm",
    "first": "first",
    "peak_bytes": "memory",
    "kernels": "kernels",
    "graphs": "graphs",
    "breaks": "breaks",
    "recompiles": "recompiles",
    "error": "error",
    "eager_error": "eager's",
    "break_even": "break-even",
}
_GOOD, _BAD = ("yes",), ("no",)


def to_html(sweep: Sweep) -> str:
    """An HTML fragment with inline styles only. Of a long sweep the first 200 rows."""
    css = Styler(page=False)
    rows = sweep.rows()
    keys = [key for key, _ in sweep.grid.axes]
    shown = [name for name in _SHOWN if any(row[name] not in (None, 0) for row in rows)]
    out = [_tag("div", css("root"), _head(sweep, css))]
    heads = [_tag("th", css("th"), key) for key in keys]
    heads += [_tag("th", css("numh"), _SHOWN[name]) for name in shown]
    heads.append(_tag("th", css("th"), ""))
    body = [_tag("tr", css("row"), Markup("").join(heads))]
    fastest = _fastest(sweep, rows)
    last: Any = None
    numbered = [item for item in enumerate(zip(sweep.points, rows, strict=True)) if _has_row(item[1][1])]
    for number, (point, row) in numbered[:_MOST_ROWS]:
        body.append(_row(row, keys, shown, css, number in fastest, point.setting != last))
        last = point.setting
    table = _tag("table", css("table"), Markup("").join(body))
    out.append(_tag("div", css("scroll"), table))
    if len(numbered) > _MOST_ROWS:
        out.append(_tag("div", css("note", "dim"), f"{len(numbered) - _MOST_ROWS:,} more rows: see .table()"))
    left = dict.fromkeys(row["reason"] for row in rows if not _has_row(row))
    if left:
        out.append(_tag("div", css("note", "dim"), "Not run: " + clip("; ".join(left), 600)))
    whole = Markup("").join([Markup(str(out[0])[: -len("</div>")]), *out[1:], Markup("</div>")])
    return printable(str(whole))


def _head(sweep: Sweep, css: Styler) -> Markup:
    counts: dict[str, int] = {}
    for outcome in sweep.outcomes.values():
        counts[outcome.status] = counts.get(outcome.status, 0) + 1
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    parts = [
        _tag("div", css("strong"), sweep.advice()),
        _tag("div", css("meta"), f"{len(sweep)} points: {told}. Steady times are medians of one call."),
        *(_tag("div", css("meta"), note) for note in sweep.notes),
    ]
    return _tag("div", css("head"), Markup("").join(parts))


def _row(
    row: dict[str, Any], keys: list[str], shown: list[str], css: Styler, fastest: bool, first: bool
) -> Markup:
    cells = [_tag("td", css("td"), clip(str(row[key]), 40)) for key in keys]
    for name in shown:
        own = ("num", *_GOOD) if fastest and name in ("steady", "speedup") else ("num",)
        cells.append(_tag("td", css(*own), _figure(name, row[name])))
    status = row["status"]
    tone = () if status == "ok" else _BAD
    text = "" if status == "ok" else status
    said = _tag("span", css(*tone or ("dim",)), text)
    if row["reason"]:
        said += Markup(": ") + _tag("span", css("dim"), clip(row["reason"], 160))
    cells.append(_tag("td", css("tdw"), said))
    line = Markup(' style="border-top: 1px solid {}"').format(Markup("#80808040")) if first else Markup("")
    return Markup("<tr{}>{}</tr>").format(line, Markup("").join(cells))


def _has_row(row: dict[str, Any]) -> bool:
    """What makes no sense, or was not come to, is told in one line for all."""
    return row["status"] not in ("skipped", "not run")


def _fastest(sweep: Sweep, rows: list[dict[str, Any]]) -> set[int]:
    """Numbers of the rows that have the highest speedup at their setting, among those that agree."""
    best: dict[object, int] = {}
    for number, (point, row) in enumerate(zip(sweep.points, rows, strict=True)):
        if row["status"] != "ok" or row["speedup"] is None:
            continue
        known = best.get(point.setting)
        if known is None or row["speedup"] > rows[known]["speedup"]:
            best[point.setting] = number
    return set(best.values())


def _figure(name: str, value: Any) -> str:
    if value is None or (value == 0 and name in ("kernels", "graphs")):
        return "–"
    if name in ("steady", "cold", "warm", "first"):
        return seconds_text(value)
    if name == "speedup":
        return ratio_text(value)
    if name == "peak_bytes":
        return bytes_text(value)
    if name in ("error", "eager_error"):
        return error_text(value)
    if name == "break_even":
        return "never" if math.isinf(value) else significant(float(f"{value:.2g}"), 2)
    return f"{value:,}"


def _tag(name: str, style: Markup, content: str | Markup) -> Markup:
    return Markup("<{0} {1}>{2}</{0}>").format(Markup(name), style, escape(content))
