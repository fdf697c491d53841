"""What is tried next: each switch alone, then those that pay together, then the best once more and longer.

Far less than every combination: a switch that does not pay alone is looked at again only beside the best
compiler, where it may. What is clearly behind after a few samples gets no more, what takes too long to
compile is ended, and what the budget has no time for is said."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from nbcompile.bench.doctor.patient import Surroundings
from nbcompile.bench.doctor.switches import Combination, Switch
from nbcompile.bench.doctor.trial import TrialResult, TrialTask, run_trial
from nbcompile.bench.doctor.ward import Ward
from nbcompile.bench.processes import ProcessEndedError
from nbcompile.errors import MeasureError
from nbcompile.record.advice.doctor import DoctorRow, NotTried, RowStatus
from nbcompile.record.compilation import Compilation
from nbcompile.settings import CompileSettings
from nbcompile.units import ratio_text, seconds_text

SAMPLES = 0.3
"""Seconds of samples that each of a race gets..."""
VERIFIED = 1.0
"""...and of those that are measured again at the end."""
_FIRST = 0.03
"""Part of the budget that samples of the present state may take, where that is less."""
_LEAST_TIME = 0.5
"""Seconds that a process is given in any case."""
_FEWEST = 0.15
"""Seconds of samples below which measuring again tells nothing more."""
_RESERVE = 0.2
"""Part of the budget that is kept for measuring the best again."""
_LONGEST = 0.4
"""Part of the budget that one trial may take."""
_NEAR = 0.75
"""Of the best compiler's speed, from which on another is tried with what pays beside the best."""
_WORTH = {"threads": 0.8, "dynamic": 1.02, "fusion": 1.02}
"""Speed alone, from which on a switch is tried beside other compilers too. The others', which these may take
otherwise, always are."""
_GAINS = 1.02
_FINALISTS = 6
_OPEN = 1.05


@dataclass
class Examination:
    """A program under examination: what is known so far, in ``rows`` by combination."""

    patient: bytes
    present: CompileSettings
    surroundings: Surroundings
    ward: Ward
    budget: float
    progress: Callable[[str], None]
    rows: dict[Combination, DoctorRow] = field(default_factory=dict)
    left: list[NotTried] = field(default_factory=list)
    begun: float = field(default_factory=lambda: time.monotonic())  # asked anew, for tests have another clock
    record: Compilation | None = None  # of the present state, as it was measured last and longest
    _shortest: float = math.inf  # seconds that a trial took

    @property
    def spent(self) -> float:
        return time.monotonic() - self.begun

    def describe(self, first: Switch | None) -> Compilation:
        """The record of the present state, and with it a first row. Raises MeasureError where the program
        does not run as it is, or not within the budget: then there is nothing to compare with."""
        self.progress("measuring the present state")
        on = (Combination((first,)),) if first is not None else ()
        try:
            seconds = min(SAMPLES, _FIRST * self.budget)
            timeout = max(_LEAST_TIME, self.budget - self.spent)
            found = self._run(on, seconds, race=True, describe=True, timeout=timeout)
        except ProcessEndedError as error:
            if error.timed_out:
                raise MeasureError(
                    f"the budget of {seconds_text(self.budget)} ended before the present state was measured.",
                    advice="Give it more seconds.",
                ) from error
            raise MeasureError(f"the program does not run in a process of its own: {error}") from error
        assert found.record is not None, "it was asked for"
        self.record = found.record
        return found.record

    def alone(self, switches: Sequence[Switch]) -> None:
        """Every switch by itself. An option of another compiler than the present one waits for that one."""
        for switch in switches:
            on = Combination((switch,))
            if on.fits(self.present):
                self.race(on)

    def together(self, switches: Sequence[Switch]) -> None:
        """The best compiler with each switch that may pay beside it, kept where it gains; the same with the
        second best, if that is near; then what costs digits, with these."""
        compilers = self._fastest(self._singles("compiler"))
        best = compilers[0] if compilers and self._speed(compilers[0]) > 1 else Combination()
        others = [on for on in (*compilers, Combination()) if on != best]
        near = [on for on in others if self._speed(on) > _NEAR * self._speed(best)][:1]
        for base in (best, *near):
            for switch in self._promising(switches, "same"):
                base = self._added(base, switch)
        best = self._best("same")
        bases = list(dict.fromkeys([best, *compilers[:2], *near]))[:3]
        for switch in self._promising(switches, "precision"):
            for base in bases:
                if base.with_switch(switch).fits(self.present):
                    self.race(base.with_switch(switch))

    def verify(self) -> None:
        """The best of each kind, and what pays alone, again: all in one process, by turns, as many as what is
        left of the budget allows. What there is no time for stays as it was measured once."""
        finalists = [self._best(effect) for effect in ("same", "precision", "work")]
        # What few samples left open is asked again too: a first trial can meet a busy moment.
        alone = [on for on in self._fastest(self.rows) if (self.rows[on].high or 0.0) > _OPEN]
        chosen = [on for on in dict.fromkeys([*finalists, *alone]) if on.switches][:_FINALISTS]
        if not chosen:
            return
        chosen, seconds = self._affordable(chosen)
        ended = NotTried(
            "measuring the best again", f"the budget of {seconds_text(self.budget)} ended before"
        )
        if not chosen:
            self.left.append(ended)
            return
        self.progress(f"measuring {', '.join(on.name for on in chosen[:2])} again, beside the present state")
        try:
            timeout = max(_LEAST_TIME, self.budget - self.spent)
            found = self._run(chosen, seconds, race=False, describe=True, timeout=timeout)
        except ProcessEndedError as error:
            if error.timed_out:  # it was the clock of the examination, and says nothing of them
                self.left.append(ended)
                return
            for on in chosen:
                told = f"it paid, and failed when it was measured again: {error}"
                self.rows[on] = _failed(on, "crashed", told)
            return
        self.rows.update(zip(chosen, found.rows, strict=True))
        self.record = found.record or self.record

    def _affordable(self, chosen: Sequence[Combination]) -> tuple[list[Combination], float]:
        """The first of these that can all be compiled and measured once more in the time that is left, and
        the seconds of samples that each then gets."""
        left = self.budget - self.spent
        # What a trial takes beside its samples; the present state is compiled in it too.
        fixed = max(0.0, self._shortest - 2 * SAMPLES) if math.isfinite(self._shortest) else 0.0
        for count in range(len(chosen), 0, -1):
            compiles = sum((self.rows[on].compile or 0.0) for on in chosen[1:count])
            # Half as much again: numbers are checked, and memory is measured, for each. One more for the
            # present state, and one for its record.
            seconds = (left - fixed - compiles) / (1.5 * (count + 2))
            if seconds >= _FEWEST:
                return list(chosen[:count]), min(VERIFIED, seconds)
        return [], 0.0

    def race(self, on: Combination) -> None:
        """Try one combination, if there is time for it."""
        if on in self.rows or not on.switches:
            return
        time_left = self.budget * (1 - _RESERVE) - self.spent
        longest = min(time_left, _LONGEST * self.budget)
        if longest <= max(0.0, self._shortest if math.isfinite(self._shortest) else 0.0):
            why = f"the budget of {seconds_text(self.budget)} has no time for it"
            self.left.append(NotTried(on.name, why))
            return
        self.progress(f"trying {on.name} ({self._so_far()})")
        begun = self.spent
        try:
            self._run((on,), SAMPLES, race=True, timeout=longest)
            self._shortest = min(self._shortest, self.spent - begun)
        except ProcessEndedError as error:
            if error.timed_out and longest == time_left:
                told = f"the budget of {seconds_text(self.budget)} ended while it was tried"
                self.left.append(NotTried(on.name, told))
                return
            self.rows[on] = _failed(on, "timeout" if error.timed_out else "crashed", str(error))

    def _run(
        self, on: Sequence[Combination], seconds: float, *, race: bool, timeout: float, describe: bool = False
    ) -> TrialResult:
        task = TrialTask(self.patient, self.present, self.surroundings, tuple(on), seconds, race, describe)
        found = self.ward.run(run_trial, task, timeout=timeout)
        if race:
            self.rows.update(zip(on, found.rows, strict=True))
        return found

    def _so_far(self) -> str:
        best = self._best("same")
        told = f"{ratio_text(self._speed(best))} so far" if best.switches else "nothing pays so far"
        return f"{told}, {seconds_text(float(round(max(0.0, self.budget - self.spent))))} left"

    def _speed(self, on: Combination) -> float:
        if not on.switches:
            return 1.0
        row = self.rows.get(on)
        return row.speedup or 0.0 if row is not None and row.status in ("pays", "level", "slower") else 0.0

    def _fastest(self, some: Iterable[Combination]) -> list[Combination]:
        return sorted((on for on in some if self._speed(on)), key=lambda on: -self._speed(on))

    def _best(self, effect: str) -> Combination:
        """The fastest that pays, of one effect; the present state where none does."""
        paying = [on for on, row in self.rows.items() if row.status == "pays" and on.effect == effect]
        return next(iter(self._fastest(paying)), Combination())

    def _singles(self, axis: str) -> list[Combination]:
        return [on for on in self.rows if len(on.switches) == 1 and on.switches[0].axis == axis]

    def _promising(self, switches: Sequence[Switch], effect: str) -> list[Switch]:
        """Those of one effect that may pay in company, those that do best alone first; not what failed."""
        found = []
        for switch in switches:
            if switch.axis == "compiler" or switch.effect != effect:
                continue
            alone = self.rows.get(Combination((switch,)))
            speed = math.inf if alone is None else self._speed(Combination((switch,)))
            if alone is not None and not speed:
                continue
            if speed >= _WORTH.get(switch.axis, 0.0):
                found.append((speed, switch))
        return [switch for _, switch in sorted(found, key=lambda pair: -pair[0])]

    def _added(self, best: Combination, switch: Switch) -> Combination:
        """``best``, with ``switch`` if that gains."""
        on = best.with_switch(switch)
        if not on.fits(self.present):
            return best
        self.race(on)
        gained = self._speed(on) > _GAINS * self._speed(best)
        return on if gained and self.rows[on].status == "pays" else best


def _failed(on: Combination, status: RowStatus, reason: str) -> DoctorRow:
    return DoctorRow(on.name, on.effect, status, reason, option=on.option, diff=on.diff)
