"""Captures as text and HTML: the table of ways, what each bakes in with the evidence, and the graphs."""

from __future__ import annotations

from nbcompile.record.captures import PROBES, Capture, Captures
from nbcompile.units import clip, count_text, ratio_text, seconds_text
from nbcompile.view.reports import report
from nbcompile.view.reports.report import Section, Styled, Value

COLUMNS = 100
MARKS = {"silently wrong": "✗", "raises": "!", "recompiles": "↻", "right": "✓", "not probed": "–"}
TONES = {"silently wrong": "no", "raises": "user", "recompiles": "dim", "right": "yes", "not probed": "dim"}
LEGEND = "✗ silently wrong · ! raises · ↻ right after another capture · ✓ right · – not probed"


def to_text(found: Captures) -> str:
    """At most 100 columns: the table, then what went wrong where, then what nobody looked at."""
    told = [
        Section(capture.title, lines=tuple(_details(capture)))
        for capture in found.captures
        if _details(capture)
    ]
    return report.to_text(_verdict(found), [_table(found), *told, *_unprobed(found)], COLUMNS)


def to_html(found: Captures) -> str:
    """A fragment for a notebook output: inline styles, no script; graphs fold out."""
    folds = [_fold(capture) for capture in found.captures if _details(capture) or capture.graphs]
    versions = " · ".join(f"{name} {version}" for name, version in found.versions.items())
    return report.to_html(_verdict(found), [_table(found), *folds, *_unprobed(found)], (versions,))


def _table(found: Captures) -> Section:
    """A row a way, with a mark for each probe."""
    probes = _probes(found)
    marked = (Styled(probe, tip=PROBES[probe]) for probe in probes)
    heads: tuple[Value, ...] = ("", "captured", "nodes", "capture", "a call", "vs eager", *marked)
    rows: list[tuple[Value, ...]] = []
    if found.seconds is not None:
        rows.append(("eager", "", "", "", seconds_text(found.seconds), "", *("" for _ in probes)))
    for capture in found.captures:
        tone = {"absent": "dim", "no": "no"}.get(capture.captured, "")
        rows.append((
            Styled(capture.title, "strong"),
            Styled(capture.captured, tone),
            "" if capture.nodes is None else str(capture.nodes),
            seconds_text(capture.capture_seconds),
            seconds_text(capture.seconds),
            _ratio(found, capture),
            *(_mark(capture, probe) for probe in probes),
        ))  # fmt: skip
    return Section("", heads, tuple(rows), lines=(LEGEND,) if probes else (), right=range(2, 6))


def _mark(capture: Capture, probe: str) -> Value:
    finding = next((finding for finding in capture.findings if finding.probe == probe), None)
    verdict = finding.verdict if finding is not None else "not probed"
    evidence = f"{finding.verdict}: {clip(finding.evidence, 300)}" if finding is not None else ""
    return Styled(MARKS[verdict] if capture.findings else "", TONES[verdict], evidence)


def _fold(capture: Capture) -> Section:
    """What there is to say of a way, every case of every probe, and the graphs."""
    cases = tuple(
        Section(finding.probe, rows=tuple((case.what, case.verdict, case.evidence) for case in finding.cases))
        for finding in capture.findings
        if finding.verdict != "not probed"
    )
    graphs = tuple(Section(title, listing=text) for title, text in capture.graphs)
    told = _details(capture)
    title = f"{capture.title}: {told[0]}" if told else capture.title
    return Section(title, lines=tuple(told), inner=cases + graphs, folded=True)


def _unprobed(found: Captures) -> list[Section]:
    return [Section("Not looked at", lines=tuple(found.unprobed))] if found.unprobed else []


def _verdict(found: Captures) -> str:
    tried = [capture for capture in found.captures if capture.captured != "absent"]
    whole = sum(capture.captured == "whole" for capture in tried)
    pieces = sum(capture.captured == "in pieces" for capture in tried)
    wrong = sum(bool(capture.baked_in) for capture in tried)
    told = f"{found.function}: {whole} of {count_text(len(tried), 'way')} capture it whole"
    told += f", {pieces} in pieces" if pieces else ""
    absent = len(found.captures) - len(tried)
    told += f", {absent} more could not be tried" if absent else ""
    return f"{told}; {wrong} {'is' if wrong == 1 else 'are'} silently wrong once something changes"


def _probes(found: Captures) -> list[str]:
    """The probes that found anything out for any way, in order."""
    useful = {f.probe for c in found.captures for f in c.findings if f.verdict != "not probed"}
    return [probe for probe in PROBES if probe in useful]


def _details(capture: Capture) -> list[str]:
    """What there is to say of a way beside its marks, a sentence each."""
    where = f"line {capture.line}: " if capture.line is not None else ""
    said = [f"{where}{capture.reason}"] if capture.reason else []
    said += [clip(text, 180) for text in capture.notes]
    for finding in capture.findings:
        for case in finding.cases:
            if case.verdict in ("silently wrong", "raises"):
                what = f"{case.what}: " if case.what else ""
                said.append(f"{MARKS[case.verdict]} {finding.probe}: {what}{case.evidence}")
                break
    return [clip(text, 400) for text in said]


def _ratio(found: Captures, capture: Capture) -> str:
    if not (found.seconds and capture.seconds):
        return ""
    return ratio_text(found.seconds / capture.seconds)
