"""``%%compile`` with several modes, types or sizes: the cell's record, and a sweep of the cell below it."""

from __future__ import annotations

import pytest

pytest.importorskip("IPython")

from nbcompile.bench.sweep.result import Sweep
from nbcompile.notebook.completion import matcher
from tests.notebook.conftest import Notebook

SETUP = "B = 4\nx = torch.randn(B, 6)\nw = torch.randn(6, 3)"
CELL = "y = torch.relu(x @ w).view(B, -1)"
LINE = "%%compile --backend aot_eager --no-bench --compare eager,aot_eager"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--dtype int7", "argument --dtype: invalid choice: 'int7'"),
        ("--mode default,fast", "argument --mode: invalid choice: 'fast'"),
        ("--size B", "argument --size: wants NAME=1,8,64, got 'B'"),
        ("--size B=0", "wants NAME=1,8,64, got 'B=0'"),
        ("--size b-c=1", "'b-c' is no variable"),
        ("--size B=1 --size B=2", "--size names the same extent twice"),
        ("--sweep-into S", "--sweep-into wants a sweep"),
        ("--size B=1 --sweep-into 3x", "--sweep-into 3x: not a Python name"),
        ("--size B=1 --compare eager,inductor:max-autotune", "in a sweep --mode says the modes"),
    ],
)
def test_a_bad_sweep_is_one_line_and_nothing_runs(notebook: Notebook, line: str, says: str) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run(f"%%compile {line}\nran = True")
    assert outcome.error.startswith("UsageError: ") and says in outcome.error
    assert "ran" not in outcome.namespace


@pytest.mark.nightly
def test_a_sweep_stands_below_the_record(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    notebook.shell.run_line_magic("config", "NbCompile.cold = False")
    notebook.shell.run_line_magic("config", "NbCompile.bench_seconds = 0.05")
    outcome = notebook.run(f"{LINE} --dtype float32,bfloat16 --size B=2,3 --into R --sweep-into S\n{CELL}")
    assert outcome.error == "" and outcome.stdout == ""
    assert outcome.namespace["R"] is notebook.records[-1]
    found = outcome.namespace["S"]
    assert isinstance(found, Sweep)
    assert [row["status"] for row in found.rows()] == ["ok"] * 8
    assert outcome.displays == [{"text/plain": repr(found)}]  # a terminal: in a notebook HTML beside it
    record = found.record(backend="aot_eager", dtype="bfloat16", B=3)
    shapes = {(node.dtype, node.shape) for node in record.graphs[0].nodes if node.kind == "input"}
    assert shapes == {("bfloat16", (3, 6)), ("bfloat16", (6, 3))}
    assert outcome.namespace["y"].shape == (4, 3), "the cell's own arguments are as they were"


def test_extents_by_their_place_or_number(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    body = "y = torch.relu(x @ w)"
    outcome = notebook.run(f"{LINE} --size 'x[0]=2' --size 6=5 --sweep-into S\n{body}")
    assert [row["status"] for row in outcome.namespace["S"].rows()] == ["ok", "ok"]
    (note,) = notebook.records[-1].notes
    assert note.startswith("the cell itself is not timed, as was asked; the sweep")
    graph = outcome.namespace["S"].records[1].graphs[0]
    assert {node.shape for node in graph.nodes if node.kind == "input"} == {(2, 5), (5, 3)}
    outcome = notebook.run(f"{LINE} --size Q=2\n{body}")
    assert outcome.stdout == (
        "nbcompile: --size Q: no argument has such an extent; there are 4 (x[0]), 6 (x[1], w[0]), 3 (w[1])\n"
    )
    assert "y" in outcome.namespace and len(notebook.records) == 2


def test_a_call_can_be_swept_and_a_callable_not(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run(f"{LINE[1:]} --size B=2 --sweep-into S torch.relu(x)")
    assert outcome.error == "" and outcome.result.shape == (4, 6)
    assert [row["B"] for row in outcome.namespace["S"].rows()] == [2, 2]
    outcome = notebook.run("%compile --size B=2 torch.relu")
    assert "a sweep wants a call, e.g. %compile torch.relu(x)" in outcome.error


def test_values_in_a_list_are_completed(notebook: Notebook) -> None:
    from IPython.core.completer import CompletionContext

    def complete(line: str) -> list[str]:
        found = matcher(["--mode"], lambda: ["a"])(
            CompletionContext(
                token=line.split(",")[-1].split()[-1],
                full_text=line,
                cursor_position=len(line),
                cursor_line=0,
                limit=None,
            )
        )
        return [completion.text for completion in found["completions"]]

    assert complete("%%compile --dtype float32,bf") == ["bfloat16"]
    assert complete("%%compile --mode default,red") == ["reduce-overhead"]
