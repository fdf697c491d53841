"""What got worse between two runs of a suite: records, case by case, and times where they can be compared."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nbcompile.bench.regressions.bench import CaseResult, SuiteRun
from nbcompile.bench.regressions.noise import Ratio, ratio_of
from nbcompile.bench.regressions.suite import chosen
from nbcompile.record.compilation import Environment, Measurement
from nbcompile.record.diff import Change, changes, own_measurement
from nbcompile.record.matching import RecordedProgram
from nbcompile.units import percent_text, ratio_text, seconds_text

THRESHOLD = 0.05
"""Slower by less than this counts as the same: 5%."""
COMPILE_THRESHOLD = 0.25
# What a median is supposed to vary by between processes where only one was run: calls, compiles.
_SPREAD, _COMPILE_SPREAD = 0.05, 0.2


@dataclass(frozen=True)
class CaseFinding:
    """A change of one case."""

    case: str
    change: Change


@dataclass(frozen=True)
class Findings:
    """What two runs of a suite differ in. ``notes``: what could not be compared, and why; ``cases``: how many
    there are in both."""

    found: tuple[CaseFinding, ...]
    notes: tuple[str, ...]
    cases: int


def compare_benches(
    before: SuiteRun,
    after: SuiteRun,
    *,
    threshold: float = THRESHOLD,
    compile_threshold: float = COMPILE_THRESHOLD,
) -> Findings:
    """Hold two runs against each other, case by case."""
    was, now = ({case.name: case for case in bench.cases} for bench in (before, after))
    whys = _other_machine(before, after)
    found: list[CaseFinding] = []
    for name, case in now.items():
        if name not in was:
            found.append(CaseFinding(name, Change("cases", "note", "new case", after.suite, case.line)))
            continue
        one = _judged(before, was[name], after, case)
        if not whys and not case.error and not was[name].error:
            one = (*one, *_times(was[name], case, after, threshold, compile_threshold))
        found += [CaseFinding(name, change) for change in one]
    # What `--only` left out of the later run is not gone.
    for name in chosen([name for name in was if name not in now], after.settings.only):
        place = (before.suite, was[name].line)
        found.append(CaseFinding(name, Change("cases", "regression", "the case is gone", *place)))
    return Findings(tuple(found), _notes(before, after, whys), len(was.keys() & now.keys()))


def _judged(before: SuiteRun, one: CaseResult, after: SuiteRun, two: CaseResult) -> tuple[Change, ...]:
    place = (after.suite, two.line)
    if two.error and not one.error:
        return (Change("error", "regression", f"fails: {two.error}", *place),)
    if one.error and not two.error:
        return (Change("error", "improvement", f"works, failed before: {one.error}", *place),)
    if two.error:
        return (Change("error", "note", f"fails, as before: {two.error}", *place),)
    if one.record is None or two.record is None:
        return ()
    programs = [
        RecordedProgram(case.record, bench.root, case.sources)
        for bench, case in ((before, one), (after, two))
        if case.record is not None
    ]
    # What is about no line of its own is about the case.
    return tuple(c if c.line else replace(c, file=place[0], line=place[1]) for c in changes(*programs))


def _times(
    one: CaseResult, two: CaseResult, after: SuiteRun, threshold: float, compile_threshold: float
) -> Iterator[Change]:
    place = (after.suite, two.line)
    calls = [[_own(case, p) for p in case.processes] for case in (one, two)]
    medians = [[m.median for m in side if m is not None and m.ran_compiled and m.median] for side in calls]
    ratio = ratio_of(*medians, spread=_SPREAD)
    control = ratio_of(*([_to_eager(case, p) for p in case.processes] for case in (one, two)), spread=_SPREAD)
    # torch's own change moves eager too: then it is no measure of the machine.
    if _version(one) != _version(two):
        control = ratio
    if ratio is not None and control is not None:
        text = f"{_times_text(*medians)}, {_ratio_text(ratio)}"
        if ratio.slower(threshold) and control.slower(threshold):
            yield Change("time", "regression", f"one call takes {text}", *place)
        elif ratio.faster(threshold) and control.faster(threshold):
            yield Change("time", "improvement", f"one call takes {text}", *place)
    cold = [[m.cold for m in side if m is not None and m.cold] for side in calls]
    ratio = ratio_of(*cold, spread=_COMPILE_SPREAD)
    if ratio is not None:
        text = f"{_times_text(*cold)}, {_ratio_text(ratio)}"
        if ratio.slower(compile_threshold):
            yield Change("compile-time", "regression", f"compiling takes {text}", *place)
        elif ratio.faster(compile_threshold):
            yield Change("compile-time", "improvement", f"compiling takes {text}", *place)


def _own(case: CaseResult, process: Sequence[Measurement]) -> Measurement | None:
    return own_measurement(process, case.record.backend if case.record is not None else "")


def _to_eager(case: CaseResult, process: Sequence[Measurement]) -> float:
    """Compiled time divided by eager's, of samples taken in turns; 0 where one of them is missing."""
    own, eager = _own(case, process), next((m for m in process if m.contestant == "eager"), None)
    if own is None or eager is None or not own.ran_compiled or not own.median or not eager.median:
        return 0.0
    return own.median / eager.median


def _times_text(before: Sequence[float], after: Sequence[float]) -> str:
    return f"{seconds_text(statistics.median(after))}, took {seconds_text(statistics.median(before))}"


def _ratio_text(ratio: Ratio) -> str:
    certain = "99% interval, its spread supposed" if ratio.assumed else "99% interval"
    return f"{ratio_text(ratio.ratio)} ({ratio.low:.2f} to {ratio.high:.2f}, {certain})"


def _version(case: CaseResult) -> str:
    return case.record.environment.torch if case.record is not None else ""


def _environment(bench: SuiteRun) -> Environment | None:
    return next((case.record.environment for case in bench.cases if case.record is not None), None)


def _other_machine(before: SuiteRun, after: SuiteRun) -> tuple[str, ...]:
    """In what the machines differ, so that times cannot be compared."""
    one, two = _environment(before), _environment(after)
    if one is None or two is None:
        return ()
    facts = {
        "processor": (one.processor, two.processor),
        "device": (one.device, two.device),
        "threads": (one.threads, two.threads),
    }
    return tuple(f"{name} {b} (was {a})" for name, (a, b) in facts.items() if a != b)


def _notes(before: SuiteRun, after: SuiteRun, other_machine: Sequence[str]) -> tuple[str, ...]:
    one, two = _environment(before), _environment(after)
    notes = []
    if other_machine:
        notes.append(f"times are not compared, for the machines differ: {', '.join(other_machine)}")
    if one is not None and two is not None:
        versions = (
            (name, getattr(one, name), getattr(two, name)) for name in ("torch", "nbcompile", "python")
        )
        notes += [f"{name} {b}, was {a}" for name, a, b in versions if a != b]
    names = [f"{bench.settings.backend} {bench.settings.mode or ''}".strip() for bench in (before, after)]
    if names[0] != names[1]:
        notes.append(f"backend {names[1]}, was {names[0]}: their kernels are not held against each other")
    few = min((len(c.processes) for b in (before, after) for c in b.cases if c.record is not None), default=0)
    if few == 1 and not other_machine:
        spread = f"{percent_text(_SPREAD)} (compiles: {percent_text(_COMPILE_SPREAD)})"
        notes.append(
            f"one process a case: its spread is taken for {spread}; bench --repeat 3 would measure it"
        )
    return tuple(notes)
