"""``%compile --check f(x)`` and ``%%compile --check``: what is said, and that the cell it prints shows it."""

from __future__ import annotations

import pytest

from tests.nightly import few

pytest.importorskip("IPython")

from nbcompile.record.check import CheckReport
from tests.notebook.conftest import Notebook

SETUP = """
from tests.bench.bisect.wrong_backends import Wrong, aten

off = Wrong(aten.tanh.default, None).backend

def refuses(module, inputs):
    if any("tanh" in str(node.target) for node in module.graph.nodes):
        raise NotImplementedError("no tanh here")
    return module.forward

def f(x):
    return torch.tanh(x @ x.T).sum()

x = torch.randn(4, 8)
"""


def test_a_call_gives_the_report(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run("%compile --check --backend off f(x)")
    assert outcome.error == ""
    report = outcome.result
    assert isinstance(report, CheckReport) and report.function == "f(x)"
    assert (report.stage, report.went, report.operator) == ("off", "differs", "aten.tanh.default")
    assert report.cell is not None and report.cell.shows and report.cell.said == ""


@few(1)
@pytest.mark.parametrize(("backend", "went"), [("off", "differs"), ("refuses", "raises")])
def test_a_cell_has_the_report_below_its_record(notebook: Notebook, backend: str, went: str) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run(f"%%compile --check --backend {backend} --into R\nh = x * 2\ny = torch.tanh(h)")
    assert outcome.error == ""
    assert outcome.namespace["y"].shape == (4, 8), "the cell ran"
    report = outcome.namespace["R_check"]
    assert (report.stage, report.went, report.line) == (backend, went, 3)
    assert "tanh" in report.operator
    assert outcome.displays[-1] == {"text/plain": str(report)}  # a terminal: in a notebook HTML beside it
    shown = notebook.run(f"{report.cell.inputs}\nbefore = 1")
    assert shown.error == ""
    again = notebook.run(report.cell.text.replace("%%compile", "%%compile --check --into S", 1))
    assert again.error == "" and again.namespace["S_check"].went == went


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%compile --check f", "--check wants a call"),
        ("%compile --check 1 + f(x)", "--check wants a call"),
        ("%compile --check f(x, 1)", "eager itself raises TypeError"),
    ],
)
def test_what_cannot_be_checked_is_one_line(notebook: Notebook, line: str, says: str) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run(line)
    assert outcome.error.startswith("UsageError: ") and says in outcome.error


def test_a_cell_of_which_nothing_was_compiled(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run("%%compile --check\nn = 3")
    assert outcome.error == "" and "no part of the cell was compiled" in outcome.stdout


def test_what_a_later_line_has_changed_is_said_not_to_be_checked(notebook: Notebook) -> None:
    notebook.fresh("d = torch.nn.Dropout(0.5)\nx = torch.randn(8, 8)")
    outcome = notebook.run(
        "%%compile --check --no-bench --into r\nd.train()\ny = d(x)\nd.eval()\nz = d(x) + 1"
    )
    assert outcome.error == ""
    found = notebook.shell.user_ns["r_check"]
    assert found.agrees and found.function == "the cell, line 5"
    (note,) = found.notes
    assert note.startswith("Not checked: line 3, ")
    assert "Not checked: line 3" in str(found) and "Not checked: line 3" in found._repr_html_()


def test_a_step_that_is_not_checked_is_said_not_to_be(notebook: Notebook) -> None:
    """It was "every number of the cell, line 4", with the compiled step of line 5 untold."""
    notebook.fresh(
        "m = torch.nn.Linear(4, 2); opt = torch.optim.AdamW(m.parameters()); x = torch.randn(3, 4)"
    )
    cell = "l = m(x).pow(2).mean()\nl.backward()\nopt.step()"
    assert not notebook.run(f"%%compile --check --no-bench --optimizer --into r\n{cell}").error
    (note,) = notebook.shell.user_ns["r_check"].notes
    assert note == "Not checked: line 4 reads gradients, and what is checked starts without any."
