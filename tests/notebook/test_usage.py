"""A line that cannot be meant is answered with what is near; nothing asked for is dropped in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebook.conftest import Notebook


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("--bakend eager", "--backend?"),
        ("--backend inducor", "inductor?"),
        ("--mode max-autotun", "max-autotune"),
        ("--dtype bfloat", "bfloat16"),
        ("--target cuda:9", "cuda:90"),
        ("-o fuze=false", "fuse?"),
    ],
)
def test_what_was_mistyped_comes_with_what_is_near(notebook: Notebook, line: str, meant: str) -> None:
    notebook.fresh("x = torch.ones(4)")
    outcome = notebook.run(f"%%compile --no-bench {line}\ny = x + 1")
    assert "y" not in outcome.namespace and not notebook.records
    said = outcome.stdout + outcome.stderr
    assert "Did you mean" in said and meant in said.split("Did you mean")[1]


def test_what_is_like_nothing_guesses_nothing(notebook: Notebook) -> None:
    notebook.fresh("x = torch.ones(4)")
    outcome = notebook.run("%%compile --zzz\ny = x + 1")
    said = outcome.stdout + outcome.stderr
    assert "unrecognized arguments: --zzz" in said and "Did you mean" not in said


def test_a_pair_that_is_not_there_is_said(notebook: Notebook) -> None:
    notebook.fresh("x = torch.ones(4, 4)")
    notebook.run("%%compile --no-bench --no-fuse ad:sin -o force_fuse=add:sin\ny = (x + 1).sin()")
    notes = notebook.records[-1].notes
    assert any("no_fuse ad:sin: there is no loop ad here. Did you mean add?" in note for note in notes)
    assert not any("force_fuse" in note for note in notes)
    notebook.run("%%compile --no-bench --no-fuse add:sin\ny = (x + 1).sin()")
    assert not notebook.records[-1].notes and len(notebook.records[-1].kernels) == 2


def test_saving_says_where(notebook: Notebook, tmp_path: Path) -> None:
    notebook.fresh("x = torch.ones(4)")
    outcome = notebook.run(f"%%compile --no-bench --save {tmp_path}/made.json\ny = x + 1")
    assert f"saved {tmp_path}/made.json (" in outcome.stdout


def test_a_callable_has_no_record_to_compare(notebook: Notebook) -> None:
    notebook.fresh("x = torch.ones(4)\nf = torch.sin")
    outcome = notebook.run("%compile --compare eager --save a.json f")
    assert "--compare, --save wants a call, e.g. %compile f(x)" in outcome.stdout + outcome.stderr


def test_help_needs_no_cell(notebook: Notebook) -> None:
    notebook.fresh("x = torch.ones(4)")
    outcome = notebook.run("%%compile --help")
    assert "--backend" in outcome.stdout and "error" not in outcome.stderr.lower()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("%%compile --save /no/such/folder/p.html", "there is no folder /no/such/folder"),
        (
            "%%compile --no-bench --compare eager",
            "--compare says what is timed, and --no-bench that nothing is",
        ),
        ("%%compile --dynamic --no-dynamic", "contradict each other"),
        ("%%compile --ranks-stop", "--ranks-stop is for %compile, with one %"),
        ("%%compile --into class", "--into class: not a Python name"),
        ("%%compile --into torch", "would overwrite the module torch"),
        ("%%compile --compare eager,eager", "--compare names eager twice"),
        ("%%compile --no-time", "Did you mean --no-bench?"),
    ],
)
def test_what_contradicts_itself_is_refused_before_the_cell_runs(
    notebook: Notebook, line: str, told: str
) -> None:
    notebook.fresh("x = torch.ones(4)")
    outcome = notebook.run(f"{line}\ny = x + 1")
    assert told in outcome.stdout + outcome.stderr
    assert "y" not in outcome.namespace and not notebook.records


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "%compile --no-bench y = torch.sin(x)",
            "and this is a statement: y = torch.sin(x). Write %%compile",
        ),
        ("%compile torch.sin(x", "torch.sin(x is no Python: '(' was never closed"),
        ("%compile --ranks 2 torch.sin(x)", "--ranks runs a cell"),
        ("%compile --bakend eager torch.sin(x)", "Did you mean --backend?"),
    ],
)
def test_what_is_no_expression_is_said_to_be_none(notebook: Notebook, line: str, told: str) -> None:
    notebook.fresh("x = torch.ones(4)")
    outcome = notebook.run(line)
    assert told in outcome.stdout + outcome.stderr


def test_a_setting_that_names_nobody_is_named_and_stops_no_cell_that_is_not_timed(notebook: Notebook) -> None:
    notebook.fresh("x = torch.ones(4)")
    magics = notebook.shell.magics_manager.registry["NbCompile"]
    before, magics.compare = magics.compare, ["eager", "nope"]
    try:
        outcome = notebook.run("%%compile --no-bench\ny = x + 1")
        assert outcome.namespace["y"].tolist() == [2.0] * 4
        outcome = notebook.run("%%compile\nz = x + 1")
        assert "%config NbCompile.compare: backend 'nope' is unknown" in outcome.stdout + outcome.stderr
    finally:
        magics.compare = before


def test_a_file_that_cannot_be_written_costs_no_view(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "p.html").mkdir()
    notebook.fresh("x = torch.ones(4)")
    outcome = notebook.run(f"%%compile --no-bench --save {tmp_path}/p.html\ny = x + 1")
    assert f"not saved to {tmp_path}/p.html: Is a directory" in outcome.stdout and notebook.records
