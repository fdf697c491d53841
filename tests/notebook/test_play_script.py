"""The script of one kernel runs by itself: torch and a compiler, without this package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nbcompile.errors import PlayError
from tests.nightly import few
from tests.notebook.conftest import Notebook
from tests.notebook.test_play import Player

SETUP = """
torch.manual_seed(0)
x = torch.randn(16, 50)
rows = torch.randint(0, 16, (30,))
"""
CELLS = {
    "rows": "y = torch.softmax(x, -1)\nz = (y + 1).relu()",
    "an index": "y = x[rows] * 2",
    "strides": "y = x.t() * 2 + 1\nz = y.t().contiguous()",
    "a sum": "y = (x * x).sum(0)",
}


def run(text: str, folder: Path) -> str:
    """What the script prints, in a process that cannot import nbcompile."""
    file = folder / "kernel_alone.py"
    file.write_text(text)
    (folder / "nbcompile.py").write_text("raise ImportError('the script must not need this')")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(file)],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr + text
    return done.stdout


@few(1)
@pytest.mark.parametrize("name", CELLS)
def test_a_c_kernel_by_itself(notebook: Notebook, tmp_path: Path, name: str) -> None:
    player = Player(notebook)
    record = player.cell(CELLS[name], SETUP)
    kernel = record.kernels[0]
    found = player.ask("script", kernel=kernel.id)
    assert found["name"] == f"{kernel.name}.py"
    assert kernel.sources["c"] in found["text"] and "import nbcompile" not in found["text"]
    printed = run(found["text"], tmp_path)
    assert printed.startswith(f"{kernel.name}: median ") and " us, from " in printed


@few(1)
@pytest.mark.parametrize("name", ["rows", "a sum"])
def test_a_triton_kernel_by_itself(notebook: Notebook, tmp_path: Path, name: str) -> None:
    pytest.importorskip("triton")
    player = Player(notebook)
    record = player.cell(CELLS[name], SETUP, "--no-bench --interpret")
    kernel = record.kernels[0]
    text = player.ask("script", kernel=kernel.id)["text"]
    assert kernel.sources["triton"] in text
    assert run(text, tmp_path).startswith(f"{kernel.name}: median ")


def test_a_kernel_that_is_not_there(notebook: Notebook) -> None:
    player = Player(notebook)
    player.cell(CELLS["rows"], SETUP)
    with pytest.raises(PlayError, match="no kernel"):
        player.ask("script", kernel="g0.fw.k7")
