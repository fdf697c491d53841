"""Of an error, an interrupt or ``--fullgraph`` a user sees the program's own lines, and no frame of ours."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from nbcompile.api import Compiled
from tests.notebook.conftest import Notebook, Outcome

SETUP = (
    "x = torch.ones(4, 4)\n"
    "def bad(t):\n    raise ValueError('mine')\n"
    "def mismatched(t):\n    u = t + 1\n    return u @ torch.ones(3)\n"
    "def talks(t):\n    u = t * 2\n    print('in talks')\n    return u\n"
)


def shown(outcome: Outcome) -> str:
    """The traceback, in which none of ours and none of Dynamo's is."""
    assert "nbcompile/" not in outcome.stdout and "_dynamo" not in outcome.stdout, outcome.stdout
    assert "compiled_call" not in outcome.stdout
    return outcome.stdout


@pytest.mark.parametrize(
    "line, error, frames",
    [
        ("bad(x)", "ValueError: mine", ["<module>", "bad"]),
        ("nosuch(x)", "NameError: name 'nosuch' is not defined", ["<module>"]),
        ("x + nosuch", "NameError: name 'nosuch' is not defined", ["<module>"]),
        ("mismatched(x * 2)", "RuntimeError: ", ["<module>", "mismatched"]),
        ("--fullgraph bad(x)", "ValueError: mine", ["<module>", "bad"]),
        ("--check bad(x)", "", []),
    ],
)
def test_of_a_call_as_without_us(notebook: Notebook, line: str, error: str, frames: list[str]) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run(f"%compile --no-bench {line}")
    assert outcome.error.startswith(error)
    assert error.partition(":")[0] in shown(outcome)
    if frames:
        assert [name for _, name in outcome.frames] == frames


def test_a_fault_of_ours_keeps_its_frames(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compiled, "_in_full", None)
    notebook.fresh(SETUP)
    assert "compiling.py" in notebook.run("%compile --no-bench bad(x)").stdout


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Python's own handler: a shell has what it starts in the background ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize(
    "cell",
    [
        "%%compile --no-bench\ny = x + 1\nz = y.sum()",
        "%compile --no-bench talks(x)",
        "%%compile --no-bench\nfor i in range(40):\n    y = x + i\n    s = y.sum().item()",
    ],
    ids=["the first call", "a call", "a loop"],
)
def test_an_interrupt_shows_the_line_it_came_at(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, cell: str
) -> None:
    original, calls = Compiled.__call__, []

    def interrupted(self: Compiled, *args: Any) -> Any:
        calls.append(self)
        if "range" not in cell or len(calls) > 3:
            signal.raise_signal(signal.SIGINT)
        return original(self, *args)

    monkeypatch.setattr(Compiled, "__call__", interrupted)
    notebook.fresh(SETUP)
    outcome = notebook.run(cell)
    assert outcome.error == "KeyboardInterrupt: "
    assert "KeyboardInterrupt" in shown(outcome) and "----> " in outcome.stdout


@pytest.mark.parametrize(
    "body, line, reason",
    [
        ("y = x + 1\nif y.sum() > 0:\n    z = y * 2", 3, "the branch depends on the values"),
        ("y = x + 1\nwhile y.sum() > 0:\n    z = y = y - 9", 3, "how often the loop runs depends"),
        ("y = x + 1\nprint('hi')\nz = y * 2", 3, "print runs in Python"),
        ("import time\ny = x + 1\ntime.sleep(0)\nz = y * 2", 4, "time.sleep runs in Python"),
    ],
    ids=["branch", "loop", "print", "sleep"],
)
def test_fullgraph_refuses_a_break_at_its_line(notebook: Notebook, body: str, line: int, reason: str) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run(f"%%compile --fullgraph --no-bench\n{body}")
    assert outcome.error.startswith(f"CellError: line {line}: the graph breaks here: {reason}")
    assert [at for at, _ in outcome.frames] == [line]
    assert "z" not in outcome.namespace and "hi\n" not in outcome.stdout
    shown(outcome)
    record = notebook.records[-1]
    assert [found.spans[-1].line for found in record.breaks] == [line]
    assert "an error with --fullgraph, so nothing was measured" in record.notes[-1]


@pytest.mark.parametrize(
    ("body", "line", "at", "told"),
    [
        (
            "y = x + 1\ns = y.sum().item()\nz = y * s", 4, 3,
            "this does not go into the graph before it: .item() reads a tensor's value into Python "
            "(at line 3). Keep it a tensor to have one graph: without .item()",
        ),
        (
            "def f(t):\n    u = t * 2\n    print('hi')\n    return u + 1\nz = f(x)", 6, 4,
            "the graph breaks here: print() writes to the screen, which a graph cannot do (at line 4). Print",
        ),
    ],
    ids=["known by the next line", "in a function of the cell"],
)  # fmt: skip
def test_fullgraph_names_the_line_it_points_at_and_says_where_the_break_is(
    notebook: Notebook, body: str, line: int, at: int, told: str
) -> None:
    notebook.fresh(SETUP)
    outcome = notebook.run(f"%%compile --fullgraph --no-bench\n{body}")
    assert outcome.error.startswith(f"CellError: line {line}: {told}")
    assert [each for each, _ in outcome.frames] == [line]
    assert "z" not in outcome.namespace and "hi\n" not in outcome.stdout
    shown(outcome)
    record = notebook.records[-1]
    assert [found.spans[-1].line for found in record.breaks] == [at]
    assert f"Line {line} does not go into one graph, for line {at}: an error" in record.notes[-1]


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("y = x + 1\nprint('hi')\nz = y * 2", "Move it before or after the tensor statements"),
        ("y = x + 1\nprint(y)\nz = y * 2", "Move it after the tensor statements"),
        ("import time\ny = x + 1\ns = time.time()\nz = y * s", "Move it before the tensor statements"),
        ("y = x + 1\ns = id(y) % 7\nz = y * s", "What is after it needs it, and it needs what is before"),
        ("y = x + 1\ns: int = 3\nz = y * 2", "Leave the annotation out"),
    ],
)
def test_the_hint_at_a_break_can_be_followed(notebook: Notebook, body: str, hint: str) -> None:
    notebook.fresh(SETUP)
    assert f". {hint}" in notebook.run(f"%%compile --fullgraph --no-bench\n{body}").error
    notebook.fresh(SETUP)
    notebook.run(f"%%compile --no-bench\n{body}")
    assert [found.hint.startswith(hint) for found in notebook.records[-1].breaks] == [True]


def test_fullgraph_says_where_in_another_cell(notebook: Notebook) -> None:
    notebook.fresh(SETUP)
    for cell in (
        "%%compile --fullgraph --no-bench\nz = talks(x)",
        "%compile --fullgraph --no-bench talks(x)",
    ):
        outcome = notebook.run(cell)
        assert "(line 10 of the cell that defines it)" in outcome.error
        assert "in talks\n" not in shown(outcome)


@pytest.mark.parametrize(
    "body",
    ["y = x + 1\nn = 3\nprint(n)", "print(1)\ny = x + 1\nn = 4", "y = x + 1\nk = len('abc')\nz = y * k"],
)
def test_fullgraph_lets_pass_what_parts_nothing(notebook: Notebook, body: str) -> None:
    notebook.fresh(SETUP)
    assert not notebook.run(f"%%compile --fullgraph --no-bench\n{body}").error


def test_fullgraph_leaves_the_optimizer_its_place(notebook: Notebook) -> None:
    """torch parts the graph around a step itself, and nobody can write that otherwise."""
    notebook.fresh("w = torch.ones(4, requires_grad=True)\nopt = torch.optim.SGD([w], lr=0.1)")
    steps = ("loss = (w * 2).sum()", "loss.backward()", "opt.step()", "opt.zero_grad()")
    body = "\n    ".join(("for _ in range(3):", *steps))
    assert not notebook.run(f"%%compile --fullgraph --optimizer --no-bench\n{body}").error
