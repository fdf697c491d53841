"""Times of all contestants side by side, as numbers: what the table, the bars and the charts show."""

from __future__ import annotations

from dataclasses import dataclass

from nbcompile.record.compilation import Compilation, Measurement
from nbcompile.units import clip, count_text, finite, seconds_text, speed_text
from nbcompile.view.facts import facts as fact
from nbcompile.view.facts.outside import left_out, measured_name
from nbcompile.view.reports.report import Section, Styled, Value
from nbcompile.view.reports.wrong import wrong_where


@dataclass(frozen=True)
class TimingRow:
    """One contestant. Times are in seconds, ``None`` where not measured; ``measurement`` is its place in the
    record's ``measurements``, where the samples are.

    ``p10``, ``median`` and ``p90`` are of one call, and only count where ``counts`` is true: else eager code
    ran, or it failed, for ``reason``; of times that count it says in which results they are wrong. ``cold``
    is the compile with empty caches, or where that was not measured the one of this record. Between ``low``
    and ``high`` lies the median of a call, by 99%. ``ratio`` is how many times faster than eager a call is.
    ``break_even``: calls until the compile has paid for itself; ``never`` is true where it does not.
    """

    measurement: int
    contestant: str
    mode: str
    own: bool
    counts: bool
    reason: str = ""
    median: float | None = None
    p10: float | None = None
    p90: float | None = None
    low: float | None = None
    high: float | None = None
    cold: float | None = None
    warm: float | None = None
    first: float | None = None
    ratio: float | None = None
    break_even: int | None = None
    never: bool = False

    @property
    def name(self) -> str:
        """The contestant, and its mode where that is not the default."""
        plain = self.mode in ("", "default")
        return clip(self.contestant if plain else f"{self.contestant} {self.mode}", 40)


@dataclass(frozen=True)
class Timing:
    """What was timed (``forward``, ``cell``), how, in a few words, with what it leaves out of the cell, and a
    row a contestant."""

    what: str
    about: str
    rows: tuple[TimingRow, ...] = ()


def timings(compilation: Compilation) -> tuple[Timing, ...]:
    """One for each thing that was timed; where nothing was, the verdict says why."""
    groups: dict[str, list[int]] = {}
    for place, measurement in enumerate(compilation.measurements):
        groups.setdefault(measurement.what, []).append(place)
    out = []
    for what, places in groups.items():
        group = [compilation.measurements[place] for place in places]
        if any(m.steady or m.cold or m.warm or m.first for m in group):
            eager = next((m for m in group if m.contestant == "eager"), None)
            rows = tuple(_row(compilation, place, eager) for place in places)
            out.append(Timing(what, _about(compilation, group), rows))
    return tuple(out)


def timing_table(timing: Timing, most: int, name_width: int = 40) -> Section:
    """A row a contestant, at most ``most``, in words. Why there is none, or that its results are
    wrong, is in the last column."""
    rows: list[tuple[Value, ...]] = []
    for row in timing.rows[:most]:
        spread = f"{seconds_text(row.p10)} – {seconds_text(row.p90)}" if row.p10 is not None else "–"
        pays = count_text(row.break_even, "call") if row.break_even is not None else "–"
        rows.append((
            Styled(clip(row.name, name_width), "strong" if row.own else ""),
            seconds_text(row.median) if row.counts else "–",
            spread,
            speed_text(row.ratio) if row.ratio else "–",
            *(seconds_text(value) for value in (row.cold, row.warm, row.first)),
            "never" if row.never else pays,
            Styled(note(row), "dim"),
        ))  # fmt: skip
    cold, warm = (Styled(name, tip=f"compile, caches {which}") for name, which in
                  (("cold", "empty"), ("warm", "full")))  # fmt: skip
    heads = (timing.what, "one call", "p10 – p90", "vs eager", cold, warm, "first", "pays off after", "")
    return Section(heads=heads, rows=tuple(rows), right=range(1, 8), more=len(timing.rows) - most)


def note(row: TimingRow) -> str:
    """Why there is no time of compiled code, or what else is to be said of one."""
    reason = clip(row.reason, 120)
    return reason if row.counts else fact.no_time_of(reason)


def _about(compilation: Compilation, group: list[Measurement]) -> str:
    samples = [len(m.steady) for m in group if m.steady]
    threads = {m.threads for m in group if m.threads}
    of = measured_name(compilation) or "one call"
    about = f"{of}, median of {min(samples):,}, spread p10–p90" if samples else "no call was timed"
    if len(threads) == 1:
        about += f", {count_text(threads.pop(), 'thread')}"
    return "; ".join(filter(None, (about, left_out(compilation))))


def _row(compilation: Compilation, place: int, eager: Measurement | None) -> TimingRow:
    m = compilation.measurements[place]
    is_eager = m.contestant == "eager"
    cost = None if is_eager else fact.compile_cost(compilation, m)
    wrong = wrong_where(compilation, m.contestant)
    calls = None if wrong else fact.break_even(cost, m, eager)
    median, base = m.median, (eager.median if eager else None)
    low, high = m.median_interval or (None, None)
    return TimingRow(
        place,
        m.contestant,
        m.mode,
        own=m.contestant == fact.contestant(compilation),
        counts=m.counts,
        reason=m.reason
        or (f"✗ differs in {wrong}" if wrong else "" if m.counts else "no reason was recorded"),
        median=finite(median),
        p10=finite(m.quantile(0.1)),
        p90=finite(m.quantile(0.9)),
        low=finite(low),
        high=finite(high),
        cold=finite(cost),
        warm=finite(m.warm),
        first=finite(m.first),
        ratio=finite(base / median) if median and base else None,
        break_even=calls,
        never=bool(median and base and not is_eager and cost is not None and calls is None and not wrong),
    )
