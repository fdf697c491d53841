"""Cells that break: each has a mend, in words or as a rewrite that compiles whole and agrees with eager."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from nbcompile.bench.measure.accuracy import NOT_IN_EAGER, compare_values
from nbcompile.coach.source import Source, unified
from nbcompile.notebook import magics
from nbcompile.notebook.cell import coaching
from nbcompile.notebook.cell.other_cells import NotInPlaceError, OtherCell, other_file
from nbcompile.record.advice.coach import Mend
from nbcompile.record.compilation import Accuracy, Compilation, Graph, GraphBreak, Measurement, Node
from nbcompile.view.text import to_text
from tests.nightly import few
from tests.notebook.conftest import Notebook, notebook, session_shell

__all__ = ["notebook", "session_shell"]

_SETUP = (
    "import copy, gc, logging, math, random, time, warnings\nimport numpy as np\nfrom torch import nn\n"
    "x = torch.randn(64, 64)\n"
)
_BLOCKS = re.findall(
    r"^=== (.+) \| (\w+)\n((?:(?!===).*\n?)*)",
    (Path(__file__).parent / "cells_that_break.txt").read_text(encoding="utf-8"),
    re.MULTILINE,
)
REWRITTEN = {head: body for head, kind, body in _BLOCKS if kind == "rewritten"}
WORDS = {head: body for head, kind, body in _BLOCKS if kind == "words"}


def coached(notebook: Notebook, body: str, monkeypatch: pytest.MonkeyPatch, flag: str = "") -> Compilation:
    # Times are not what is held here: without them a cell takes a second.
    monkeypatch.setattr(magics, "measure_cell", lambda run, record, *_: record)
    torch._dynamo.reset()
    before, _, cell = body.rpartition("---\n")
    notebook.fresh(_SETUP + before)
    notebook.run(f"%%compile --compare eager {flag}".rstrip() + f"\n{cell}")
    return notebook.records[-1]


def tensors(found: dict[str, object]) -> dict[str, torch.Tensor]:
    return {
        name: torch.as_tensor(value).detach()
        for name, value in found.items()
        if isinstance(value, torch.Tensor | float | int)
    }


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(REWRITTEN) >= 25 and len(REWRITTEN) + len(WORDS) >= 40


@few(2)
@pytest.mark.parametrize("head", REWRITTEN)
def test_the_diff_applied_compiles_whole_and_agrees(
    notebook: Notebook, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = coached(notebook, REWRITTEN[head], monkeypatch)
    assert record.breaks and record.cell is not None
    mend = next(item.mend for item in record.breaks if item.mend is not None and item.mend.after)
    assert mend.diff == unified(record.cell.source, mend.after) and mend.diff
    assert mend.title in to_text(record)

    before = REWRITTEN[head].rpartition("---\n")[0]
    plain = record.cell.source.split("\n", 1)[1]
    notebook.fresh(_SETUP + before)
    eager = notebook.run(plain)
    torch._dynamo.reset()
    notebook.fresh(_SETUP + before)
    applied = notebook.run(mend.after.replace("%%compile --compare eager", "%%compile --no-bench", 1))
    again = notebook.records[-1]
    assert not applied.error and not again.breaks
    assert len(again.of_stage("fx")) == 1
    names = set(re.findall(r"^(\w+) =", plain, re.MULTILINE)) & set(tensors(eager.namespace))
    got = {**tensors(applied.namespace), "shown": applied.result}
    want = {**tensors(eager.namespace), "shown": eager.result}
    checked = names | ({"shown"} if isinstance(eager.result, torch.Tensor) else set())
    assert checked
    for name in checked:
        assert compare_values("mend", name, got, want, None).agrees, name


ELSEWHERE = {
    head: body.rpartition("---\n")[2].rpartition("out = f(x)")
    for head, body in REWRITTEN.items()
    if body.rpartition("---\n")[2].startswith("def f(x):\n") and body.endswith("out = f(x)\n")
}


@few(2)
@pytest.mark.parametrize("head", ELSEWHERE)
def test_a_function_of_another_cell_is_mended_there(
    notebook: Notebook, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same functions, defined in a cell before: its text is rewritten, and nothing of it has changed."""
    monkeypatch.setattr(magics, "measure_cell", lambda run, record, *_: record)
    torch._dynamo.reset()
    defined, _, _ = ELSEWHERE[head]
    notebook.fresh(_SETUP + REWRITTEN[head].rpartition("---\n")[0])
    plain = notebook.run(defined + "out = f(x)").namespace["out"]
    notebook.run(defined)
    code = notebook.shell.user_ns["f"].__code__
    cell = "%%compile --compare eager\nout = f(x)"
    notebook.run(cell)
    record = notebook.records[-1]
    mend = next(item.mend for item in record.breaks if item.mend is not None and item.mend.after)
    assert mend.before == defined.rstrip("\n") and mend.cell == f"In [{notebook.shell.execution_count - 2}]"
    assert mend.diff == unified(mend.before, mend.after)
    assert f" in {mend.cell} (" in to_text(record) and to_text(record).count("@@ -") == 1
    assert notebook.shell.user_ns["f"].__code__ is code

    torch._dynamo.reset()
    assert not notebook.run(mend.after).error and not notebook.run(cell).error
    again = notebook.records[-1]
    assert not again.breaks and len(again.of_stage("fx")) == 1
    got = {"out": notebook.shell.user_ns["out"]}
    assert compare_values("mend", "out", got, {"out": plain}, None).agrees


def test_a_method_of_another_cell_is_mended_there(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a method that is mended others move up: what breaks in them is found by their new lines."""
    monkeypatch.setattr(magics, "measure_cell", lambda run, record, *_: record)
    torch._dynamo.reset()
    notebook.fresh(_SETUP)
    notebook.run(
        "class M(nn.Module):\n    def half(self, x):\n        if x.mean() > 0:\n            x = x - 1\n"
        "        return x.sin()\n    def forward(self, x):\n        y = self.half(x)\n        print(1)\n"
        "        return y * 2\nm = M()"
    )
    notebook.run("%%compile --compare eager\nout = m(x)")
    record = notebook.records[-1]
    assert len(record.breaks) == 2
    for item in record.breaks:
        assert item.mend is not None and item.mend.graphs_after == 1 and item.mend.cell
    assert "the change above mends it too" in to_text(record)


FILE = (
    "import torch\n\nclass M(torch.nn.Module):\n    def forward(self, x):\n        y = x.sin()\n"
    "        print(1)\n        return y * 2\n"
)


def test_a_method_of_a_file_is_mended_and_the_file_left_alone(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(magics, "measure_cell", lambda run, record, *_: record)
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "model_with_a_break.py"
    path.write_text(FILE)
    torch._dynamo.reset()
    notebook.fresh(_SETUP)
    notebook.run("from model_with_a_break import M\nm = M()")
    cell = "%%compile --compare eager\nout = m(x)"
    notebook.run(cell)
    (item,) = notebook.records[-1].breaks
    assert item.mend is not None and item.mend.cell == path.name and item.mend.graphs_after == 1
    assert item.mend.before == FILE.rstrip("\n") and item.mend.diff == unified(
        item.mend.before, item.mend.after
    )
    assert f" in {path.name} (" in to_text(notebook.records[-1])
    assert path.read_text() == FILE

    path.write_text(FILE.replace("sin", "cos"))  # not what was imported: what would be mended is not known
    torch._dynamo.reset()
    notebook.run(cell)
    (item,) = notebook.records[-1].breaks
    assert item.mend is not None and not item.mend.after and "as imported" in item.mend.note


def test_what_a_function_of_a_file_counts_is_put_back(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A module's own names are part of what the trials must leave as it was."""
    monkeypatch.setattr(magics, "measure_cell", lambda run, record, *_: record)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "module_that_counts.py").write_text(
        "seen = []\ntotal = {'calls': 0}\n\ndef f(x):\n    seen.append(1)\n    total['calls'] += 1\n"
        "    y = x.sin()\n    print(1)\n    return y * 2\n"
    )
    torch._dynamo.reset()
    notebook.fresh(_SETUP)
    notebook.run("import module_that_counts")
    notebook.run("%%compile --compare eager\nout = module_that_counts.f(x)")
    (item,) = notebook.records[-1].breaks
    assert item.mend is not None and item.mend.cell == "module_that_counts.py", item.mend
    module = notebook.shell.user_ns["module_that_counts"]
    assert module.seen == [1] and module.total == {"calls": 1}


def test_installed_packages_are_nobodys_to_mend(tmp_path: Path) -> None:
    assert other_file(torch.nn.functional.__file__) is None
    assert other_file(ast.__file__) is None
    assert other_file("<string>") is None and other_file(str(tmp_path / "gone.py")) is None
    (tmp_path / "large.py").write_text("x = 1\n" * 20_000)
    assert other_file(str(tmp_path / "large.py")) is None


CANNOT = {
    "lines that IPython rewrites": (
        "%precision\ndef f(x):\n    y = x.sin()\n    print(1)\n    return y * 2",
        "it breaks in text that is neither a cell's of this session nor a file's as imported",
    ),
    "text that is gone": (
        "exec(compile('def f(x):\\n    y = x.sin()\\n    print(1)\\n    return y', '<gone>', 'exec'))",
        "it breaks in text that is neither a cell's of this session nor a file's as imported",
    ),
}


@pytest.mark.parametrize("case", CANNOT)
def test_what_cannot_be_mended_in_place_is_said(
    notebook: Notebook, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(magics, "measure_cell", lambda run, record, *_: record)
    torch._dynamo.reset()
    definition, why = CANNOT[case]
    notebook.fresh(_SETUP)
    assert not notebook.run(definition).error
    notebook.run("%%compile --compare eager\nout = f(x)")
    record = notebook.records[-1]
    assert record.breaks
    for item in record.breaks:
        assert item.mend is not None and not item.mend.after and why in item.mend.note, item.mend


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("def f(x):\n    return x", "def f(x):\n    return x\ndef g(x):\n    return x", "In [7]"),
        ("def f(x):\n    return x", "f = len", "In [7]"),
        ("k = 1\ndef f(x):\n    return x", "k = 2\ndef f(x):\n    return x", "In [7]"),
        ("def f(x, y=1):\n    return x", "def f(x, y=2):\n    return x", "In [7]"),
        ("class A:\n    def f(self):\n        return 1", "class A:\n    pass", "A"),
        (
            "def outer():\n    k = 1\n    def f():\n        return 2\n    return f\nf = outer()",
            "def outer():\n    k = 1\n    def f():\n        return k\n    return f\nf = outer()",
            "",
        ),
    ],
)
def test_what_takes_more_than_other_code_is_not_done_in_place(before: str, after: str, what: str) -> None:
    scope: dict[str, Any] = {}
    exec(compile(before, "<other cell>", "exec"), scope)
    cell = OtherCell("In [7]", before, "<other cell>")
    if what:
        with pytest.raises(NotInPlaceError, match=re.escape(f"{what} has to run anew")):
            cell.mended(after)
        return
    with cell.mended(after):  # who calls outer() has the new code, what it returned before has the old
        assert scope["f"]() == 2 and scope["outer"]()() == 1
    assert scope["outer"]()() == 2


@few(1)
@pytest.mark.parametrize("head", WORDS)
def test_what_cannot_be_rewritten_has_words(
    notebook: Notebook, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = coached(notebook, WORDS[head], monkeypatch)
    assert record.breaks
    for item in record.breaks:
        assert item.mend is not None and not item.mend.after and item.mend.note
        assert item.hint


def test_what_differs_from_eager_is_not_offered(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbcompile.coach.source import Rewrite

    def wrong(text: str, starts: int, found: object) -> list[Rewrite]:
        return [Rewrite("wrong", text.replace("print(1)", "y = y + 1"))]

    monkeypatch.setattr(coaching, "rewrites", wrong)
    cell = "def f(x):\n    y = x.sin()\n    print(1)\n    return y * 2\nout = f(x)\n"
    (item,) = coached(notebook, cell, monkeypatch).breaks
    assert item.mend is not None and not item.mend.after and "out" in item.mend.note


def test_a_cell_that_acts_outside_is_not_run_again(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "written"
    cell = f"def f(x):\n    y = x.sin()\n    open({str(path)!r}, 'a').write('x')\n    return y\nout = f(x)\n"
    coached(notebook, cell, monkeypatch)
    assert path.read_text() == "x"


def test_edits_keep_comments_and_other_lines() -> None:
    source = Source("%%compile\ny = x  # é\nz = y.item() + 1  # kept\n", 2)
    statement = source.statement(3)
    assert statement is not None
    assert source.without([statement]).endswith("# z = y.item() + 1  # kept\n")
    from nbcompile.coach.values import keep_tensor

    made = keep_tensor(source, statement)
    assert made is not None and made.text == "%%compile\ny = x  # é\nz = y + 1  # kept\n"


SHAPES = "batches = [torch.ones(n, 3) for n in range(2, 32)]\ndef f(t): return t.sin() + 1.5\n"


def test_symbolic_sizes_mend_a_loop_over_shapes(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = f"{SHAPES}---\nfor a in batches:\n    y = f(a)"
    record = coached(notebook, cell, monkeypatch)
    (item,) = record.recompiles
    assert item.price is not None and item.price.once and (item.price.milliseconds or 0) > 0
    assert item.mend is not None and item.mend.after.startswith("%%compile --compare eager --dynamic\n")
    assert (item.mend.graphs_before, item.mend.graphs_after) == (2, 1)
    assert "mend: --dynamic" in to_text(record)
    torch._dynamo.reset()
    notebook.run(item.mend.after)
    again = notebook.records[-1]
    assert not again.recompiles and len(again.of_stage("fx")) == 1


@few(1)
@pytest.mark.parametrize("flag", ["--no-dynamic", "--dynamic"])
def test_who_chose_about_sizes_is_not_told_otherwise(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    record = coached(notebook, f"{SHAPES}---\nfor a in batches:\n    y = f(a)", monkeypatch, flag)
    assert all(item.mend is None for item in record.recompiles)
    assert bool(record.recompiles) is (flag == "--no-dynamic")


def test_a_recompile_that_sizes_do_not_explain_has_a_price_alone(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = "kinds = [torch.ones(3), torch.ones(3).double()] * 15\ndef f(t): return t.sin() + 1.5\n"
    record = coached(notebook, f"{setup}---\nfor a in kinds:\n    y = f(a)", monkeypatch)
    (item,) = record.recompiles
    assert item.price is not None and item.mend is None


def test_a_pair_kept_apart_for_its_cost_is_timed_in_one_kernel(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row is split over the cores, so its sum and its quotient are two kernels."""
    setup, cell = "row = torch.rand(1, 1 << 16)\n---\n", "out = row / row.sum(1, keepdim=True)\n"
    turns = coaching._Turns(before=3e-3, saved=2e-3)
    monkeypatch.setattr(coaching, "_by_turns", lambda one, other, mended: turns)
    record = coached(notebook, setup + cell, monkeypatch)
    (decision,) = [each for each in record.decisions if each.forceable]
    assert decision.code == "few-rows" and decision.price is not None
    assert (decision.price.milliseconds, decision.price.kernels, decision.price.measured) == (2.0, 1, True)
    assert "costs 2 ms (-o force_fuse=sum_1:div)" in to_text(record)

    monkeypatch.setattr(coaching, "_by_turns", lambda one, other, mended: None)  # a busy machine
    record = coached(notebook, setup + cell, monkeypatch)
    assert all(each.price is None for each in record.decisions)


def test_the_two_are_timed_by_turns(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    by_turns = coaching._by_turns
    monkeypatch.setattr(coaching, "_by_turns", lambda *given: taken.append(by_turns(*given)) or taken[-1])
    monkeypatch.setattr(Measurement, "shaky", False)
    cell = "row = torch.rand(1, 1 << 16)\n---\nout = row / row.sum(1, keepdim=True)\n"
    coached(notebook, cell, monkeypatch)
    (turns,) = taken
    assert turns.before > 0 and turns.saved < turns.before


def test_a_mend_that_gains_nothing_is_not_offered(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning stands after the only graph: without it there is one graph still."""
    turns = coaching._Turns(before=3e-3, saved=0.0)
    monkeypatch.setattr(coaching, "_by_turns", lambda one, other, mended: turns)
    cell = "y = torch.sin(x) * 2\nz = y.exp().sum()\nwarnings.warn('hey')\n"
    record = coached(notebook, cell, monkeypatch)
    (item,) = record.breaks
    assert item.mend is not None and not item.mend.after and item.price is None
    assert item.mend.note.endswith("would gain nothing: as fast, and as many graphs and kernels")


def test_a_price_is_of_graphs_that_a_break_has_made_and_no_more_than_the_call() -> None:
    def record(graphs: int, breaks: int) -> Compilation:
        fused = Graph("g0.fw.fused", "fused", "", (Node("k", "k", "k", "kernel", seconds=4e-6),))
        mine = Measurement("cell", "nbcompile", steady=(20e-6,) * 20, graphs=graphs)
        return Compilation("r", graphs=(fused,), measurements=(mine,), breaks=(GraphBreak("print"),) * breaks)

    none, timed = Mend(note="none is known"), Mend("m", "d", "a", "", 2, 1, 2, 1, 90e-3, 30e-3)
    assert coaching._price(none, record(1, 2)) is None
    one, two = coaching._price(none, record(2, 1)), coaching._price(none, record(3, 2))
    assert one is not None and one.milliseconds == pytest.approx(8e-3) and one.graphs == 1
    assert two is not None and two.milliseconds == pytest.approx(16e-3 * 2 / 3 / 2)
    measured = coaching._price(timed, record(2, 1))  # of 90 µs it spares 60, at another moment
    assert (
        measured is not None and measured.milliseconds == pytest.approx(20e-3 * 2 / 3) and measured.measured
    )


def test_a_name_that_no_two_runs_agree_on_is_said_to_be_one(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = "t = time.perf_counter()\ny = torch.sin(x) * 2\nprint(y.sum())\nz = y.exp().sum()\n"
    record = coached(notebook, f"{cell}dt = time.perf_counter() - t\n", monkeypatch)
    notes = [item.mend.note for item in record.breaks if item.mend is not None]
    assert any("dt has another value at each run, in eager too" in note for note in notes), notes


def test_what_is_wrong_with_a_mend_is_said_to_be_the_mends() -> None:
    wrong = Accuracy("mend", "output['arr.0']", None, None, agrees=False, reason=NOT_IN_EAGER)
    assert (
        coaching._difference(wrong, {}, {}) == "as tried, arr is a tensor or a number, and without it is none"
    )
    off = dataclasses.replace(wrong, output="output['y.1']", reason="error 0.1")
    assert coaching._difference(off, {}, {}) == "as tried, y[1] differs from eager: error 0.1"
    runs = ({"y.1": torch.tensor(each)} for each in (1.0, 2.0))
    assert coaching._difference(off, *runs).startswith("y[1] has another value at each run")
