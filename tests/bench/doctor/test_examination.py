"""What is tried, in which order, and what is made of it: a ward of invented times, where all is known."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nbcompile.bench.doctor import examination, examine
from nbcompile.bench.doctor.candidates import compilers, suggestions
from nbcompile.bench.doctor.examination import Examination
from nbcompile.bench.doctor.examine import _ranked
from nbcompile.bench.doctor.patient import Patient, Surroundings
from nbcompile.bench.doctor.switches import Combination, Switch
from nbcompile.bench.doctor.trial import TrialResult, TrialTask
from nbcompile.bench.processes import ProcessEndedError
from nbcompile.errors import MeasureError
from nbcompile.record.advice.doctor import DoctorReport, DoctorRow
from nbcompile.record.compilation import Compilation
from nbcompile.settings import CompileSettings

EAGER = Switch("eager", "compiler", "--backend eager", backend="eager")
FAST = Switch("fast", "compiler", "--backend fast", backend="fast")
NEAR = Switch("near", "compiler", "--backend near", backend="near")
LAYOUT = Switch("layout", "layout", diff=("+ layout",), channels_last=True)
ONE = Switch("1 thread", "threads", threads=1)
HALF = Switch("half", "precision", dtype="bfloat16", effect="precision")
OURS = Switch("a:b apart", "fusion", "--no-fuse a:b", options=(("no_fuse", "a:b"),), only="nbcompile")
ALL = (EAGER, FAST, NEAR, LAYOUT, ONE, HALF, OURS)

Speed = Callable[[frozenset[str]], float]


class InventedWard:
    """Answers at once; a second a trial goes by on ``clock``."""

    def __init__(self, speed: Speed) -> None:
        self.speed, self.asked, self.clock = speed, [], 0.0

    def run(self, function: Any, task: TrialTask, *, timeout: float) -> TrialResult:
        self.clock += 1.0
        self.asked.append(task)
        return TrialResult(tuple(self.row(on, not task.race) for on in task.combinations))

    def row(self, on: Combination, verified: bool) -> DoctorRow:
        speed = self.speed(frozenset(switch.name for switch in on.switches))
        status = "pays" if speed > 1.03 else "slower" if speed < 0.98 else "level"
        return DoctorRow(
            on.name, on.effect, status, "", speed, speed * 0.99, speed * 1.01, 1 / speed, 1.0,
            verified=verified,
        )  # fmt: skip


def examined(
    speed: Speed, monkeypatch: pytest.MonkeyPatch, switches: tuple[Switch, ...] = ALL, budget: float = 100.0
) -> tuple[Examination, InventedWard]:
    ward = InventedWard(speed)
    monkeypatch.setattr(examination.time, "monotonic", lambda: ward.clock)
    exam = Examination(
        b"", CompileSettings(), Surroundings(2, "highest", True), ward, budget, lambda text: None
    )
    exam.alone(switches)
    exam.together(switches)
    exam.verify()
    return exam, ward


def best(exam: Examination, effect: str) -> frozenset[str]:
    paying = [on for on, row in exam.rows.items() if row.status == "pays" and on.effect == effect]
    found = max(paying, key=lambda on: exam.rows[on].speedup, default=Combination())
    return frozenset(switch.name for switch in found.switches)


def product(**factors: float) -> Speed:
    return lambda on: math.prod(factors.get(name.replace(" ", "_"), 1.0) for name in on)


def test_what_pays_alone_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    exam, ward = examined(product(fast=2.0, near=1.5, layout=1.2, half=1.5), monkeypatch)
    assert best(exam, "same") == {"fast", "layout"}
    assert best(exam, "precision") == {"fast", "layout", "half"}
    last = ward.asked[-1]
    assert not last.race and {on.name for on in last.combinations} >= {"fast, layout", "fast, layout, half"}
    assert all(len(task.combinations) == 1 for task in ward.asked[:-1]), "each trial has its process"


def test_a_switch_that_pays_only_beside_the_best_compiler_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def speed(on: frozenset[str]) -> float:
        return (2.0 if "fast" in on else 1.0) * (
            {True: 1.5, False: 0.9}["fast" in on] if "layout" in on else 1
        )

    assert best(examined(speed, monkeypatch)[0], "same") == {"fast", "layout"}


def test_the_second_best_compiler_wins_with_what_suits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def speed(on: frozenset[str]) -> float:
        compiler = 2.0 if "fast" in on else 1.8 if "near" in on else 1.0
        return compiler * ((1.5 if "near" in on else 1.1) if "layout" in on else 1.0)

    assert best(examined(speed, monkeypatch)[0], "same") == {"near", "layout"}


def test_nothing_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    exam, ward = examined(lambda on: 1.0 if not on else 0.9, monkeypatch)
    assert best(exam, "same") == frozenset() == best(exam, "precision")
    assert all(task.race for task in ward.asked), "there is nothing to measure again"


def test_what_does_not_hold_when_measured_again_is_not_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    ward = InventedWard(product(fast=1.2))
    true_row = ward.row
    ward.row = lambda on, verified: (  # type: ignore[method-assign]
        DoctorRow(on.name, on.effect, "level", "", 1.0, 0.9, 1.1, verified=True)
        if verified
        else true_row(on, False)
    )
    monkeypatch.setattr(examination.time, "monotonic", lambda: ward.clock)
    exam = Examination(b"", CompileSettings(), Surroundings(2, "highest", True), ward, 100.0, lambda t: None)
    exam.alone((FAST,))
    assert exam.rows[Combination((FAST,))].status == "pays"
    exam.together((FAST,))
    exam.verify()
    assert exam.rows[Combination((FAST,))].status == "level"


def test_the_budget_is_kept_and_what_it_leaves_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    exam, ward = examined(product(fast=2.0), monkeypatch, budget=5.0)
    assert ward.clock <= 5.0 and not ward.asked[-1].race
    assert len(exam.rows) < len(ALL)
    assert {each.name for each in exam.left} & {"1 thread", "half"}
    assert all("budget of 5 s" in each.why for each in exam.left)


@pytest.mark.parametrize("budget", [5.0, 8.0, 12.0])
@pytest.mark.parametrize("compile", [0.2, 1.5])
def test_measuring_again_keeps_to_what_is_left(
    monkeypatch: pytest.MonkeyPatch, budget: float, compile: float
) -> None:
    """It had twenty seconds in any case: "17.7 s of 10 s used"."""
    ward = InventedWard(product(fast=2.0, near=1.5, layout=1.2, half=1.5))
    given: list[float] = []

    def run(function: Any, task: TrialTask, *, timeout: float) -> TrialResult:
        took = 0.3 + sum(compile for on in task.combinations) + task.seconds * (len(task.combinations) + 1)
        given.append(timeout)
        ward.clock += min(took, timeout)
        if took > timeout:
            ended = ProcessEndedError("took too long")
            ended.timed_out = True
            raise ended
        found = TrialResult(tuple(ward.row(on, not task.race) for on in task.combinations))
        return TrialResult(tuple(dataclasses.replace(row, compile=compile) for row in found.rows))

    monkeypatch.setattr(ward, "run", run)
    monkeypatch.setattr(examination.time, "monotonic", lambda: ward.clock)
    exam = Examination(
        b"", CompileSettings(), Surroundings(2, "highest", True), ward, budget, lambda text: None
    )
    exam.alone(ALL)
    exam.together(ALL)
    before = dict(exam.rows)
    exam.verify()
    assert ward.clock <= budget + 0.5
    paid = {on for on, row in before.items() if row.status == "pays"}
    assert (paid or compile > 1) and {on for on, row in exam.rows.items() if row.status == "pays"} == paid
    verified = any(row.verified for row in exam.rows.values())
    assert not paid or verified or any(each.name == "measuring the best again" for each in exam.left)


def test_a_present_state_that_takes_all_of_the_budget_is_told_of() -> None:
    class Slow:
        def run(self, function: Any, task: TrialTask, *, timeout: float) -> TrialResult:
            assert timeout <= 5.0
            ended = ProcessEndedError("took more than 5 s")
            ended.timed_out = True
            raise ended

    exam = Examination(
        b"", CompileSettings(), Surroundings(2, "highest", True), Slow(), 5.0, lambda text: None
    )
    with pytest.raises(MeasureError, match="budget of 5 s ended before the present state"):
        exam.describe(EAGER)


def test_far_less_than_every_combination_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    _, ward = examined(product(fast=2.0, layout=1.2, half=1.5), monkeypatch)
    whole = 4 * 2 * 2 * 2 * 2  # compilers, layout, threads, precision, fusion
    assert len(ward.asked) <= whole / 3


def test_options_of_another_compiler_are_tried_beside_that_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _, ward = examined(product(fast=2.0), monkeypatch)
    mixed = [
        on for task in ward.asked for on in task.combinations if OURS in on.switches and FAST in on.switches
    ]
    assert not mixed


def test_a_crash_and_a_hang_cost_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ward = InventedWard(product(near=1.5))
    run = ward.run

    def running(function: Any, task: TrialTask, *, timeout: float) -> TrialResult:
        (first, *_) = task.combinations
        if FAST in first.switches:
            raise ProcessEndedError("killed by SIGSEGV")
        if EAGER in first.switches:
            ward.clock += timeout
            error = ProcessEndedError(f"took more than {timeout:.0f} s")
            error.timed_out = True
            raise error
        return run(function, task, timeout=timeout)

    ward.run = running  # type: ignore[method-assign]
    monkeypatch.setattr(examination.time, "monotonic", lambda: ward.clock)
    exam = Examination(b"", CompileSettings(), Surroundings(2, "highest", True), ward, 100.0, lambda t: None)
    exam.alone((EAGER, FAST, NEAR))
    assert [exam.rows[Combination((each,))].status for each in (EAGER, FAST, NEAR)] == [
        "timeout", "crashed", "pays",
    ]  # fmt: skip
    assert exam.rows[Combination((FAST,))].reason == "killed by SIGSEGV"


@pytest.mark.parametrize("seed", range(20))
def test_the_best_of_every_combination_is_found(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of random speeds, each switch's depending somewhat on the compiler: never far from the best."""
    import random

    draw = random.Random(seed)
    compilers = {
        "": 1.0,
        "eager": draw.uniform(0.5, 1.5),
        "fast": draw.uniform(0.5, 3),
        "near": draw.uniform(0.5, 3),
    }
    gains = {(name, c): draw.uniform(0.8, 1.3) for name in ("layout", "1 thread") for c in compilers}

    def speed(on: frozenset[str]) -> float:
        compiler = next((name for name in compilers if name in on and name), "")
        return compilers[compiler] * math.prod(
            gains[name, compiler] for name in on if (name, compiler) in gains
        )

    exam, _ = examined(speed, monkeypatch, (EAGER, FAST, NEAR, LAYOUT, ONE))
    choices = itertools.product(["", "eager", "fast", "near"], ["", "layout"], ["", "1 thread"])
    whole = max(speed(frozenset(filter(None, chosen))) for chosen in choices)
    assert speed(best(exam, "same")) >= 0.9 * whole


def test_the_record_that_the_report_is_headed_by_is_of_the_last_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The headline had the last measurement's time, and the sentence below it the first one's."""
    ward = InventedWard(product(fast=2.0))
    run = ward.run

    def running(function: Any, task: TrialTask, *, timeout: float) -> TrialResult:
        record = Compilation(id=f"{len(ward.asked)}") if task.describe else None
        return dataclasses.replace(run(function, task, timeout=timeout), record=record)

    monkeypatch.setattr(ward, "run", running)
    monkeypatch.setattr(examination.time, "monotonic", lambda: ward.clock)
    exam = Examination(b"", CompileSettings(), Surroundings(2, "highest", True), ward, 100.0, lambda t: None)
    exam.describe(EAGER)
    assert exam.record is not None and exam.record.id == "0"
    exam.alone((FAST,))
    exam.verify()
    assert exam.record.id == f"{len(ward.asked) - 1}" and ward.asked[-1].describe


def test_what_was_measured_once_comes_after_what_was_measured_again() -> None:
    known = (("once", 3.0, False), ("slow", 1.2, True), ("fast", 2.0, True))
    rows = [DoctorRow(name, "same", "pays", speedup=speed, verified=again) for name, speed, again in known]
    told = [row.name for row in _ranked([*rows, DoctorRow("none", "same", "level", speedup=1.0)])]
    assert told == ["fast", "slow", "once", "none"]


@pytest.mark.parametrize("given", [(torch.ones(4), torch.ones(4)), ((torch.ones(4), torch.ones(4)),)])
def test_a_tuple_alone_holds_the_arguments(given: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Patient] = []

    def examined(patient: Patient, *_: object, **more: object) -> DoctorReport:
        seen.append(patient)
        return DoctorReport("f", "nbcompile")

    monkeypatch.setattr(examine, "examined", examined)
    examine.doctor(lambda x, y: x + y, *given)
    assert len(seen[0].args) == 2


def test_arguments_that_cannot_be_given_are_refused_before_anything_is_started() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x

    x = torch.ones(4)
    for given in ((x, x), ((x, x),), ()):
        with pytest.raises(MeasureError, match=r"does not take the [02] arguments that the doctor was given"):
            examine.doctor(f, *given)


def test_why_a_compiler_is_not_tried_is_what_keeps_it_from_running() -> None:
    on_cpu, on_gpu = (
        {each.name: each.why for each in compilers(CompileSettings(), device, False).left}
        for device in ("cpu", "cuda")
    )
    assert on_cpu["cudagraphs"] == "its code does not run on cpu"
    assert on_gpu["cudagraphs"].startswith("it replays eager's kernels")
    assert on_cpu["aot_eager"] == on_gpu["aot_eager"] == "it is there to look for errors with"


def test_a_step_is_compiled_before_anything_else_is_tried() -> None:
    """It often pays most, and a budget may end the list."""
    net = torch.nn.Linear(4, 2)
    step = Patient(net, (torch.ones(3, 4),), {}, True, torch.optim.SGD(net.parameters(), 0.1))
    here, record = Surroundings.here(), Compilation("")
    found = suggestions(step, CompileSettings(), here, record).switches
    assert found[0].name == "compiled optimizer"
    alone = suggestions(dataclasses.replace(step, optimizer=None), CompileSettings(), here, record)
    assert not any(switch.axis == "optimizer" for switch in alone.switches)


def test_eager_has_no_symbols_and_compiles_no_step() -> None:
    symbols = Switch("sizes are symbols", "dynamic", dynamic=True)
    step = Switch("compiled optimizer", "optimizer", optimizer=True)
    apart = Switch("bfloat16", "precision", dtype="bfloat16")
    eager = Switch("eager", "compiler", backend="eager")
    for present in (CompileSettings(), CompileSettings("eager")):
        assert not Combination.of((eager, symbols)).fits(present)
        assert not Combination.of((eager, step)).fits(present)
        assert Combination.of((eager, apart)).fits(present)
    assert Combination.of((symbols, step)).fits(CompileSettings())
    assert not Combination((symbols,)).fits(CompileSettings("eager"))
