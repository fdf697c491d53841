"""Which compiler to use: one sentence, and the numbers that it rests on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from nbcompile.bench.measure.timing import break_even
from nbcompile.bench.sweep.grid import Point
from nbcompile.bench.sweep.point import Outcome
from nbcompile.units import count_text, ratio_text, seconds_text

_NOISE = 0.03
"""Medians that are closer than this are a tie, however narrow their quartiles are."""
_FEW = 5
"""With fewer samples than this a median has no spread to be held against: one disturbance is half of two."""


@dataclass(frozen=True)
class _Time:
    """What one compiler takes at one setting, seconds; between ``low`` and ``high`` its median lies."""

    steady: float
    low: float
    high: float
    eager: float
    cold: float | None
    samples: int = _FEW

    def ties(self, other: _Time) -> bool:
        near = abs(self.steady - other.steady) <= _NOISE * min(self.steady, other.steady)
        return near or (self.low <= other.high and other.low <= self.high)

    @property
    def speedup(self) -> float:
        return self.eager / self.steady


def advice(outcomes: Mapping[Point, Outcome]) -> str:
    """One sentence. Only what agrees with eager is a candidate; ties within noise are called ties, and go to
    what compiles in less time."""
    times = _times(outcomes)
    if not any(times.values()):
        return "No point was measured and found to agree, so there is nothing to choose from."
    said = _of_one(next(iter(times.values()))) if len(times) == 1 else _of_many(times)
    fewest = min(time.samples for inside in times.values() for time in inside.values())
    if fewest >= _FEW:
        return said
    rest = f"{count_text(fewest, 'sample')} of a call at the fewest"
    return f"On too few samples to be sure ({rest}; give a larger budget): {said[0].lower()}{said[1:]}"


def _times(outcomes: Mapping[Point, Outcome]) -> dict[object, dict[str, _Time]]:
    """For each setting, each compiler that may be used there; eager's time is always known there."""
    found: dict[object, dict[str, _Time]] = {}
    for point, outcome in outcomes.items():
        if outcome.status != "ok" or outcome.record is None:
            continue
        eager, own = outcome.record.measurements[0], outcome.record.measurements[-1]
        mine, base = own.median, eager.median
        if mine and base:
            low, high = own.median_interval or (min(own.steady), max(own.steady))
            count = min(len(own.steady), len(eager.steady))
            made = _Time(mine, low, high, base, None if own is eager else own.cold, count)
            found.setdefault(point.setting, {})[point.compiler] = made
            low, high = eager.median_interval or (min(eager.steady), max(eager.steady))
            beside = _Time(base, low, high, base, None, len(eager.steady))
            found[point.setting].setdefault("eager", beside)
    return found


def _best(times: Mapping[str, _Time]) -> tuple[str, list[str]]:
    """The compiler to use at one setting, and those that tie with it. Eager wins its ties: it is free."""
    fastest = min(times, key=lambda name: times[name].steady / times[name].eager)
    level = [name for name in times if name == fastest or _level(times[name], times[fastest])]
    best = "eager" if "eager" in level else min(level, key=lambda name: times[name].cold or 0.0)
    return best, [name for name in level if name != best]


def _level(one: _Time, two: _Time) -> bool:
    """Whether they tie: each is held against the eager that was timed in turns with it."""
    scale = two.eager / one.eager
    return _Time(one.steady * scale, one.low * scale, one.high * scale, two.eager, one.cold).ties(two)


def _of_one(times: Mapping[str, _Time]) -> str:
    best, level = _best(times)
    if best == "eager":
        compiled = [name for name in times if name != "eager"]
        if not compiled:
            return f"Only eager was measured: {seconds_text(times['eager'].steady)} a call."
        nearest = min(compiled, key=lambda name: -times[name].speedup)
        ratio = ratio_text(times[nearest].speedup)
        return f"Stay with eager: nothing is faster beyond noise; the nearest is {nearest}, at {ratio} eager."
    own = times[best]
    text = (
        f"Use {best}: {ratio_text(own.speedup)} eager ({seconds_text(own.steady)} a call against "
        f"{seconds_text(own.eager)})"
    )
    calls = break_even(own.cold, own.eager, own.steady)
    if own.cold is not None and calls is not None:
        text += f", and its compile of {seconds_text(own.cold)} has paid for itself after {_calls(calls)}"
    if level:
        text += f"; {' and '.join(level)} tie{'s' * (len(level) == 1)} within noise"
        slower = [times[name].cold for name in level if times[name].cold is not None]
        if own.cold is not None and slower:
            text += f", compiling in {' and '.join(seconds_text(cold) for cold in slower)}"
    else:
        others = sorted((n for n in times if n not in (best, "eager")), key=lambda name: -times[name].speedup)
        if others:
            text += f"; next is {others[0]}, at {ratio_text(times[others[0]].speedup)}"
    return text + "."


def _of_many(times: Mapping[object, Mapping[str, _Time]]) -> str:
    """The compiler that is best, or level with the best, at most settings; then by its mean speedup."""
    best_of = {setting: _best(inside) for setting, inside in times.items()}
    names = {name for inside in times.values() for name in inside}
    count = {name: sum(name == best or name in level for best, level in best_of.values()) for name in names}

    def mean(name: str) -> float:
        logs = [math.log(inside[name].speedup) for inside in times.values() if name in inside]
        return math.exp(statistics.fmean(logs))

    chosen = max(sorted(names), key=lambda name: (count[name], mean(name)))
    told = f"fastest, or within noise of it, at {count[chosen]} of {len(times)} settings"
    if chosen == "eager":
        text = f"Stay with eager: {told}{_elsewhere(chosen, best_of)}"
        compiled = sorted((name for name in names if name != "eager"), key=lambda name: -mean(name))
        if compiled:
            text += f"; the nearest is {compiled[0]}, at {ratio_text(mean(compiled[0]))} eager on average"
        return f"{text}."
    own = [inside[chosen] for inside in times.values() if chosen in inside]
    low, high = min(time.speedup for time in own), max(time.speedup for time in own)
    text = f"Use {chosen}: {told}, {ratio_text(mean(chosen))} eager on average"
    if ratio_text(low) != ratio_text(high):
        text += f" ({ratio_text(low)} to {ratio_text(high)})"
    colds = [time.cold for time in own if time.cold is not None]
    calls = [break_even(time.cold, time.eager, time.steady) for time in own]
    paid = [number for number in calls if number is not None]
    if colds:
        text += f", for {seconds_text(statistics.median(colds))} of compiling a setting"
        if paid:
            text += f", paid back after {_calls(statistics.median(paid))}"
            text += f" where it is at all ({len(paid)} of {len(own)})" if len(paid) < len(own) else ""
    return text + _elsewhere(chosen, best_of) + "."


def _elsewhere(chosen: str, best_of: Mapping[object, tuple[str, list[str]]]) -> str:
    """Who is best at the settings where ``chosen`` is not."""
    counts: dict[str, int] = {}
    for best, level in best_of.values():
        if chosen != best and chosen not in level:
            counts[best] = counts.get(best, 0) + 1
    if not counts:
        return ""
    ordered = sorted(counts, key=lambda name: -counts[name])[:3]
    return "; else " + ", ".join(f"{name} ({counts[name]})" for name in ordered)


def _calls(number: float) -> str:
    whole = max(1, math.ceil(number))
    return f"{whole:,} call{'s' * (whole > 1)}" if whole < 1000 else f"{float(f'{whole:.2g}'):,.0f} calls"
