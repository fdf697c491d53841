"""A trial measures, checks and says what is wrong. In this process: what processes do is for test_ward."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from nbcompile.bench.doctor.candidates import edited
from nbcompile.bench.doctor.patient import Patient, Surroundings, batch_of
from nbcompile.bench.doctor.switches import Combination, Switch
from nbcompile.bench.doctor.trial import TrialTask, interval, run_trial
from nbcompile.errors import MeasureError
from nbcompile.record.advice.doctor import DoctorRow
from nbcompile.settings import CompileSettings
from tests.bench.doctor.programs import Net, does_not_wait, normalised, waits, wrong

EAGER = CompileSettings("eager")


def tried(
    patient: Patient, *switches: Switch, present: CompileSettings = EAGER, race: bool = True
) -> DoctorRow:
    on = Combination.of(switches)
    task = TrialTask(patient.packed(), present, Surroundings.here(), (on,), 0.02, race)
    (row,) = run_trial(task).rows
    assert row.name == on.name
    return row


def training() -> Patient:
    torch.manual_seed(0)
    net = Net()
    x = torch.randn(4, 3, 8, 8)
    return Patient(net, (x,), {}, True, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9))


def test_what_is_faster_pays_and_what_is_slower_is_said_to_be() -> None:
    x = torch.randn(64)
    better = edited("without waiting", Patient(waits, (x,)), does_not_wait, ("- sleep",))
    row = tried(Patient(waits, (x,)), better)
    assert row.status == "pays" and row.speedup > row.low > 1 and row.high >= row.speedup
    assert row.diff == ("- sleep",) and row.seconds < 0.004 <= row.present_seconds
    worse = edited("with waiting", Patient(does_not_wait, (x,)), waits, ())
    row = tried(Patient(does_not_wait, (x,)), worse)
    assert row.status == "slower" and row.high < 1


def test_the_present_state_is_level_with_itself() -> None:
    x = torch.randn(64, 64)
    same = edited("the same", Patient(waits, (x,)), waits, ())
    assert tried(Patient(waits, (x,)), same, race=False).status == "level"


def test_another_source_is_held_against_this_one() -> None:
    patient = Patient(normalised, (torch.randn(64, 8),))
    row = tried(patient, edited("another scale", patient, wrong, ()))
    assert row.status == "differs" and row.reason.startswith("output: error") and row.speedup is None


def test_what_a_backend_raises_is_a_row() -> None:
    patient = Patient(normalised, (torch.randn(64, 8),))
    row = tried(patient, Switch("none", "compiler", backend="nowhere.to.be.found"))
    assert row.status == "failed" and "nowhere" in row.reason


def test_our_compiler_is_checked_and_timed() -> None:
    patient = Patient(normalised, (torch.randn(64, 8),))
    row = tried(patient, Switch("ours", "compiler", backend="nbcompile"), race=False)
    assert row.status in ("pays", "level", "slower")
    assert row.verified and row.compile > 0 and row.peak_bytes is not None
    assert row.error is None, "it is of a precision"


def test_less_precision_has_its_error_beside_that_of_now() -> None:
    patient = Patient(normalised, (torch.randn(64, 8),))
    row = tried(patient, Switch("bf16", "precision", dtype="bfloat16", effect="precision"), race=False)
    assert 1e-4 < row.error < 1e-1 and row.eager_error < 1e-6 and row.effect == "precision"


def test_a_larger_batch_is_ranked_by_the_sample() -> None:
    net = torch.nn.Linear(4, 4)
    patient = Patient(lambda model, x: waits(model(x)), (net, torch.randn(2, 4)))
    assert batch_of(patient) == 2
    row = tried(patient, Switch("8", "batch", batch=4, effect="work"))
    assert row.status == "pays" and 2 < row.speedup < 6, "four times the samples in a wait as long"
    assert batch_of(Patient(torch.mm, (torch.ones(4, 4), torch.ones(4, 4)))) == 0
    assert batch_of(Patient(net, (torch.ones(4, 4), torch.ones(2, 4)))) == 0


@pytest.mark.nightly
def test_layout_precision_and_optimizer_change_the_copy_only() -> None:
    patient = training()
    before = {name: value.clone() for name, value in patient.fn.state_dict().items()}
    layout = Switch("channels last", "layout", channels_last=True)
    changed = Patient.unpacked(patient.packed()).changed(Combination((layout,)))
    assert changed.args[0].is_contiguous(memory_format=torch.channels_last)
    assert changed.fn.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert patient.args[0].is_contiguous()
    half = Switch("bf16", "precision", dtype="bfloat16", effect="precision")
    changed = Patient.unpacked(patient.packed()).changed(Combination((half,)))
    held = {id(p) for group in changed.optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in changed.fn.parameters()}
    assert {p.dtype for p in changed.fn.parameters()} == {torch.bfloat16}
    ours = Switch("ours", "compiler", backend="nbcompile")
    for switch in (layout, Switch("compiled optimizer", "optimizer", optimizer=True)):
        assert tried(patient, ours, switch, race=False).status in ("pays", "level", "slower")
    assert all(torch.equal(before[name], value) for name, value in patient.fn.state_dict().items())


def test_a_compiled_optimizer_is_timed_with_the_state_that_its_first_step_makes() -> None:
    """Put back to where it had none, it would make it in each measured step, and be compiled anew there."""
    patient = training()
    settled = Patient.unpacked(patient.packed())
    settled.settle()
    assert settled.optimizer is not None and patient.optimizer is not None
    assert len(settled.optimizer.state) == 4 and not patient.optimizer.state
    for mine, given in zip(settled.fn.parameters(), patient.fn.parameters(), strict=True):
        assert torch.equal(mine, given) and mine.grad is None
    eager, optimizer = (
        Switch("it", "compiler", backend="aot_eager"),
        Switch("step", "optimizer", optimizer=True),
    )
    before = counters["stats"]["unique_graphs"]
    row = tried(patient, eager, optimizer, race=False)
    assert row.seconds is not None and counters["stats"]["unique_graphs"] - before <= 4, row


def test_tensors_that_share_memory_are_not_converted() -> None:
    x = torch.randn(8, 8)
    half = Combination((Switch("b", "precision", dtype="bfloat16"),))
    with pytest.raises(MeasureError, match="share memory"):
        Patient(torch.add, (x, x.T)).changed(half)
    assert Patient(torch.add, (x, x)).changed(half).args[1].dtype == torch.bfloat16


def test_the_process_is_set_for_each_by_itself(tmp_path: Path) -> None:
    log = str(tmp_path / "log")  # what a run does to objects is put back

    def looks(x: torch.Tensor) -> torch.Tensor:
        with open(log, "a") as file:
            file.write(f"{torch.get_num_threads()} {torch.get_float32_matmul_precision()}\n")
        return x

    on = (Switch("2", "threads", threads=2), Switch("m", "precision", products="medium"))
    threads = torch.get_num_threads()
    task = TrialTask(
        Patient(looks, (torch.ones(2),)).packed(), EAGER, Surroundings(1, "highest", True),
        (Combination.of(on),), 0.01,
    )  # fmt: skip
    try:
        run_trial(task)
    finally:
        torch.set_num_threads(threads)
    seen = Path(log).read_text().splitlines()
    assert set(seen) == {"1 highest", "2 medium"} and len(seen) > 20


def test_the_record_has_times_of_both() -> None:
    patient = Patient(normalised, (torch.randn(64, 8),))
    task = TrialTask(patient.packed(), CompileSettings(), Surroundings.here(), (), 0.02, describe=True)
    record = run_trial(task).record
    eager, own = record.measurements
    assert eager.median > 0 and own.median > 0 and own.ran_compiled
    assert record.kernels[0].seconds is not None
    assert run_trial(dataclasses.replace(task, describe=False)).record is None


def test_the_records_time_is_the_one_that_the_rows_are_held_against() -> None:
    """The headline and the sentence below it had times of two measurements."""
    patient = Patient(normalised, (torch.randn(64, 8),))
    on = Combination((Switch("eager", "compiler", backend="eager"),))
    task = TrialTask(patient.packed(), CompileSettings(), Surroundings.here(), (on,), 0.02, describe=True)
    found = run_trial(task)
    assert found.rows[0].present_seconds == found.record.measurements[-1].median


def test_an_interval_needs_no_distribution() -> None:
    assert interval([1.0, 2.0, 3.0]) == (2.0, 1.0, 3.0)
    middle, low, high = interval([float(n) for n in range(101)])
    assert middle == 50 and 30 < low < 40 and 60 < high < 70
    assert interval([2.0] * 20)[1:] == (2.0, 2.0)


@pytest.mark.nightly
def test_few_samples_say_nothing() -> None:
    def slow(x: torch.Tensor) -> torch.Tensor:
        import time

        time.sleep(0.05)
        return x

    patient = Patient(slow, (torch.ones(2),))
    row = tried(patient, edited("slower", patient, slow, ()))
    assert row.status == "level" and "sample" in row.reason and row.low is None


def test_what_cannot_be_sent_is_refused() -> None:
    patient = Patient(normalised, ((n for n in range(3)),))
    with pytest.raises(MeasureError, match="cannot be sent"):
        patient.packed()
