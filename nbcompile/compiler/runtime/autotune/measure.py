"""Which of several callables is the fastest, measured as fairly as a budget allows.

Candidates take turns, so that a clock that drifts drifts for all; each sample is one call between two
events with the L2 cache flushed before it, so that none lives on what the one before left there; the
median counts; and one that is clearly slower is dropped early, so that the time goes to those that are not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

Call = Callable[[], object]

ROUNDS = 10
SAMPLE_SECONDS = 1e-3
"""What one candidate's turn may take: as many calls as fit, but no more than MOST_REPEATS."""
MOST_REPEATS = 8
MARGIN = 0.02
"""A winner is faster than the reference by at least this part of it: below, it is noise."""

_SLOWER = ((1, 2.0), (3, 1.25), (5, 1.08))
"""(rounds taken, times the best median): slower than that, a candidate is dropped."""
_FLUSH_AT_LEAST = 64 << 20


class TuningStopwatch(Protocol):
    """Where time comes from: a GPU's events, or a test."""

    def now(self) -> float:
        """Seconds on a clock that only goes forward: what a budget is counted on."""

    def sample(self, call: Call, repeats: int, prepare: Call | None) -> list[float]:
        """Seconds of each of ``repeats`` calls; ``prepare`` goes before each, untimed."""


class GpuStopwatch:
    """Events on the current stream of ``device``. Before each call twice the L2 cache (``l2_bytes``) is
    overwritten; that also keeps the GPU busy while the host queues the call, so that the host's own time is
    not seen. The memory is given back by :meth:`close`."""

    def __init__(self, device: torch.device, l2_bytes: int) -> None:
        self.device = device
        self._bytes = max(2 * l2_bytes, _FLUSH_AT_LEAST)
        self._buffer: torch.Tensor | None = None

    def now(self) -> float:
        return time.perf_counter()

    def sample(self, call: Call, repeats: int, prepare: Call | None) -> list[float]:
        with torch.cuda.device(self.device):
            if self._buffer is None:
                self._buffer = torch.empty(self._bytes, dtype=torch.uint8, device=self.device)
            event: Any = torch.cuda.Event
            pairs: list[tuple[Any, Any]] = []
            for _ in range(repeats):
                if prepare is not None:
                    prepare()
                start, stop = event(enable_timing=True), event(enable_timing=True)
                self._buffer.zero_()
                start.record()
                call()
                stop.record()
                pairs.append((start, stop))
            pairs[-1][1].synchronize()
            return [start.elapsed_time(stop) / 1e3 for start, stop in pairs]

    def close(self) -> None:
        self._buffer = None


@dataclass(frozen=True)
class CandidateTiming:
    """What was found out of one candidate. ``seconds`` is the median of ``samples``, None if there are
    none: ``note`` then says why. ``rounds``: how many turns it had."""

    seconds: float | None
    samples: tuple[float, ...] = ()
    rounds: int = 0
    note: str = ""

    @property
    def low(self) -> float | None:
        """The lower quartile of the samples."""
        return sorted(self.samples)[len(self.samples) // 4] if self.samples else None


def measure(
    callables: Mapping[str, Call],
    budget: float,
    *,
    watch: TuningStopwatch,
    reference: str = "",
    prepare: Call | None = None,
    rounds: int = ROUNDS,
) -> dict[str, CandidateTiming]:
    """A :class:`CandidateTiming` of each callable, in the order given.

    callables: whole alternatives by name; each is called many times and must leave the others' inputs be.
    budget:    seconds for all together. One round is always begun; who got no turn in time is noted.
    reference: the one that the others are to beat: it is never dropped.
    prepare:   goes before each call, untimed (puts back what calls change).

    What a callable raises is noted of that callable, and ends nothing.
    """
    contest = _Contest(callables, watch, prepare)
    end = watch.now() + budget
    contest.warm_up(end)
    for number in range(1, rounds + 1):
        contest.round(number, end)
        if not contest.timed() or watch.now() > end:
            break
        contest.drop_the_slow(number, reference)
        if len(contest.alive) == 1 and number >= rounds // 2:
            break  # nothing is left to tell apart
    return {name: contest.timing(name) for name in callables}


class _Contest:
    """Callables that take turns: those that are still in it, and what was found of each."""

    def __init__(self, callables: Mapping[str, Call], watch: TuningStopwatch, prepare: Call | None) -> None:
        self._callables, self._watch, self._prepare = callables, watch, prepare
        self.alive = list(callables)
        self._samples: dict[str, list[float]] = {name: [] for name in callables}
        self._rounds = dict.fromkeys(callables, 0)
        self._notes = dict.fromkeys(callables, "")
        self._repeats: dict[str, int] = {}

    def _turn(self, name: str, count: int) -> list[float] | None:
        try:
            return self._watch.sample(self._callables[name], count, self._prepare)
        except Exception as error:
            self._samples[name].clear()
            self._drop(name, reason(error))
            return None

    def _drop(self, name: str, note: str) -> None:
        self.alive.remove(name)
        self._notes[name] = note

    def warm_up(self, end: float) -> None:
        """Two calls of each, the second of which tells how many a turn has room for."""
        for name in list(self.alive):
            if self._repeats and self._watch.now() > end:
                self._drop(name, "not reached in time")
            elif self._turn(name, 1) is not None:  # the first call loads what it needs: it does not count
                first = self._turn(name, 1)
                if first is not None:
                    fitting = int(SAMPLE_SECONDS / max(first[0], 1e-9))
                    self._repeats[name] = max(1, min(MOST_REPEATS, fitting))

    def round(self, number: int, end: float) -> None:
        """A turn for each; the first round is always ended."""
        for name in list(self.alive):
            if number > 1 and self._watch.now() > end:
                break
            found = self._turn(name, self._repeats[name])
            if found is not None:
                self._samples[name] += found
                self._rounds[name] = number

    def timed(self) -> dict[str, float]:
        """The medians of those that are still in it."""
        return {name: statistics.median(self._samples[name]) for name in self.alive if self._samples[name]}

    def drop_the_slow(self, number: int, reference: str) -> None:
        """Leave out what is clearly slower than the best after so many rounds, but for the ``reference``."""
        medians = self.timed()
        limit = next((times for after, times in reversed(_SLOWER) if number >= after), None)
        for name, median in medians.items():
            if limit is not None and name != reference and median > limit * min(medians.values()):
                self._drop(name, f"slower after {number} round{'s' if number > 1 else ''}")

    def timing(self, name: str) -> CandidateTiming:
        """What was found out of one."""
        samples = self._samples[name]
        note = self._notes[name] or ("" if samples else "not reached in time")
        median = statistics.median(samples) if samples else None
        return CandidateTiming(median, tuple(samples), self._rounds[name], note)


def faster(timings: Mapping[str, CandidateTiming], reference: str, margin: float = MARGIN) -> list[str]:
    """The names of those that beat the reference by more than ``margin`` and more than its own spread,
    the fastest first. Without a time of the reference, all that have one."""
    timed = {name: item.seconds for name, item in timings.items() if item.seconds is not None}
    base = timings.get(reference)
    if base is not None and base.seconds is not None and base.low is not None:
        limit = min(base.seconds * (1.0 - margin), base.low)
        timed = {name: seconds for name, seconds in timed.items() if seconds < limit}
    timed.pop(reference, None)
    return sorted(timed, key=timed.__getitem__)


def reason(error: BaseException) -> str:
    """What went wrong, in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
