"""Findings as text, JSON, Markdown and annotations of GitHub's."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import asdict

from nbcompile.bench.regressions.bench import SuiteRun
from nbcompile.bench.regressions.findings import CaseFinding, Findings
from nbcompile.record.compilation import Compilation
from nbcompile.record.diff import KINDS, own_measurement
from nbcompile.record.packed import json_text
from nbcompile.units import count_text, error_text, plain_line, printable, ratio_text, seconds_text

_MARK = {"regression": "✗", "improvement": "✓", "note": "·"}
_TITLES = (("regression", "Regressions"), ("improvement", "Improvements"), ("note", "Also"))


def failing(findings: Findings, fail_on: Collection[str]) -> tuple[CaseFinding, ...]:
    """The regressions of these kinds."""
    return tuple(f for f in findings.found if f.change.verdict == "regression" and f.change.kind in fail_on)


def to_text(findings: Findings, fail_on: Collection[str]) -> str:
    """A line a finding, case by case, and one line that sums up."""
    lines = list(findings.notes)
    case = ""
    for found in findings.found:
        if found.case != case:
            case = found.case
            lines.append(case)
        change = found.change
        where = f"{change.where}: " if change.where else ""
        lines.append(f"  {_MARK[change.verdict]} {change.kind:<12} {where}{change.message}")
    return "\n".join([*map(plain_line, lines), _summary(findings, fail_on)]) + "\n"


def to_json(findings: Findings, fail_on: Collection[str]) -> str:
    """One object: ``fails``, ``cases``, ``notes``, and ``found`` with the fields of a Change and its case."""
    rows = [{"case": found.case, **asdict(found.change)} for found in findings.found]
    whole = {
        "fails": bool(failing(findings, fail_on)),
        "cases": findings.cases,
        "notes": findings.notes,
        "found": rows,
    }
    return json_text(whole, 1) + "\n"


def to_markdown(findings: Findings, fail_on: Collection[str]) -> str:
    """For a comment on a pull request: a table of regressions, of improvements, and of the rest."""
    out = [f"**{_summary(findings, fail_on)}**", "", *(f"- {_cell(note)}" for note in findings.notes)]
    for verdict, title in _TITLES:
        rows = [found for found in findings.found if found.change.verdict == verdict]
        if rows:
            out += ["", f"### {title}", "", "| case | kind | where | what |", "|---|---|---|---|"]
            out += [
                f"| {_cell(f.case)} | {f.change.kind} | {_cell(f.change.where)} | {_cell(f.change.message)} |"
                for f in rows
            ]
    return "\n".join(out) + "\n"


def to_github(findings: Findings, fail_on: Collection[str]) -> str:
    """Annotations that GitHub Actions puts at the lines: errors for what fails, warnings for other
    regressions, notices for improvements."""
    fails = set(failing(findings, fail_on))
    out = []
    for found in findings.found:
        change = found.change
        if change.verdict == "note":
            continue
        level = "error" if found in fails else "warning" if change.verdict == "regression" else "notice"
        place = [f"file={_property(change.file)}"] if change.file else []
        place += [f"line={change.line}"] if change.file and change.line else []
        place.append(f"title={_property(f'{found.case}: {change.kind}')}")
        out.append(f"::{level} {','.join(place)}::{_data(change.message)}")
    out += [f"::notice::{_data(note)}" for note in findings.notes]
    return "\n".join([*out, _summary(findings, fail_on)]) + "\n"


FORMATS: dict[str, Callable[[Findings, Collection[str]], str]] = {
    "text": to_text, "json": to_json, "markdown": to_markdown, "github": to_github,
}  # fmt: skip


def bench_text(bench: SuiteRun) -> str:
    """A line a case: what was captured, how long it takes, how far off it is."""
    width = max(len(case.name) for case in bench.cases)
    lines: list[str] = []
    for case in bench.cases:
        said = case.error or (_case_text(case.record) if case.record is not None else "")
        said = f"{case.name:<{width}}  {'fails: ' if case.error else ''}{said}"
        lines += map(plain_line, said.splitlines())
    return "\n".join(lines) + "\n"


def _case_text(record: Compilation) -> str:
    own = own_measurement(record.measurements, record.backend)
    eager = next((m for m in record.measurements if m.contestant == "eager"), None)
    parts = [
        count_text(len(record.of_stage("fx")), "graph"),
        count_text(len(record.breaks), "break"),
        count_text(len(record.recompiles), "recompile"),
    ]
    if record.of_stage("fused"):
        parts.append(count_text(len(record.kernels), "kernel"))
    if own is not None and own.reason:
        return ", ".join([*parts, own.reason])
    if own is not None and own.median:
        faster = (
            f" ({ratio_text(eager.median / own.median)} as fast as eager)" if eager and eager.median else ""
        )
        parts += [f"{seconds_text(own.median)} a call{faster}", f"compiled in {seconds_text(own.cold)}"]
    errors = [item.error for item in record.accuracy if item.error is not None]
    if errors:
        parts.append(f"error {error_text(max(errors))}")
    if not all(item.agrees for item in record.accuracy):
        parts.append("DISAGREES with eager")
    return ", ".join(parts)


def _summary(findings: Findings, fail_on: Collection[str]) -> str:
    fails = len(failing(findings, fail_on))
    worse, better = (
        sum(found.change.verdict == verdict for found in findings.found)
        for verdict in ("regression", "improvement")
    )
    ignored = f" ({fails} of kinds to fail on)" if worse > fails else ""
    of = count_text(findings.cases, "case")
    return f"{count_text(worse, 'regression')}{ignored}, {count_text(better, 'improvement')} in {of}"


def kinds(text: str) -> frozenset[str]:
    """``all``, ``none``, or kinds between commas. ValueError for one that is unknown."""
    names = {name.strip() for name in text.split(",") if name.strip()}
    if names == {"all"}:
        return frozenset(KINDS)
    if names == {"none"}:
        return frozenset()
    unknown = sorted(names.difference(KINDS))
    if unknown or not names:
        raise ValueError(
            f"no kind of regression: {', '.join(unknown) or text!r} (there are {', '.join(KINDS)})"
        )
    return frozenset(names)


def _cell(text: str) -> str:
    """Markdown shows it as it is: a stranger's picture is not fetched, and nobody is called."""
    return re.sub(r"([|\[\]!])", r"\\\1", plain_line(text)).replace("<", "&lt;").replace("@", "&#64;")


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
