"""Each cell remembers its last run, and the session what was compiled in it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from IPython.utils.capture import capture_output

from nbcompile import view
from nbcompile.errors import OptionError, PlayError
from nbcompile.notebook import runs
from nbcompile.notebook.play.play import SESSION
from nbcompile.notebook.runs import RunIndex, SessionRuns, changed_since
from nbcompile.record.compilation import Compilation, Graph, Node
from tests.notebook.conftest import Notebook

CELL = "y = torch.softmax(x, -1) * 2"


def record(notebook: Notebook, source: str, cell_id: str | None, flags: str = "--no-bench") -> Compilation:
    """What a cell that its front end calls ``cell_id`` was compiled to."""
    with capture_output():
        text = f"%%compile {flags} --into made\n{source}"
        notebook.shell.run_cell(text, store_history=True, cell_id=cell_id).raise_error()
    made = notebook.shell.user_ns["made"]
    assert isinstance(made, Compilation)
    return made


@pytest.fixture(autouse=True)
def session(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> SessionRuns:
    notebook.fresh("x = torch.randn(64, 64)")
    monkeypatch.setattr(SESSION, "runs", SessionRuns())
    return SESSION.runs


def test_an_edited_cell_says_what_changed(notebook: Notebook) -> None:
    first = record(notebook, CELL, "a")
    assert first.since is None
    second = record(notebook, CELL, "a", "--no-bench --no-fuse max:exp")
    assert second.since is not None and second.since.record == first.id
    kernels, *rest = second.since.changes
    assert kernels == "1 → 2 kernels"
    assert any("are no longer one kernel" in each and each.startswith("line 2: ") for each in rest)
    for shown in (view.to_text(second), view.to_html(second)):
        plain = re.sub(r"<[^>]+>", "", shown)
        assert "Since In [" in plain and "1 → 2 kernels" in plain
    assert "1 → 2 kernels" in view.whole(second)["view"]["since"]
    assert Compilation.from_json(second.to_json()) == second


@pytest.mark.nightly
def test_the_same_again_says_so_and_another_cell_knows_nothing_of_it(notebook: Notebook) -> None:
    record(notebook, CELL, "a")
    again = record(notebook, CELL, "a")
    assert again.since is not None and again.since.changes == ("1 kernel as before",)
    assert record(notebook, CELL, "b").since is None
    assert record(notebook, CELL, None).since is None and record(notebook, CELL, None).since is None


def test_the_run_before_can_be_asked_for(notebook: Notebook) -> None:
    first = record(notebook, CELL, "a")
    second = record(notebook, CELL + " + 1", "a")
    assert second.since is not None
    answer = SESSION.answer("earlier", {"record": second.since.record}, lambda *_: None)
    assert Compilation.from_dict(answer["payload"]) == first
    with pytest.raises(PlayError, match="no longer held"):
        SESSION.answer("earlier", {"record": "unknown"}, lambda *_: None)


def test_the_index_of_a_session(notebook: Notebook) -> None:
    one = record(notebook, CELL, "a")
    two = record(notebook, "z = x.relu()", None)
    index: Any = notebook.shell.run_cell("%compile --runs").result
    assert isinstance(index, RunIndex) and list(index) == [one, two] and index[1] == two
    text = repr(index)
    assert "2 compilations of this session" in text and "z = x.relu()" in text and CELL in text
    assert "<script" not in index._repr_html_() and "z = x.relu()" in index._repr_html_()
    with pytest.raises(OptionError, match="no row 2"):
        index[2]
    with capture_output() as out:
        notebook.shell.run_cell("%%compile --runs\n1")
    assert "one %" in out.stdout + out.stderr


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "NODES", 250)
    held = SessionRuns()
    nodes = tuple(Node(f"g0.fx.n{n}", "n", "op", "compute") for n in range(100))
    for number in range(6):
        held.remember("cell", Compilation(id=str(number), graphs=(Graph("g0", "fx", "", nodes),)))
    assert [each.id for each in held.index()] == ["4", "5"]
    held.remember("cell", Compilation(id="huge", graphs=(Graph("g0", "fx", "", nodes * 5),)))
    assert [each.id for each in held.index()] == ["huge"], "the last one is there in any case"


def test_times_are_told_apart_only_where_they_are(notebook: Notebook) -> None:
    def timed(id: str, samples: tuple[float, ...]) -> Compilation:
        from nbcompile.record.compilation import Measurement

        return Compilation(id=id, measurements=(Measurement("cell", "nbcompile", steady=samples),))

    fast = timed("a", (0.001, 0.0011, 0.0011, 0.0011, 0.0012))
    slow = timed("b", (0.002, 0.0022, 0.0022, 0.0022, 0.0023))
    wide = timed("c", (0.0009, 0.0013, 0.0014, 0.0015, 0.003))
    assert changed_since(fast, slow).changes[1] == "2.0× slower (1.1 ms → 2.2 ms)"
    assert changed_since(slow, fast).changes[1] == "2.0× faster (2.2 ms → 1.1 ms)"
    assert changed_since(fast, wide).changes[1].startswith("no clear difference in time")


def test_a_text_run_again_and_a_call_have_rows_of_their_own(notebook: Notebook) -> None:
    record(notebook, CELL, None)
    notebook.run("x = torch.randn(32, 32)")
    record(notebook, CELL, None)
    notebook.run("%compile --no-bench x.relu()")
    index: Any = notebook.shell.run_cell("%compile --runs").result
    assert [len(each.kernels) for each in index] == [1, 1, 1]
    assert "3 compilations of this session" in repr(index) and "x.relu()" in repr(index)
    assert repr(index).count("In [") == 3


def test_a_compiled_callable_has_a_row_once_it_compiled(notebook: Notebook) -> None:
    notebook.run("def f(t):\n    return t.relu() + 1\ng = %compile f")
    assert not len(notebook.shell.run_cell("%compile --runs").result)
    notebook.run("g(x)")
    (found,) = notebook.shell.run_cell("%compile --runs").result
    assert len(found.kernels) == 1
    notebook.run("del g")


@pytest.mark.parametrize(
    "line, body, name",
    [
        ("--into y", "y = x + 1", "y"),
        ("--into y", "def y(): ...\nz = x + 1", "y"),
        ("--into y --check", "y_check = x + 1", "y_check"),
        ("--sweep-into y --size x[0]=1,2", "for y in (x, x + 1): pass", "y"),
    ],
)
def test_a_record_overwrites_nothing_that_the_cell_binds(
    notebook: Notebook, line: str, body: str, name: str
) -> None:
    outcome = notebook.run(f"%%compile --no-bench {line}\n{body}")
    assert not outcome.error and f"would overwrite {name}, which the cell binds itself" in outcome.stdout
    assert not isinstance(outcome.namespace[name], Compilation) and not notebook.records


def test_a_local_name_of_a_function_may_be_bound(notebook: Notebook) -> None:
    outcome = notebook.run("%%compile --no-bench --into y\ndef f(t):\n    y = t + 1\n    return y\nz = f(x)")
    assert isinstance(outcome.namespace["y"], Compilation)
