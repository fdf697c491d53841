"""``%%compile --target`` and ``--interpret``: code for a GPU that this machine need not have."""

from __future__ import annotations

import json

import pytest
import torch

from nbcompile import view
from nbcompile.options import Options
from nbcompile.record.compilation import Compilation
from nbcompile.record.roofline import main_ceilings, points
from tests.nightly import few
from tests.notebook.conftest import Notebook

pytest.importorskip("triton")

SETUP = "torch.manual_seed(0)\nx = torch.randn(64, 512)\nw = torch.randn(512, 1000)"
CELL = "y = x @ w\nz = torch.softmax(y, -1) * 2\nz"


def run(notebook: Notebook, line: str, cell: str = CELL) -> tuple[Compilation, object]:
    notebook.fresh(SETUP)
    outcome = notebook.run(f"%%compile {line}\n{cell}")
    assert outcome.error == "", outcome.error
    return notebook.records[-1], outcome.result


def eager() -> torch.Tensor:
    torch.manual_seed(0)
    x, w = torch.randn(64, 512), torch.randn(512, 1000)
    return torch.softmax(x @ w, -1) * 2


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--target cuda:1", "argument --target: invalid choice: 'cuda:1'"),
        ("--target cuda:90 --backend inductor", "--target is an option of nbcompile"),
        ("--backend eager --interpret", "--interpret is an option of nbcompile"),
        ("--interpret --target cpu", "--interpret runs kernels for a GPU"),
        ("--autotune-seconds soon", "argument --autotune-seconds: invalid float value"),
        ("--autotune-seconds -1", "autotune_seconds=-1.0 wants a number of seconds"),
    ],
)
def test_what_cannot_be_meant_is_one_line(notebook: Notebook, line: str, says: str) -> None:
    notebook.fresh("")
    outcome = notebook.run(f"%%compile {line}\nran = True")
    assert says in outcome.error and "ran" not in outcome.namespace


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("--target hip:gfx942", "target", "hip:gfx942"),
        ("--interpret", "target", "cuda:90"),
        ("--interpret --target cuda:80", "target", "cuda:80"),
        ("-o target=cuda:100 --interpret", "target", "cuda:100"),
        ("--interpret", "interpret", True),
        ("--deterministic", "deterministic", True),
        ("--autotune-seconds 2.5", "autotune_seconds", 2.5),
        ("", "target", "auto"),
    ],
)
def test_flags_are_options(notebook: Notebook, line: str, name: str, value: object) -> None:
    magics = notebook.shell.find_cell_magic("compile").__self__
    from nbcompile.notebook.arguments import cell_options

    found = cell_options(magics._parser.parse_argstring(line), magics._defaults())
    assert getattr(Options.from_mapping(found.mapping, mode=found.mode), name) == value


@pytest.mark.parametrize(
    ("text", "offered"),
    [("%%compile --target hip:gfx94", "hip:gfx942"), ("%%compile --inter", "--interpret")],
)
def test_completion(notebook: Notebook, text: str, offered: str) -> None:
    _, matches = notebook.shell.complete(None, text, len(text))
    word = text.split()[-1]
    assert any(offered.endswith(match) and offered.startswith(word) for match in matches), matches


@few(1)
@pytest.mark.parametrize(
    ("target", "chip", "last"),
    [("cuda:90", "NVIDIA H100 SXM", "ptx"), ("hip:gfx942", "AMD MI300X", "amdgcn")],
)
def test_a_cell_for_a_chip_that_is_not_here_runs_eagerly_and_shows_all(
    notebook: Notebook, target: str, chip: str, last: str
) -> None:
    record, result = run(notebook, f"--target {target}")
    assert isinstance(result, torch.Tensor) and torch.equal(result, eager())
    assert record.execution == "eager" and record.measurements == () and record.accuracy == ()
    assert record.environment.device == "cpu", "where the cell ran"
    (kernel,) = record.kernels
    assert kernel.target == target and kernel.seconds is None
    assert next(iter(kernel.sources)) == "triton" and {"ttir", "ttgir", "llir", last} <= set(kernel.sources)
    assert kernel.launches[0].registers and kernel.predicted_seconds
    text, html = view.to_text(record), view.to_html(record)
    assert text.startswith(f"compiled for {chip} ({target}), which is not here: the cell ran eagerly\n")
    assert "Timings" not in text and "one call" not in html
    assert f"Roofline: {chip} ({target}), published rates" in text and "no spills" in html
    assert len(html.encode()) < 300_000, "three lines of a cell"
    assert len(json.dumps(view.payload(record))) < 100_000
    assert Compilation.from_json(record.to_json()) == record


def test_lines_of_ptx_lead_to_lines_of_triton_and_of_the_cell(notebook: Notebook) -> None:
    record, _ = run(notebook, "--target cuda:90")
    html = view.to_html(record)
    assert 'title="cell lines that this line serves"' in html
    assert 'title="line of the source above"' in html


def test_the_interpreter_is_checked_against_eager_and_not_timed(notebook: Notebook) -> None:
    record, result = run(notebook, "--interpret")
    assert isinstance(result, torch.Tensor) and torch.allclose(result, eager(), atol=1e-6)
    assert record.execution == "interpreted" and record.options["target"] == "cuda:90"
    assert record.measurements == () and {entry.output for entry in record.accuracy} == {"y", "z"}
    assert all(entry.agrees and entry.contestant == "nbcompile" for entry in record.accuracy)
    assert not [note for note in record.notes if "eager" in note], record.notes
    text = view.to_text(record)
    assert text.startswith(
        "kernels for NVIDIA H100 SXM (cuda:90), run by Triton's interpreter, agree with eager\n"
    )
    assert "Timings" not in text and "Accuracy: relative error" in view.to_html(record)


def test_a_kernel_of_two_launches_is_predicted_alike_wherever_it_runs(notebook: Notebook) -> None:
    """4 µs where it was built, 2 µs in the interpreter; and the record's own time had one launch in both."""
    found = []
    for line in ("--no-bench --target cuda:90", "--no-bench --interpret --target cuda:90"):
        record, _ = run(notebook, line, "y = torch.softmax(x, -1) * 2; z = y.sum()")
        (kernel,) = record.kernels
        grids = [(launched.function, launched.grid, launched.warps) for launched in kernel.launches]
        (told,) = points(record, main_ceilings(record))
        assert told.predicted == pytest.approx(kernel.predicted_seconds)
        found.append((grids, kernel.predicted_seconds))
    assert found[0] == found[1] and len(found[0][0]) == 2 and found[0][1] > 4e-6


def test_a_failing_interpreter_does_not_pass_for_agreement(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise TypeError("a bad kernel")

    monkeypatch.setattr("nbcompile.compiler.runtime.interpreter.interpret.interpreted", broken)
    record, result = run(notebook, "--interpret")
    assert isinstance(result, torch.Tensor) and torch.equal(result, eager()), "the cell runs all the same"
    assert record.accuracy == ()
    assert view.to_text(record).startswith("ran eager: ") and "a bad kernel" in view.to_text(record)


def test_a_line_magic_takes_a_target_too(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run("def f(t):\n    return torch.relu(t) * 2\n%compile --target cuda:80 f(x)")
    assert outcome.error == "" and isinstance(outcome.result, torch.Tensor)
    assert notebook.records[-1].kernels[0].target == "cuda:80" and notebook.records[-1].execution == "eager"
