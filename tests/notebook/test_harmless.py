"""A cell is run again only where all that it does can be put back."""

from __future__ import annotations

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

from nbcompile.notebook.cell.harmless import what_may_act
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
