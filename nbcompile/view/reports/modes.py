"""What modes change, as text and HTML."""

from __future__ import annotations

from nbcompile.record.mode_diff import ModeDiff, ModeResult
from nbcompile.units import clip, error_text, ratio_text, seconds_text
from nbcompile.view.facts.facts import no_time_of
from nbcompile.view.reports import report
from nbcompile.view.reports.report import Section

_TEXT_LINES = 40


def to_text(found: ModeDiff) -> str:
    """Tables, with the first lines of what differs in the sources."""
    return report.to_text(_title(found), _sections(found, _TEXT_LINES))


def to_html(found: ModeDiff) -> str:
    """A fragment for a notebook output; sources fold out."""
    return report.to_html(_title(found), _sections(found, 2000))


def _title(found: ModeDiff) -> str:
    first, rest = found.results[0], found.results[1:]
    said = []
    for result in rest:
        changes = found.kernels(result.mode)
        told = f"{len(changes)} kernels or calls differ" if len(changes) > 1 else "1 kernel or call differs"
        if not changes:
            told = "the same kernels" if first.told and result.told else "its kernels are not recorded"
        said.append(f"{result.mode}: {told}{_against(first, result)}")
    return f"{found.function} on {found.backend}, against {first.mode}. {'; '.join(said)}"


def _against(first: ModeResult, result: ModeResult) -> str:
    if not (first.seconds and result.seconds):
        return ""
    return f", {ratio_text(first.seconds / result.seconds)} as fast"


def _sections(found: ModeDiff, most: int) -> list[Section]:
    sections = []
    differing = found.options()
    if differing:
        rows = tuple(
            (name, *(str(set_.get(mode, "–")) for mode in found.modes)) for name, set_ in differing.items()
        )
        sections.append(Section("What the modes set", ("", *found.modes), rows))
    heads = ("mode", "a call", "p10", "p90", "first", "graphs", "kernels", "error", "CUDA graphs")
    sections.append(Section("What ran", heads, tuple(map(_ran, found.results))))
    for result in found.results[1:]:
        changes = found.kernels(result.mode)
        rows = tuple((change.change, change.name, change.detail) for change in changes)
        diffs = [f"{change.name}: {change.change}\n{change.diff}" for change in changes if change.diff]
        lines = "\n\n".join(diffs).splitlines()
        if len(lines) > most:
            lines = [*lines[:most], f"… {len(lines) - most:,} more lines"]
        title = f"Kernels: {found.modes[0]} → {result.mode}"
        sections.append(
            Section(title, rows=rows or ((_no_changes(found.results[0], result),),), listing="\n".join(lines))
        )
    chosen = tuple(_choice(result, kernel) for result in found.results for kernel in _searched(result))
    if chosen:
        sections.append(
            Section("What autotuning chose", ("mode", "kernel", "time", "of", "candidate"), chosen)
        )
    return sections


def _no_changes(first: ModeResult, result: ModeResult) -> str:
    if first.told and result.told:
        return "all the same"
    return "not known: a record has nothing of what the backend compiled to"


def _ran(result: ModeResult) -> tuple[str, ...]:
    m = result.measurement
    if m is None or not m.counts:
        return (result.mode, *[""] * 7, no_time_of(m.reason) if m and m.reason else "")
    errors = [item.error for item in result.accuracy if item.error is not None]
    return (
        result.mode,
        *(seconds_text(value) for value in (m.median, m.quantile(0.1), m.quantile(0.9), m.first)),
        str(m.graphs),
        str(len(result.record.kernels)) if result.told else "–",
        error_text(max(errors)) if errors else "–",
        result.replayed,
    )


def _searched(result: ModeResult) -> list[str]:
    return list(dict.fromkeys(choice.kernel for choice in result.record.autotune))


def _choice(result: ModeResult, kernel: str) -> tuple[str, ...]:
    tried = [choice for choice in result.record.autotune if choice.kernel == kernel]
    taken = next((choice for choice in tried if choice.chosen), None)
    names = {k.id: k.name for k in result.record.kernels}
    return (
        result.mode,
        clip(names.get(kernel, kernel), 40),
        seconds_text(taken.seconds if taken else None),
        str(len(tried)),
        taken.candidate if taken else "none",
    )
