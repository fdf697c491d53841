"""One trial, in the process that it has for itself: combinations of switches beside the present state.

All run by turns, so that the machine's load, which changes by the second, is felt by each alike: what is read
off is the ratio of the times of one round.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from nbcompile import tf32
from nbcompile.api import Compiled
from nbcompile.bench.doctor.patient import Patient, Surroundings, TrainingStep, compiled_step
from nbcompile.bench.doctor.switches import Combination
from nbcompile.bench.measure.accuracy import (
    NOISE,
    check,
    compare_values,
    float64_results,
    relative_error,
    results_of,
)
from nbcompile.bench.measure.call_times import CallTimes, call_times, with_call_times
from nbcompile.bench.measure.memory import held, most_held
from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import SAMPLE_SECONDS, interleaved, quiet, timed
from nbcompile.errors import MeasureError, in_one_line
from nbcompile.record.advice.doctor import LEAST, DoctorRow, RowStatus
from nbcompile.record.compilation import Accuracy, Compilation, Measurement
from nbcompile.settings import CompileSettings
from nbcompile.units import count_text

PRESENT = "the present state"
_LOST = 0.9
"""Whose whole interval of a few samples is below this is not looked at any longer."""
_SHORT = 0.25
"""Part of the samples that are taken before that is asked."""
_ROUNDS = 9
"""At least so many: the lowest and highest of nine bound the median with 99.6 % confidence."""
_SIGMAS = 2.58  # of 99 %


@dataclass(frozen=True)
class TrialTask:
    """What a trial is told: the program, how it is compiled now, and what to turn. ``seconds`` of samples for
    each, by turns with the present state; in a ``race`` what is clearly slower has a part of them."""

    patient: bytes
    present: CompileSettings
    surroundings: Surroundings
    combinations: tuple[Combination, ...]
    seconds: float
    race: bool = True
    describe: bool = False


@dataclass(frozen=True)
class TrialResult:
    """A row for each combination, and where it was asked for the record of the present state, with times of
    it, of its kernels and of eager."""

    rows: tuple[DoctorRow, ...]
    record: Compilation | None = None


def run_trial(task: TrialTask) -> TrialResult:
    """Measure, here. Raises what the program raises as it is now: that is no finding."""
    torch.set_num_threads(task.surroundings.threads)
    tf32.set_products(task.surroundings.products)
    with torch.set_grad_enabled(task.surroundings.grad), quiet(silent=True):
        return _Trial(task).run()


class _Under:
    """A call within the process-wide settings of its combination."""

    def __init__(self, call: Callable[[], object], threads: int, products: str) -> None:
        self._call, self._threads, self._products = call, threads, products

    def __call__(self) -> object:
        # Asked first: setting them takes longer than asking.
        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        if tf32.products() != self._products:
            tf32.set_products(self._products)
        return self._call()


@dataclass
class _Candidate:
    """A combination under way: its own copy of the program, compiled."""

    on: Combination
    patient: Patient
    snapshot: Snapshot
    eager: TrainingStep
    step: TrainingStep
    compiled: tuple[Compiled, ...]
    threads: int
    products: str
    compile_seconds: float = 0.0
    changes: bool = False  # whether a run changes the program's state
    moves_on: bool = False  # whether each run changes Python objects anew

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """The process as it is set for this one, with its program's state put back after."""
        before = torch.get_num_threads(), tf32.products()
        torch.set_num_threads(self.threads)
        tf32.set_products(self.products)
        try:
            yield
        finally:
            self.snapshot.restore()
            torch.set_num_threads(before[0])
            tf32.set_products(before[1])

    def call(self) -> _Under:
        """What is timed."""
        return _Under(self.step, self.threads, self.products)

    @property
    def eager_reason(self) -> str:
        return next((each.eager_reason for each in self.compiled if not each.ran_compiled), "")


class _Trial:
    def __init__(self, task: TrialTask) -> None:
        self.task = task
        self._now: tuple[float, ...] = ()  # the present state's samples, as they were taken last

    def run(self) -> TrialResult:
        present = self._compiled(Combination())
        rows, running = [], {}
        for number, on in enumerate(self.task.combinations):
            try:
                running[number] = self._compiled(on)
            except Exception as error:  # what a compiler raises is the finding
                rows.append((number, _row(on, "failed", in_one_line(error))))
        if self.task.race:
            found = [(n, self._raced(present, c)) for n, c in running.items()]
        else:
            found = self._together(present, running)
        ordered = tuple(row for _, row in sorted([*rows, *found], key=lambda pair: pair[0]))
        return TrialResult(ordered, self._record(present) if self.task.describe else None)

    def _compiled(self, on: Combination) -> _Candidate:
        task = self.task
        patient = Patient.unpacked(task.patient).changed(on)
        snapshot = Snapshot(patient.roots())
        if snapshot.unrestorable:
            raise MeasureError(
                f"it is run again and again, and nothing can rewind {', '.join(snapshot.unrestorable)}.",
                advice="Take what the program needs from it first, and pass that.",
            )
        eager = patient.step(t for t in snapshot.tensors.values() if t.is_leaf and t.requires_grad)
        whole = any(switch.optimizer for switch in on.switches)
        step, compiled = compiled_step(patient, eager, on.settings(task.present), whole)
        threads = next((s.threads for s in on.switches if s.threads), task.surroundings.threads)
        products = next((s.products for s in on.switches if s.products), task.surroundings.products)
        made = _Candidate(on, patient, snapshot, eager, step, compiled, threads, products)
        with made.within():
            if not on.switches:
                eager()  # what it raises is the program's own
                snapshot.restore()
            made.compile_seconds, _ = timed(step)
            made.changes = bool(snapshot.changed())
            made.moves_on = snapshot.moves_on(eager)
        return made

    def _raced(self, present: _Candidate, candidate: _Candidate) -> DoctorRow:
        """A few samples, and more only where it is not clearly behind; its numbers are checked only then."""
        if candidate.eager_reason:
            return _row(candidate.on, "failed", f"ran eager: {candidate.eager_reason}")
        short = self._samples(present, [candidate], self.task.seconds * _SHORT)
        row = _timed(candidate, short[0], short[1])
        if row.high is not None and row.high < _LOST:
            return row
        checked = self._checked(candidate)
        if checked.status in ("differs", "failed"):
            return checked
        now, own = self._samples(present, [candidate], self.task.seconds)
        return _with(_timed(candidate, now, own), checked)

    def _together(self, present: _Candidate, running: dict[int, _Candidate]) -> list[tuple[int, DoctorRow]]:
        """All by turns, for as long as it takes to tell them apart."""
        checked = {number: self._checked(candidate) for number, candidate in running.items()}
        right = {n: c for n, c in running.items() if checked[n].status not in ("differs", "failed")}
        now, *own = self._samples(present, list(right.values()), self.task.seconds)
        for (number, candidate), samples in zip(right.items(), own, strict=True):
            row = _with(_timed(candidate, now, samples), checked[number])
            checked[number] = replace(row, peak_bytes=self._peak(candidate), verified=True)
        return sorted(checked.items())

    def _samples(
        self, present: _Candidate, others: Sequence[_Candidate], seconds: float
    ) -> list[tuple[float, ...]]:
        """Of the present state first, in rounds: the samples of one place were taken one after the other."""
        everyone = [present, *others]

        def put_back() -> None:
            for each in everyone:
                each.snapshot.restore()

        calls = {str(n): each.call() for n, each in enumerate(everyone)}
        changes = any(each.changes for each in everyone)
        with present.within():
            try:
                found = interleaved(
                    calls, budget=seconds * len(everyone), min_rounds=_ROUNDS,
                    sample_seconds=0.0 if any(each.moves_on for each in everyone) else SAMPLE_SECONDS,
                    reset=put_back if changes else None,
                )  # fmt: skip
            finally:
                put_back()
        self._now = found["0"]
        return [found[str(n)] for n in range(len(everyone))]

    def _checked(self, candidate: _Candidate) -> DoctorRow:
        """A row without times: whether the numbers are right, and their error where precision is changed."""
        on = candidate.on
        found: Sequence[Accuracy] = ()
        with candidate.within():
            if any(switch.program for switch in on.switches):
                found = self._against_original(candidate)
            elif candidate.compiled:
                found = check(candidate.eager, {"it": candidate.step}, candidate.snapshot)
            wrong = next((item for item in found if not item.agrees), None)
            if wrong is not None:
                return _row(on, "differs", f"{wrong.output}: {wrong.reason}")
            if on.effect != "precision":
                return _row(on, "level")
            return self._with_error(candidate)

    def _original(self) -> tuple[dict[str, Any], dict[str, Any] | None, str]:
        """What the program gives as it is, uncompiled, and in float64."""
        patient = Patient.unpacked(self.task.patient).changed(Combination())
        snapshot = Snapshot(patient.roots())
        step = patient.step(t for t in snapshot.tensors.values() if t.is_leaf and t.requires_grad)
        expected = results_of(step, snapshot)
        reference, why_not = float64_results(step, snapshot)
        return expected, reference, why_not

    def _against_original(self, candidate: _Candidate) -> Sequence[Accuracy]:
        """Of another program: its results are to be those of this one."""
        expected, reference, why_not = self._original()
        got = results_of(candidate.step, candidate.snapshot)
        names = [name for name in expected if not name.startswith("fn.")]  # another function's own tensors
        return [compare_values("it", name, got, expected, reference, why_not) for name in names]

    def _with_error(self, candidate: _Candidate) -> DoctorRow:
        expected, reference, why_not = self._original()
        if reference is None:
            return _row(candidate.on, "failed", f"its error cannot be told: {why_not}")
        errors = _worst(results_of(candidate.step, candidate.snapshot), expected, reference)
        if errors is None or not math.isfinite(errors[0]):
            return _row(candidate.on, "differs", "it gives NaN or infinity, or no numbers to compare")
        return replace(_row(candidate.on, "level"), error=errors[0], eager_error=errors[1])

    def _peak(self, candidate: _Candidate) -> int | None:
        with candidate.within():
            before = held()
            most = most_held(candidate.step)
        return max(0, most - before) if most is not None and before is not None else None

    def _record(self, present: _Candidate) -> Compilation:
        """Of the present state, with its times, those of its kernels, and eager's. Its times are those that
        the rows are held against: what is said of them agrees with the rows."""
        asked = self.task.present
        what = "forward+backward" if present.eager.went_back else "forward"
        compiled = present.compiled[0] if present.compiled else None
        with present.within():
            calls = {"eager": _Under(present.eager, present.threads, present.products)}
            if not self._now:  # nothing else ran
                calls["own"] = present.call()
            reset = present.snapshot.restore if present.changes else None
            lasting = 0.0 if present.moves_on else SAMPLE_SECONDS
            samples = interleaved(calls, budget=self.task.seconds, sample_seconds=lasting, reset=reset)
            kernels = (
                call_times(present.step, compiled.stopwatches, budget=self.task.seconds / 2, reset=reset)
                if compiled is not None
                else CallTimes()
            )
        record = compiled.compilation if compiled is not None else Compilation(id="doctor", backend="eager")
        now = self._now or samples["own"]
        own = Measurement(
            what, asked.backend_name, asked.mode or "default", steady=now,
            reason=present.eager_reason, ran_compiled=compiled is not None and not present.eager_reason,
        )  # fmt: skip
        steady = samples["eager"] if compiled is not None else now
        eager = Measurement(what, "eager", steady=steady, ran_compiled=False)
        measurements = (eager, own) if compiled is not None else (eager,)
        return replace(with_call_times(record, kernels), measurements=measurements)


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Median of ratios of times, and its 99 % confidence interval, from their order alone (as
    :func:`nbcompile.bench.measure.timing.is_narrow` has it)."""
    ordered, count = sorted(ratios), len(ratios)
    away = _SIGMAS / 2 * count**0.5
    low, high = max(0, int(count / 2 - away)), min(count - 1, math.ceil(count / 2 + away))
    return statistics.median(ordered), ordered[low], ordered[high]


def _row(on: Combination, status: RowStatus, reason: str = "") -> DoctorRow:
    return DoctorRow(on.name, on.effect, status, reason, option=on.option, diff=on.diff)


def _timed(candidate: _Candidate, now: Sequence[float], own: Sequence[float]) -> DoctorRow:
    """A row with times only, and what these alone say; of a few samples nothing."""
    times = math.prod(switch.batch for switch in candidate.on.switches)
    speedup, low, high = interval([times * a / b for a, b in zip(now, own, strict=True)])
    row = replace(
        _row(candidate.on, "level"),
        speedup=speedup,
        seconds=statistics.median(own),
        present_seconds=statistics.median(now),
        compile=candidate.compile_seconds if candidate.compiled else None,
    )
    if len(own) < _ROUNDS:
        return replace(
            row,
            reason=f"only {count_text(len(own), 'sample')}: a call takes too long, or the machine is busy",
        )
    status: RowStatus = "pays" if low > 1 and speedup >= LEAST else "slower" if high < 1 else "level"
    return replace(row, status=status, low=low, high=high)


def _with(timed_: DoctorRow, checked: DoctorRow) -> DoctorRow:
    return replace(timed_, error=checked.error, eager_error=checked.eager_error)


def _worst(
    got: dict[str, Any], expected: dict[str, Any], reference: dict[str, Any]
) -> tuple[float, float] | None:
    """The largest relative errors of ``got`` and of ``expected``, over what is no rounding noise in either;
    None where there is nothing of the kind, or NaN and infinity are not at the same places."""
    errors = []
    for name, wide in reference.items():
        own, eager = got.get(name), expected.get(name)
        if (
            not (isinstance(own, torch.Tensor) and isinstance(eager, torch.Tensor))
            or not own.is_floating_point()
        ):
            continue
        if own.shape != wide.shape or not torch.equal(own.isfinite(), wide.isfinite()):
            return None
        errors.append((relative_error(own.double(), wide), relative_error(eager.double(), wide)))
    told = [pair for pair in errors if pair[1] < NOISE]
    return (max(own for own, _ in told), max(eager for _, eager in told)) if told else None
