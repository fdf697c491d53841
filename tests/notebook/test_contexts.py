"""What a cell tells torch.compile (marks on functions, stances, settings, a compile of its own) is honoured,
and the record says what came of it."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch

import nbcompile
from nbcompile.notebook.cell.surroundings import quiet_compile
from nbcompile.record.compilation import Compilation
from nbcompile.traces.trace import Trace
from nbcompile.view.facts.facts import verdict
from nbcompile.view.text import to_text
from tests.nightly import few
from tests.notebook.conftest import Notebook

SETUP = """
x = torch.linspace(-1.0, 2.0, 16).reshape(4, 4)
seen = []
def mine(gm, inputs, **asked):
    seen.append(asked)
    return gm.forward
def guards_of_tensors(entries):
    seen.append('filter')
    return torch.compiler.keep_tensor_guards_unsafe(entries)
"""


def recorded(notebook: Notebook, cell: str, setup: str = "", line: str = "") -> Compilation:
    torch._dynamo.reset()
    notebook.fresh(SETUP + setup)
    outcome = notebook.run(f"%%compile --no-bench {line}\n{cell}")
    assert not outcome.error
    return notebook.records[-1]


def fates(record: Compilation) -> list[tuple[int, str, str]]:
    return [(fate.line, fate.fate, fate.reason) for fate in record.lines]


# -- a compile of its own -------------------------------------------------------------------------

OWN = "compiled by its own torch.compile"


@few(4)
@pytest.mark.parametrize(
    ("made", "said", "asked"),
    [
        ("torch.compile(f, backend=mine)", "backend mine", [{}]),
        ("torch.compile(f, backend=mine, dynamic=True)", "backend mine", [{}]),
        ("torch.compile(f, backend=mine, fullgraph=True)", "backend mine", [{}]),
        ("torch.compile(f, backend=mine, mode='odd')", "backend mine, mode odd", [{"mode": "odd"}]),
        (
            "torch.compile(f, backend=mine, options={'a': 3})",
            "backend mine, options a=3",
            [{"options": {"a": 3}}],
        ),
        (
            "torch.compile(f, backend=mine, options={'guard_filter_fn': guards_of_tensors})",
            "backend mine, guards filtered",
            [{}, "filter"],
        ),
        ("torch.compile(torch.nn.Linear(4, 4), backend=mine)", "backend mine", [{}]),
    ],
)
def test_a_compile_of_its_own_is_honoured_and_shown(
    notebook: Notebook, made: str, said: str, asked: list[object]
) -> None:
    record = recorded(notebook, "y = inner(x)\nz = y * 2 + 1", f"f = lambda t: t.sin() + 1\ninner = {made}")
    assert notebook.shell.user_ns["seen"] == asked
    assert fates(record) == [(2, "python", f"{OWN} ({said})"), (3, "compiled", "")]
    assert f"line 2: {OWN} ({said})" in record.notes and f"{OWN} ({said})" in to_text(record)


def test_ours_within_a_cell_keeps_its_options(notebook: Notebook) -> None:
    record = recorded(
        notebook,
        "inner = torch.compile(lambda t: t.sin() + 1, backend='nbcompile', options={'fuse': False})\n"
        "y = inner(x)",
    )
    assert fates(record)[1] == (3, "python", f"{OWN} (backend nbcompile, options fuse=False)")
    assert verdict(record).text.startswith(f"left as it is: line 3: {OWN}")
    assert verdict(record).tone == "none"


def test_a_compile_within_a_function_is_told_of(notebook: Notebook) -> None:
    """Dynamo traces through it, as it does under torch.compile of the outer function."""
    setup = (
        "inner = torch.compile(lambda t: t.sin() + 1, backend=mine)\ndef outer(t):\n    return inner(t) * 2"
    )
    record = recorded(notebook, "y = outer(x)", setup)
    assert notebook.shell.user_ns["seen"] == []
    (note,) = record.notes
    assert note == f"line 2 calls a function {OWN} (backend mine): within this graph that does not hold"


# -- marks on functions ---------------------------------------------------------------------------


def test_a_constant_result_is_told_of(notebook: Notebook) -> None:
    setup = "@torch.compiler.assume_constant_result\ndef three():\n    seen.append(1)\n    return 3.0"
    record = recorded(notebook, "for i in range(40):\n    y = x * three()", setup)
    assert notebook.shell.user_ns["seen"] == [1]
    (note,) = record.notes
    assert note.startswith("line 3 calls three(), marked assume_constant_result")


def test_the_reason_of_a_disabled_function_is_kept(notebook: Notebook) -> None:
    setup = "@torch.compiler.disable(reason='not ready yet')\ndef f(t):\n    return t + 1\n"
    setup += "def g(t):\n    t = t * 2\n    return f(t).cos()"
    record = recorded(notebook, "y = g(x)", setup)
    (found,) = record.breaks
    assert found.reason == "a function that is marked torch.compiler.disable is called (not ready yet)"
    assert len(record.of_stage("fx")) == 2 and fates(record) == [(2, "compiled", "")]


# -- stances and settings -------------------------------------------------------------------------


@pytest.mark.parametrize("stance", ["force_eager", "eager_on_recompile", "fail_on_recompile"])
@pytest.mark.parametrize("form", ["context", "call"])
def test_a_stance_is_honoured_and_named(notebook: Notebook, stance: str, form: str) -> None:
    asked = f"torch.compiler.set_stance('{stance}')"
    cell = f"with {asked}:\n    y = x.sin() + 1" if form == "context" else f"{asked}\ny = x.sin() + 1"
    try:
        record = recorded(notebook, cell)
    finally:
        torch.compiler.set_stance("default")
    assert fates(record)[1] == (3, "eager", f"torch.compiler.set_stance asks for {stance}")
    assert not record.graphs
    assert torch.equal(notebook.shell.user_ns["y"], notebook.shell.user_ns["x"].sin() + 1)


def test_a_step_after_the_setting_is_compiled(notebook: Notebook) -> None:
    cell = "for off in (True, False):\n    torch._dynamo.config.disable = off\n    y = x.sin() + 1"
    record = recorded(notebook, cell)
    assert fates(record)[2][:2] == (4, "compiled") and len(record.of_stage("fx")) == 1


def test_a_limit_around_a_statement_holds(notebook: Notebook) -> None:
    setup = "batches = [torch.ones(n, 3) for n in range(2, 32)]\ndef f(t): return t.sin() + 1.5"
    limits = "recompile_limit=3, automatic_dynamic_shapes=False"
    record = recorded(
        notebook, f"with torch._dynamo.config.patch({limits}):\n  for a in batches:\n    y = f(a)", setup
    )
    assert len(record.of_stage("fx")) == 3
    assert any("recompile_limit (3) reached" in note for note in record.notes)
    assert fates(record)[2][:2] == (4, "eager") and "recompile_limit (3)" in fates(record)[2][2]


def test_a_budget_of_memory_holds(notebook: Notebook) -> None:
    """Less memory: backward computes anew what it would have been given."""
    cell = "with torch._functorch.config.patch(activation_memory_budget={}):\n"
    cell += "    y = (w.sin().exp() @ w).tanh().sum()\ny.backward()"
    saved = []
    for budget in (1.0, 0.0):
        record = recorded(notebook, cell.format(budget), "w = torch.ones(4, 4, requires_grad=True)")
        (graph,) = record.of_stage("forward")
        saved.append(len(graph.outputs))
    assert saved[1] < saved[0]


def test_inductors_settings_do_no_harm(notebook: Notebook) -> None:
    record = recorded(notebook, "with torch._inductor.config.patch(max_autotune=True):\n    y = x.sin() + 1")
    assert fates(record)[1] == (3, "compiled", "")


def test_a_new_graph_step_does_no_harm(notebook: Notebook) -> None:
    record = recorded(notebook, "torch.compiler.cudagraph_mark_step_begin()\ny = x.sin() + 1")
    assert [fate for _, fate, _ in fates(record)] == ["eager", "compiled"]


def test_marked_sizes_in_a_loop_are_compiled_once(notebook: Notebook) -> None:
    cell = "for a in batches:\n    torch._dynamo.mark_dynamic(a, 0)\n    y = f(a)"
    setup = "batches = [torch.ones(n, 3) for n in range(2, 52)]\ndef f(t): return t.sin() + 1.5"
    assert len(recorded(notebook, cell, setup).of_stage("fx")) == 1


def test_recompiles_of_a_loop_over_shapes_are_shown(notebook: Notebook) -> None:
    setup = "batches = [torch.ones(n, 3) for n in range(2, 32)]\ndef f(t): return t.sin() + 1.5"
    record = recorded(notebook, "for a in batches:\n    y = f(a)", setup)
    assert len(record.of_stage("fx")) == 2, "the second size makes it symbolic"
    (found,) = record.recompiles
    assert found.reason.endswith("expected 2, actual 3") and found.spans
    said = " ".join(to_text(record).split())
    assert f"line 3: compiled again: {found.reason}; now for 2 <= a.size()[0]" in said


# -- logs -----------------------------------------------------------------------------------------


@pytest.fixture
def logs() -> Iterator[None]:
    yield
    torch._logging.set_logs()


_SHAPES = "batches = [torch.ones(n, 3) for n in range(2, 32)]\ndef f(t): return t.sin() + 1.5"
_LOOP = "for a in batches:\n    y = f(a)"


@few(2)
@pytest.mark.usefixtures("logs")
@pytest.mark.parametrize(
    ("asked", "printed", "not_printed"),
    [
        (
            "recompiles=True",
            ["[__recompiles]", "size mismatch at index 0. expected 2, actual 3"],
            "__graph_code",
        ),
        ("graph_code=True", ["TRACED GRAPH", "sin()"], "__recompiles"),
        ("guards=True", ["TREE_GUARD_MANAGER"], "__recompiles"),
        ("dynamo=20", ["torchdynamo start tracing"], "__recompiles"),
    ],
)
def test_what_torch_is_asked_to_log_is_printed(
    notebook: Notebook, asked: str, printed: list[str], not_printed: str
) -> None:
    stream = io.StringIO()
    for compiled in ("plain", "cell"):
        torch._dynamo.reset()
        notebook.fresh(_SHAPES + f"\ntorch._logging.set_logs({asked})")
        with printed_to(stream):
            if compiled == "cell":
                outcome = notebook.run(f"%%compile --no-bench\n{_LOOP}")
            else:
                outcome = notebook.run(f"f = torch.compile(f, backend='nbcompile')\n{_LOOP}")
        assert not outcome.error
        text = stream.getvalue()
        stream.truncate(stream.seek(0))
        assert all(word in text for word in printed), (compiled, text)
        assert not_printed not in text


@pytest.mark.usefixtures("logs")
def test_what_nobody_asked_for_is_not_printed_while_a_part_is_compiled() -> None:
    stream = io.StringIO()
    for asked, printed in (({}, ""), ({"dynamo": logging.INFO}, "careful"), ({"inductor": logging.INFO}, "")):
        torch._logging.set_logs(**asked)
        with printed_to(stream), quiet_compile():
            logging.getLogger("torch._dynamo.convert_frame").warning("careful")
        assert (printed in stream.getvalue()) and bool(printed) == bool(stream.getvalue())
        stream.truncate(stream.seek(0))


@contextlib.contextmanager
def printed_to(stream: io.StringIO) -> Iterator[None]:
    """What torch's log would print goes here."""
    handlers = [
        handler
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "torch"
        for handler in logger.handlers
        if type(handler) is logging.StreamHandler  # a subclass is pytest's
    ]
    before = [handler.setStream(stream) for handler in handlers]
    following = getattr(torch._logging._internal, "_StderrHandler", None)  # torch 2.15's
    patched = mock.patch.object(following, "stream", stream) if following else contextlib.nullcontext()
    try:
        with patched:
            yield
    finally:
        for handler, old in zip(handlers, before, strict=True):
            if old is not None:
                handler.setStream(old)


_TRACED = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "nbcompile")
shell.run_cell("import torch\\nx = torch.ones(8)")
shell.run_cell("%%compile --no-bench\\ny = x.sin() + 1")
"""


@pytest.mark.nightly
def test_a_cell_is_in_the_files_of_torch_trace(tmp_path: Path) -> None:
    """The handler that writes them is one of a stream, as those are that print."""
    environment = {**os.environ, "TORCH_TRACE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", _TRACED], env=environment, check=True, capture_output=True)
    trace = nbcompile.open(tmp_path)
    assert isinstance(trace, Trace) and len(trace.compilations) == 1
