"""A sweep in a notebook's output and in a terminal: the sentence, the notes and the table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nbcompile.bench.sweep.grid import Point
from nbcompile.bench.sweep.point import Outcome
from nbcompile.bench.sweep.table import rows
from nbcompile.units import bytes_text, clip, error_text, ratio_text, seconds_text, significant
from nbcompile.view.reports import report
from nbcompile.view.reports.report import Section, Styled, Value

_MOST_ROWS, _MOST_LINES = 200, 40
_SHOWN = {
    "steady": "steady",
    "eager_steady": "eager beside it",
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
_AGAINST = (
    "× eager is against the eager that was timed beside that point: on a busy machine no two are alike."
)


def to_html(axes: Sequence[str], outcomes: Mapping[Point, Outcome], advice: str, notes: Sequence[str]) -> str:
    """An HTML fragment with inline styles only. Of a long sweep the first 200 rows; ``axes`` are the keys of
    its grid."""
    section = _section(axes, outcomes, _MOST_ROWS)
    about = f"{_about(outcomes)}. Steady times are medians of one call."
    return report.to_html(advice, [section], (" ".join((about, *_against(section))), *notes))


def to_text(axes: Sequence[str], outcomes: Mapping[Point, Outcome], advice: str, notes: Sequence[str]) -> str:
    """The same for a terminal, with fewer rows."""
    section = _section(axes, outcomes, _MOST_LINES)
    table = report.to_text(f"<Sweep of {_about(outcomes)}>", [section])
    return "\n".join((table.rstrip("\n"), "", advice, *notes, *_against(section)))


def _against(section: Section) -> list[str]:
    return [_AGAINST] if _SHOWN["speedup"] in section.heads else []


def _about(outcomes: Mapping[Point, Outcome]) -> str:
    counts = Counter(outcome.status for outcome in outcomes.values())
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"{len(outcomes)} points: {told}"


def _section(axes: Sequence[str], outcomes: Mapping[Point, Outcome], most: int) -> Section:
    made = rows(outcomes)
    shown = [name for name in _SHOWN if any(row[name] not in (None, 0) for row in made)]
    fastest = _fastest(outcomes, made)
    numbered = [item for item in enumerate(zip(outcomes, made, strict=True)) if _has_row(item[1][1])]
    table: list[tuple[Value, ...]] = []
    ruled, last = set(), None
    for number, (point, row) in numbered[:most]:
        if point.setting != last:
            ruled.add(len(table))
        last = point.setting
        keys = (clip(str(row[key]), 40) for key in axes)
        table.append((*keys, *(_figure(name, row[name], number in fastest) for name in shown), _status(row)))
    more = len(numbered) - most
    lines = [f"{more:,} more rows: see .table()"] if more > 0 else []
    left: dict[str, list[str]] = {}
    for point, row in zip(outcomes, made, strict=True):
        if not _has_row(row):
            left.setdefault(row["reason"], []).append(str(point))
    told = [f"{', '.join(each[:3])}{' …' if each[3:] else ''} ({reason})" for reason, each in left.items()]
    lines += ["Not run: " + clip("; ".join(told), 600)] if told else []
    return Section(
        heads=(*axes, *(_SHOWN[name] for name in shown), ""),
        rows=tuple(table),
        lines=tuple(Styled(line, "dim") for line in lines),
        right=range(len(axes), len(axes) + len(shown)),
        ruled=ruled,
    )


def _status(row: dict[str, Any]) -> Styled:
    reason = clip(row["reason"], 160)
    if row["status"] == "ok":
        return Styled(reason, "dim")
    return Styled(f"{row['status']}: {reason}" if reason else row["status"], "no")


def _has_row(row: dict[str, Any]) -> bool:
    """What makes no sense, or was not come to, is told in one line for all."""
    return row["status"] not in ("skipped", "not run")


def _fastest(points: Iterable[Point], rows: list[dict[str, Any]]) -> set[int]:
    """Numbers of the rows that have the highest speedup at their setting, among those that agree."""
    best: dict[object, int] = {}
    for number, (point, row) in enumerate(zip(points, rows, strict=True)):
        if row["status"] != "ok" or row["speedup"] is None:
            continue
        known = best.get(point.setting)
        if known is None or row["speedup"] > rows[known]["speedup"]:
            best[point.setting] = number
    return set(best.values())


def _figure(name: str, value: Any, fastest: bool) -> Styled:
    return Styled(_words(name, value), "yes" if fastest and name in ("steady", "speedup") else "")


def _words(name: str, value: Any) -> str:
    if value is None or (value == 0 and name in ("kernels", "graphs")):
        return "–"
    if name in ("steady", "eager_steady", "cold", "warm", "first"):
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
