"""``--doctor``: what it is given, and what it shows below the record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("IPython")

import torch
from IPython.utils.capture import capture_output

from nbcompile.bench.doctor.patient import Patient
from nbcompile.bench.doctor.switches import Switch
from nbcompile.notebook import doctoring
from nbcompile.notebook.cell.mended_program import mended_program
from nbcompile.notebook.cell.other_cells import Mended
from nbcompile.notebook.doctoring import bundle_of, optimizer_of, with_option
from nbcompile.record.advice.coach import Mend
from nbcompile.record.advice.doctor import DoctorReport, DoctorRow
from nbcompile.record.compilation import Cell
from tests.notebook.conftest import Notebook

SETUP = "x = torch.randn(64, 64)\ndef f(x): return torch.softmax(x * 2, -1)"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--doctor 0", "wants a number of seconds, got 0"),
        ("--doctor soon", "--doctor"),
        ("--doctor --disable", "not with --disable"),
    ],
)
def test_what_cannot_be_meant_is_one_line(notebook: Notebook, line: str, says: str) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run(f"%%compile {line}\nran = True")
    assert outcome.error.startswith("UsageError: ") and says in outcome.error
    assert "ran" not in outcome.namespace


@pytest.mark.nightly
def test_a_cell_and_a_call_are_examined_and_nothing_of_the_session_changes(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run("%%compile --doctor 12 --backend aot_eager --into R\ny = f(x)")
    assert outcome.error == "" and outcome.stdout == ""
    report = outcome.namespace["R_doctor"]
    assert isinstance(report, DoctorReport) and report.present == "aot_eager"
    assert any(row.name == "eager" for row in report.rows) and report.seconds < 60
    assert report.function in outcome.displays[-1]["text/plain"]
    outcome = notebook.run("z = %compile --doctor 6 f(x)")
    assert outcome.error == "" and outcome.namespace["z"].shape == (64, 64)


BREAKS = "def f(x):\n    y = x.sin()\n    print(1)\n    return y + x"
CELLS = {
    "in another cell": (BREAKS, "%%compile --doctor 5\nout = f(x)", "in In [2], print() out of the function"),
    "in the cell": ("pass", f"%%compile --doctor 5\n{BREAKS}\nout = f(x)", "print() out of the function"),
    "several parts": (
        "pass", "%%compile --doctor 5\ny = x.sin()\nprint(1)\nz = y + x\nz", "print() out of the function",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CELLS)
def test_the_coachs_mends_are_tried_as_programs_that_give_the_same(
    notebook: Notebook, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, cell, name = CELLS[case]
    asked: list[tuple[Patient, list[Switch]]] = []

    def examined(
        patient: Patient, present: object, budget: float, progress: object, edits: list[Switch], name: str
    ) -> DoctorReport:
        asked.append((patient, edits))
        return DoctorReport("this cell", "nbcompile")

    monkeypatch.setattr(doctoring, "examined", examined)
    torch._dynamo.reset()
    notebook.fresh(SETUP.split("\n")[0])
    notebook.run(before)
    assert not notebook.run(cell).error
    ((patient, (edit,)),) = asked
    assert edit.name.endswith(name.rpartition(", ")[2]) and ("In [" in edit.name) is ("In [" in name)
    assert edit.axis == "source" and [line[0] for line in edit.diff] == ["-", "+"]
    mended = Patient.unpacked(edit.program)
    torch.testing.assert_close(mended.fn(*mended.args), patient.fn(*patient.args))
    with capture_output() as seen:
        mended.fn(*mended.args)
    assert seen.stdout == ""


def test_what_is_examined_and_where_it_breaks_is_named_as_in_the_cell(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def examined(*_: object, name: str) -> DoctorReport:
        return DoctorReport(
            name, "nbcompile", why="1 graph break (<dynamic-code>:282: the code asks for one)"
        )

    monkeypatch.setattr(doctoring, "examined", examined)
    notebook.fresh(SETUP.split("\n")[0])
    outcome = notebook.run("%%compile --doctor 5 --no-bench --into r\ny = x.sin()\nprint(1)\nz = y + x\nz")
    report = outcome.namespace["r_doctor"]
    assert report.function == "compiled lines of this cell" and "cell line 3" in report.why
    outcome = notebook.run("%%compile --doctor 5 --no-bench --into r\nz = x.sin()")
    assert outcome.namespace["r_doctor"].function == "this cell"


def test_results_that_cannot_be_told_apart_are_no_program(notebook: Notebook) -> None:
    part: Any = SimpleNamespace(function=SimpleNamespace(results=("y", "z")), grad_enabled=True, arguments=())
    other: Any = SimpleNamespace(function=SimpleNamespace(results=("y",)), grad_enabled=True, arguments=())
    for own, mended in (([part, other], [part]), ([part], [other]), ([], [part]), ([part], [part, other])):
        assert mended_program(own, mended, Mend(), Mended()) is None


@pytest.mark.parametrize(
    ("line", "option", "made"),
    [
        ("%%compile --doctor", "--backend inductor", "%%compile --backend inductor"),
        ("%%compile --doctor 30 --train", "--backend onnxrt", "%%compile --train --backend onnxrt"),
        ("%%compile --backend a --mode b -o c=d", "--backend e", "%%compile --backend e"),
        ("%%compile --dynamic --into r", "--no-dynamic", "%%compile --into r --no-dynamic"),
        ("%%compile --no-fuse a:b", "--no-fuse c:d", "%%compile --no-fuse a:b --no-fuse c:d"),
        ("%%compile -o channels_last=never", "-o channels_last=always", "%%compile -o channels_last=always"),
    ],
)
def test_the_line_has_the_option_in_place_of_what_it_said(line: str, option: str, made: str) -> None:
    assert with_option(line, option) == made


def test_the_button_has_the_line_escaped() -> None:
    row = DoctorRow(
        "fast", "same", "pays", speedup=2.0, low=1.9, high=2.1, option="--backend <b>'\"", verified=True
    )
    report = DoctorReport("this cell", "nbcompile", rows=(row,))
    shown = bundle_of(report, Cell("%%compile --doctor\ny = x"))
    assert "%%compile --backend <b>" in shown["text/plain"]
    assert "<b>" not in shown["text/html"] and "nbcompile:write-line" in shown["text/html"]
    assert (
        "button" not in bundle_of(DoctorReport("this cell", "nbcompile"), Cell("%%compile\ny"))["text/html"]
    )


def test_the_optimizer_that_a_cell_steps() -> None:
    one = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    names = {"opt": one, "other": one, "scheduler": 3}
    assert optimizer_of("%%compile\nloss.backward()\nopt.step()", names) is one
    assert optimizer_of("opt.step(); other.step()", names) is None
    assert optimizer_of("scheduler.step()", names) is None and optimizer_of("%magic", names) is None
