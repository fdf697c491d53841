"""``--watch``: the walk is kept where it is asked for, and told in a short table."""

from __future__ import annotations

from typing import Any

import pytest

from nbcompile.record.watched.walk import states
from nbcompile.view import to_text

SETUP = (
    "import torch\nx = torch.randn(4, 6)\ndef noisy(y):\n    z = y.sin()\n    print(len(z))\n    return z * 2"
)


def test_a_cell_is_watched_part_by_part(notebook: Any) -> None:
    notebook.run(SETUP)
    outcome = notebook.run(
        "%%compile --watch --no-bench --into R\nh = torch.relu(x)\nout = noisy(h)\nout.sum()"
    )
    assert not outcome.error
    record = notebook.shell.user_ns["R"]
    made = sorted(id for walk in record.walks for step in walk.steps for id in step.made)
    assert made == sorted(node.id for graph in record.of_stage("fx") for node in graph.nodes)
    assert record.walks[0].ended == "stopped" and "print()" in record.walks[0].reason
    lines = record.cell.source.splitlines()
    walk = record.walks[0]
    spans = [walk.instructions[step.at] for step in walk.steps]
    texts = {
        lines[at.line - 1][at.column : at.end_column]
        for at in spans
        if walk.codes[at.code].file == "" and at.column is not None and at.line == at.end_line
    }
    assert "torch.relu(x)" in texts
    assert any("FakeTensor f32[4, 6]" in state.stack for state in states(walk))


def test_the_text_has_a_short_table(notebook: Any) -> None:
    notebook.run(SETUP)
    notebook.run("%%compile --watch --no-bench --into R\nh = torch.relu(x)\nout = noisy(h)")
    text = to_text(notebook.shell.user_ns["R"])
    (head,) = [line for line in text.splitlines() if line.startswith("Capture: ")]
    assert "instructions followed in" in head
    assert "noisy, from line 5 on" in text and "began again: print() writes" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "Capture: " not in to_text(notebook.shell.user_ns["R"], show=("kernels",))


@pytest.mark.parametrize(
    "call", ["%compile --no-bench --into R noisy(x)", "%compile --watch --no-bench --into R noisy(x)"]
)
def test_a_call_is_watched_where_it_is_asked_for(notebook: Any, call: str) -> None:
    notebook.run(SETUP)
    notebook.run(call)
    record = notebook.shell.user_ns["R"]
    assert bool(record.walks) == ("--watch" in call)
    assert ("Capture: " in to_text(record)) == ("--watch" in call)


def test_a_cell_that_fails_keeps_its_walk(notebook: Any) -> None:
    notebook.run(SETUP)
    outcome = notebook.run(
        "%%compile --watch --no-bench --into R\nh = torch.relu(x)\nbad = h @ torch.ones(9, 9)"
    )
    assert outcome.error
    walks = notebook.shell.user_ns["R"].walks
    assert walks and walks[0].steps[-1].broke and walks[0].ended != "returned"


def test_a_callable_keeps_its_walk(notebook: Any) -> None:
    notebook.run(SETUP)
    notebook.run("f = %compile --watch noisy\nf(x)")
    assert notebook.shell.user_ns["f"].compilation.walks
