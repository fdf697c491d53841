"""A cell is run again only where all that it does can be put back."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import queue
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from nbcompile.notebook.cell.harmless import hook_that_may_act, what_may_act
from tests.notebook.conftest import Notebook


def helper(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + len([1])


def writes(x: torch.Tensor) -> torch.Tensor:
    Path("/tmp/nbcompile-never").write_text("x")
    return x


def log(x: torch.Tensor) -> torch.Tensor:
    return writes(x)


def calls(x: torch.Tensor) -> torch.Tensor:
    return writes(x)


NAMES: dict[str, Any] = {
    "torch": torch, "x": torch.ones(3), "model": torch.nn.Linear(3, 3), "logging": logging, "helper": helper,
    "losses": [], "writes": writes, "calls": calls, "it": iter([1, 2]), "q": queue.Queue(), "Path": Path,
    "subprocess": subprocess, "os": os, "rename": os.rename, "log": log, "queue": queue,
}  # fmt: skip


@pytest.mark.parametrize(
    "source",
    [
        "y = torch.softmax(x, -1) * 2\nprint(float(y[0]))",
        "for n in range(3):\n    losses.append(model(x).sum().item())",
        "def own(t):\n    logging.info('seen %s', t)\n    return helper(t).weight\nown(x)",
        "y = model.weight.abs() if x.sum() > 0 else x",
    ],
)
def test_may_run_again(source: str) -> None:
    assert what_may_act(compile(source, "<cell>", "exec"), NAMES) == ""


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("y = x * next(it)", "it"),
        ("q.put(x.sum())", "q"),
        ("open('f', 'w').write(str(x))", "open"),
        ("torch.save(x, 'f')", "save"),
        ("y = writes(x)", "writes"),
        ("y = calls(x)", "calls"),
        ("subprocess.run(['true'])", "run"),
        ("def own(t):\n    Path('f').touch()\n    return t\nown(x)", "Path"),
        ("getattr(x, 'tofile')(f)", "f"),
        ("x.numpy().tofile('f')", "tofile"),
        ("y = x * 2\nos.rename('a', 'b')", "os"),
        ("rename('a', 'b')", "rename"),
        ("import os\nos.rename('a', 'b')", "os"),
        ("def own(t):\n    from shutil import copy\n    copy('a', 'b')\n    return t\nown(x)", "shutil"),
        ("y = log(x)", "log"),
    ],
)
def test_may_not_run_again(source: str, name: str) -> None:
    assert what_may_act(compile(source, "<cell>", "exec"), NAMES) == name


def test_an_iterator_is_where_the_cell_left_it(notebook: Notebook) -> None:
    notebook.fresh("x = torch.randn(8, 8)\nit = iter(range(10))\nseen = []")
    notebook.run("%config NbCompile.bench_seconds = 0.2")
    body = "y = torch.sin(x)\nseen.append(next(it))\nprint(y.mean())\nz = y * 2"
    notebook.run(f"%%compile --compare eager,nbcompile\n{body}")
    assert notebook.shell.user_ns["seen"] == [0] and next(notebook.shell.user_ns["it"]) == 1
    (first, *_) = notebook.records[-1].breaks
    assert first.mend is not None and "may not be put back" in first.mend.note and not first.mend.after


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("y = own.sine(x)", ""),
        ("y = own.sine(x) * own.FACTOR", ""),
        ("y = own.Net()(x)", ""),
        ("own.update(x)", "update"),  # of a dictionary that does no harm; this one writes a file
        ("y = own.sine(x) + own.through(x)", "through"),
        ("own.gone(x)", "gone"),
    ],
)
def test_what_a_module_of_the_users_does_is_looked_at(
    source: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_of_a_user.py").write_text(
        "import torch\nfrom pathlib import Path\nFACTOR = 2\n\ndef sine(x):\n    return x.sin()\n\n"
        "def update(x):\n    Path('/tmp/nbcompile-never').write_text('x')\n\n"
        "def through(x):\n    return update(x)\n\nclass Net(torch.nn.Module):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("module_of_a_user")
    monkeypatch.delitem(sys.modules, "module_of_a_user")
    assert what_may_act(compile(source, "<cell>", "exec"), {**NAMES, "own": own}) == name


OPENED = open(os.devnull)  # noqa: SIM115


def _hook(grad: torch.Tensor) -> None:
    NAMES["losses"].append(grad.norm().item())


def _writing(grad: torch.Tensor) -> None:
    writes(grad)


def _holding() -> Any:
    file = OPENED
    return lambda grad: file.flush()


@pytest.mark.parametrize(
    ("hook", "name"),
    [
        (_hook, ""),
        (NAMES["losses"].append, ""),
        (_writing, "writes"),
        (_holding(), "file"),
        (OPENED.write, "write"),
        (functools.partial(_writing), "partial"),
    ],
)
@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_tensors(hook: Any, name: str, register: str) -> None:
    w = torch.ones(3, requires_grad=True)
    getattr(w, register)(hook)
    found = hook_that_may_act({"x": torch.ones(2), "w": w})
    assert found == (f"w's hook, which uses {name}" if name else "")


def test_a_cell_whose_backward_calls_a_hook_that_writes_is_not_timed(
    notebook: Notebook, tmp_path: Path
) -> None:
    file = tmp_path / "log"
    notebook.fresh(
        f"""
w = torch.ones(3, 3, requires_grad=True)
seen = []
w.register_hook(lambda grad: seen.append(1))
def write(parameter):
    with open({str(file)!r}, "a") as out:
        out.write("x")
""".strip()
    )
    cell = "%%compile --compare eager\ny = (w @ w).tanh().sum()\ny.backward()"
    notebook.run(cell)
    record = notebook.records[-1]
    assert notebook.shell.user_ns["seen"] == [1] and record.measurements
    notebook.run("w.register_post_accumulate_grad_hook(write)\nw.grad = None")
    notebook.run(cell)
    record = notebook.records[-1]
    assert file.read_text() == "x" and len(notebook.shell.user_ns["seen"]) == 2
    assert not record.measurements
    assert "Not timed: w's hook, which uses open, may act outside this process." in record.notes
