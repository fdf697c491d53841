"""What a notebook full of compiled cells weighs, and how soon it is open: 25 cells, one of them 48 layers.

    python scripts/notebook_times.py [--quick] [--repeats 3] [--keep FILE]

The cells are run by nbclient as a user runs them: default contestants, every record in its output. The file
is then opened in a JupyterLab that is up, in headless Chromium, and noted is when the notebook's cells are on
screen, when the first explorer is, and when the page is at rest, in seconds after the command. ``--quick``
leaves out Inductor, whose records are part of the file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from answer_times import LAYERS  # noqa: E402

SETUP = """%load_ext nbcompile
import torch, torch.nn as nn, torch.nn.functional as F
x = torch.randn(256, 512)
w = torch.randn(512, 512, requires_grad=True)
image = torch.randn(8, 16, 32, 32)
mlp = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512))
conv = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
lstm = nn.LSTM(512, 64, batch_first=True)
def rotary(q, angle):
    a, b = q.chunk(2, -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)
"""
CELLS = (
    "torch.softmax(x * 2, -1).sum()", "F.layer_norm(x, (512,)) * torch.sigmoid(x)", "mlp(x).shape",
    "conv(image).mean()", "loss = F.cross_entropy(x @ w, torch.arange(256))\nloss.backward()\nloss",
    "rotary(x, torch.randn(256, 256)).shape", "(x.cumsum(-1) / (x.abs() + 1)).amax(0)",
    "q = x.view(4, 64, 8, 64).transpose(1, 2)\nF.scaled_dot_product_attention(q, q, q).shape",
    "F.gelu(x[::2] + x[1::2]).std()", "y = x.exp()\nprint(y.mean())\nz = y.log1p()\nz.sum()",
    "for n in (64, 96, 128, 160):\n    y = (x[:n].sin() * 2).sum(-1)", "x.sort(-1).values.diff().mean()",
)  # fmt: skip
COUNT = 25
OPENED = """
([path]) => {
  const seen = (window.seen = {begun: performance.now() / 1e3});
  const look = () => {
    const now = performance.now() / 1e3;
    const panel = [...document.querySelectorAll('.jp-NotebookPanel')].at(-1);
    if (!('cells' in seen) && panel?.querySelector('.jp-CodeCell')) seen.cells = now;
    if (!('explorer' in seen) && panel?.querySelector('.nbc-app')) seen.explorer = now;
    if (panel) seen.last = now;
  };
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true});
  void jupyterapp.commands.execute('docmanager:open', {path});
  return 1;
}
"""


def notebook(quick: bool) -> nbformat.NotebookNode:
    """Setup, then the compiled cells, run."""
    line = "%%compile --compare eager,nbcompile" if quick else "%%compile"
    sources = [CELLS[number % len(CELLS)] for number in range(COUNT - 1)]
    cells = [LAYERS.format(n=48), SETUP, *(f"{line}\n{source}" for source in sources)]
    cells.insert(len(cells) // 2, f"{line}\nout = run(torch.randn(4, 32, 128))\nout.shape")
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    NotebookClient(made, timeout=1200, kernel_name="python3").execute()
    return made


def opened(server: Any, page: Any, name: str) -> dict[str, float]:
    """Seconds from the command until the cells, the first explorer, and the last change of the page."""
    server.write("empty.ipynb", "1")
    server.open(page, "empty.ipynb")
    page.evaluate(OPENED, [name])
    page.wait_for_function("() => 'explorer' in window.seen", timeout=60_000)
    page.wait_for_function("() => performance.now() / 1e3 - window.seen.last > 2", timeout=60_000)
    seen = page.evaluate("() => window.seen")
    return {key: seen[key] - seen["begun"] for key in ("cells", "explorer", "last")}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="where the notebook that was run is kept, and taken from")
    arguments = parser.parse_args(argv)
    from playwright.sync_api import sync_playwright

    from tests.browser.jupyter import Server

    with tempfile.TemporaryDirectory(prefix="nbcompile-notebook-") as home:
        os.environ["NBCOMPILE_CACHE_DIR"] = f"{home}/cache"
        kept = arguments.keep
        made = nbformat.read(kept, 4) if kept and kept.exists() else notebook(arguments.quick)
        if kept:
            nbformat.write(made, kept)
        server = Server("lab", Path(home))
        path = server.folder / "full.ipynb"
        nbformat.write(made, path)
        sizes = sorted(len(nbformat.writes(nbformat.v4.new_notebook(cells=[each]))) for each in made.cells)
        print(
            f"{COUNT} compiled cells: {path.stat().st_size / 1e6:.2f} MB; the largest {sizes[-1] / 1e6:.2f}"
        )
        with sync_playwright() as running:
            browser = running.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
            )
            try:
                rows = []
                for _ in range(arguments.repeats):
                    page = browser.new_page(viewport={"width": 1400, "height": 1000})
                    rows.append(opened(server, page, path.name))
                    page.close()
                for key, what in (("cells", "cells"), ("explorer", "first explorer"), ("last", "at rest")):
                    values = sorted(row[key] for row in rows)
                    print(f"{what:>16} after {statistics.median(values):5.2f} s ({values[0]:.2f} to "
                          f"{values[-1]:.2f})")  # fmt: skip
            finally:
                browser.close()
                server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
