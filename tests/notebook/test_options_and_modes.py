"""The magic's way to options and modes: listed, completed, checked, compared."""

from __future__ import annotations

import pytest
import torch

from nbcompile.backends.browse import OptionTable
from tests.notebook.conftest import Notebook


def test_list_options(notebook: Notebook) -> None:
    listed = notebook.run("%compile --list-options --backend inductor triton.*").result
    assert isinstance(listed, OptionTable) and listed.backend == "inductor"
    assert len(listed) > 10 and all(option.name.startswith("triton.") for option in listed)
    assert len(notebook.run("%compile --list-options").result) == 14
    assert [o.name for o in notebook.run("%compile --list-options autotune").result] == ["autotune_seconds"]


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%compile --list-options one two", "one pattern"),
        ("%compile --list-options --backend nowhere", "is unknown"),
        ("%%compile --list-options\nx = 1", "one %"),
        ("%%compile --backend inductor -o max_autotun=1\nx = 1", "Did you mean max_autotune"),
        ("%%compile --recompile-limit 0\nx = 1", "from 1 on"),
        ("%%compile --mode lite\nx = 1", "lite is Inductor's alone: --backend inductor --mode lite"),
        ("%%compile --backend eager --mode max-autotune\nx = 1", "has no mode 'max-autotune'"),
    ],
)
def test_what_cannot_be_meant(notebook: Notebook, cell: str, said: str) -> None:
    outcome = notebook.run(cell)
    assert said in outcome.error + outcome.stderr + outcome.stdout


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("%%compile --backend inductor -o max_auto", "max_autotune="),
        ("%%compile --backend inductor -o max_autotune=", "max_autotune=true"),
        ("%%compile -o random=ph", "random=philox"),
        ("%%compile -o no", "no_fuse="),
        ("%%compile --mode-diff default,red", "default,reduce-overhead"),
        ("%%compile --disa", "--disable"),
        ("%%compile --backend inductor --mode li", "lite"),
    ],
)
def test_completion(notebook: Notebook, text: str, offered: str) -> None:
    _, matches = notebook.shell.complete(None, text, len(text))
    typed = text.rpartition(" ")[2]
    # A match replaces the end of what was typed, as far as it begins alike.
    whole = {typed[:cut] + match for match in matches for cut in range(len(typed) + 1)}
    assert offered in whole, matches


def test_disable_and_name(notebook: Notebook) -> None:
    plain, off = notebook.both("x = torch.ones(3)", "y = x * 2\ny", "--disable --no-bench")
    assert plain.facts() == off.facts()
    assert notebook.records[-1].graphs == ()
    notebook.run("%%compile --name region --recompile-limit 4 --no-bench --into record\nz = x + 1")
    assert torch.equal(notebook.shell.user_ns["z"], torch.full((3,), 2.0))
    assert notebook.records[-1].graphs


def test_mode_diff_of_a_cell_and_of_a_call(notebook: Notebook) -> None:
    from nbcompile.record.mode_diff import ModeDiff

    notebook.run("import torch\nx = torch.linspace(0, 1, 64).reshape(8, 8)\ncount = 0")
    outcome = notebook.run("%%compile --mode-diff max-autotune --no-bench --into r\ny = torch.relu(x) * 2")
    found = notebook.shell.user_ns["r_modes"]
    assert isinstance(found, ModeDiff) and found.modes == ("default", "max-autotune")
    assert found.kernels("max-autotune") == () and all(len(r.record.kernels) == 1 for r in found.results)
    assert any("against default" in data.get("text/html", "") for data in outcome.displays)
    assert any("What the modes set" in data["text/plain"] for data in outcome.displays)
    notebook.run("%compile --mode-diff reduce-overhead --no-bench --into called torch.relu(x)")
    assert notebook.shell.user_ns["called_modes"].modes == ("default", "reduce-overhead")
    wrong = notebook.run("%%compile --mode-diff quick\ny = x")
    assert "'quick' is unknown" in wrong.error + wrong.stderr + wrong.stdout


def test_a_configured_mode_holds_for_backends_that_have_it(notebook: Notebook) -> None:
    notebook.run('%config NbCompile.mode = "max-autotune"')
    notebook.run("%%compile --backend eager --no-bench\nx = torch.ones(3) + 1")
    notebook.run("%%compile --no-bench\nx = torch.ones(3) + 1")
    assert [record.mode for record in notebook.records[-2:]] == ["default", "max-autotune"]


def test_modes_are_of_the_cell_and_not_of_a_function_of_ours(notebook: Notebook) -> None:
    notebook.fresh("x = torch.ones(4)")
    notebook.run("%%compile --no-bench --mode-diff max-autotune --into made\ny = x + 1")
    assert repr(notebook.shell.user_ns["made_modes"]).startswith("<The cell on nbcompile")
