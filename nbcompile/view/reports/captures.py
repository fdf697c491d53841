"""Captures as text and HTML: the table of ways, what each bakes in with the evidence, and the graphs."""

from __future__ import annotations

from markupsafe import Markup

from nbcompile.record.captures import PROBES, Capture, Captures, Finding
from nbcompile.units import clip, count_text, ratio_text, seconds_text, wrap
from nbcompile.view.html.fragment import environment, printable
from nbcompile.view.html.styles import Styler

COLUMNS = 100
MARKS = {"silently wrong": "✗", "raises": "!", "recompiles": "↻", "right": "✓", "not probed": "–"}
TONES = {"silently wrong": "no", "raises": "user", "recompiles": "dim", "right": "yes", "not probed": "dim"}
LEGEND = "✗ silently wrong   ! raises   ↻ right after another capture   ✓ right   – not probed"
_GRAPH = 20_000
"""Characters of one graph text that HTML shows."""


def to_text(found: Captures) -> str:
    """At most 100 columns: the table, then what went wrong where, then what nobody looked at."""
    probes = _probes(found)
    width = max([len(capture.title) for capture in found.captures], default=8)
    out = [*wrap(_verdict(found), COLUMNS), ""]
    heads = "  ".join(probes)
    out.append(f"{'':<{width}}  {'captured':<9} {'nodes':>5} {'capture':>8} {'a call':>8}  {heads}")
    if found.seconds is not None:
        out.append(f"{'eager':<{width}}  {'':<9} {'':>5} {'':>8} {seconds_text(found.seconds):>8}")
    for capture in found.captures:
        marks = "  ".join(f"{mark:<{len(probe)}}" for probe, mark in zip(probes, _marks(capture, probes)))
        nodes = "" if capture.nodes is None else str(capture.nodes)
        times = f"{seconds_text(capture.capture_seconds):>8} {seconds_text(capture.seconds):>8}"
        out.append(f"{capture.title:<{width}}  {capture.captured:<9} {nodes:>5} {times}  {marks}".rstrip())
    out += ["", LEGEND] if probes else []
    for capture in found.captures:
        lines = [line for text in _details(capture) for line in _hung(text)]
        out += ["", capture.title, *lines] if lines else []
    out += ["", "Not looked at", *(f"  {text}" for text in found.unprobed)] if found.unprobed else []
    return "\n".join(line[: COLUMNS + 40].rstrip() for line in out) + "\n"


def to_html(found: Captures) -> str:
    """A fragment for a notebook output: inline styles, no script; graphs fold out."""
    template = environment().get_template("captures.html")
    probes = _probes(found)
    rows = [
        {
            "capture": capture,
            "cells": [
                (mark, TONES[_verdict_of(capture, probe)], _evidence(capture, probe))
                for probe, mark in zip(probes, _marks(capture, probes))
            ],
            "capture_time": seconds_text(capture.capture_seconds),
            "call_time": seconds_text(capture.seconds),
            "ratio": _ratio(found, capture),
            "details": _details(capture),
            "graphs": [(title, _cut(text)) for title, text in capture.graphs],
        }
        for capture in found.captures
    ]
    return printable(
        str(
            Markup(
                template.render(
                    found=found,
                    rows=rows,
                    probes=[(probe, PROBES[probe]) for probe in probes],
                    verdict=_verdict(found),
                    eager_time=seconds_text(found.seconds),
                    legend=LEGEND,
                    css=Styler(page=False),
                )
            )
        )
    )


def _verdict(found: Captures) -> str:
    tried = [capture for capture in found.captures if capture.captured != "absent"]
    whole = sum(capture.captured == "whole" for capture in tried)
    pieces = sum(capture.captured == "in pieces" for capture in tried)
    wrong = sum(bool(capture.baked_in) for capture in tried)
    told = f"{found.function}: {whole} of {count_text(len(tried), 'way')} capture it whole"
    told += f", {pieces} in pieces" if pieces else ""
    return f"{told}; {wrong} {'is' if wrong == 1 else 'are'} silently wrong once something changes"


def _probes(found: Captures) -> list[str]:
    """The probes that found anything out for any way, in order."""
    useful = {f.probe for c in found.captures for f in c.findings if f.verdict != "not probed"}
    return [probe for probe in PROBES if probe in useful]


def _finding(capture: Capture, probe: str) -> Finding | None:
    return next((finding for finding in capture.findings if finding.probe == probe), None)


def _verdict_of(capture: Capture, probe: str) -> str:
    finding = _finding(capture, probe)
    return finding.verdict if finding is not None else "not probed"


def _marks(capture: Capture, probes: list[str]) -> list[str]:
    return [MARKS[_verdict_of(capture, probe)] if capture.findings else "" for probe in probes]


def _evidence(capture: Capture, probe: str) -> str:
    finding = _finding(capture, probe)
    return f"{finding.verdict}: {clip(finding.evidence, 300)}" if finding is not None else ""


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


def _hung(text: str) -> list[str]:
    first, *rest = wrap(text, COLUMNS - 4, 3)
    return [f"  {first}", *(f"    {line}" for line in rest)]


def _ratio(found: Captures, capture: Capture) -> str:
    if not (found.seconds and capture.seconds):
        return ""
    return ratio_text(found.seconds / capture.seconds)


def _cut(text: str) -> str:
    if len(text) <= _GRAPH:
        return text
    return f"{text[:_GRAPH]}\n… {len(text) - _GRAPH:,} more characters"
