"""How soon the answer is there: seconds in a real JupyterLab, from a cell's own result to its explorer.

    python scripts/answer_times.py [--only NAME …] [--repeats N] [--pictures FOLDER]

For each program a notebook is run in headless Chromium (this machine's, else Playwright's), and noted is
when the cell's own result was on screen, its explorer, the first times (eager and ours), and the last
(Inductor too). Then the same cell runs again, unchanged. All is as a user has it: default contestants, empty
caches at first.
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

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

LAYERS = """
import torch, torch.nn as nn
torch.manual_seed(0)
def layer():
    return nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
model = nn.ModuleList(layer() for _ in range({n}))
x = torch.randn(4, 32, 128)
def run(x):
    for layer in model:
        x = layer(x)
    return x
"""
MLP = """
import torch, torch.nn as nn
mlp = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
x = torch.randn(64, 256)
"""
PROGRAMS = {
    "softmax": ("import torch\nx = torch.randn(1024, 1024)", "y = torch.softmax(x * 2, -1)\ny.sum()"),
    "MLP": (MLP, "out = mlp(x)\nout.shape"),
    "transformer block, training": (
        LAYERS.format(n=1), "out = run(x)\nloss = out.square().mean()\nloss.backward()\nloss",
    ),
    "48 layers": (LAYERS.format(n=48), "out = run(x)\nout.shape"),
}  # fmt: skip
# What of the watched cell is on screen, noted at the first moment that it is.
WATCH = """
() => {
  const cell = [...document.querySelectorAll('.jp-Notebook .jp-CodeCell')].at(-1);
  const seen = (window.seen = {});
  const look = () => {
    const now = performance.now() / 1e3;
    const note = (name, there) => { if (there && !(name in seen)) seen[name] = now; };
    const app = cell.querySelector('.nbc-app');
    const facts = app?.querySelector('.nbc-facts')?.textContent ?? '';
    const verdict = app?.querySelector('.nbc-verdict')?.textContent ?? '';
    const timed = /eager|faster|slower|difference/.test(verdict);
    note('result', cell.querySelector('.jp-OutputArea-executeResult') || app);
    note('explorer', app);
    note('first times', app && timed);
    note('all', app && !app.querySelector('.nbc-waiting') && timed);
  };
  window.watching?.disconnect();
  window.watching = new MutationObserver(look);
  window.watching.observe(cell, {childList: true, subtree: true, characterData: true});
}
"""
STAGES = ("explorer", "first times", "all")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(PROGRAMS), choices=PROGRAMS, metavar="NAME")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument(
        "--pictures", type=Path, help="a folder for pictures of the first explorer and the last"
    )
    arguments = parser.parse_args(argv)
    from playwright.sync_api import sync_playwright

    from tests.browser.jupyter import Server

    print(f"{'program':30}{'run':>8}" + "".join(f"{stage:>14}" for stage in STAGES))
    with tempfile.TemporaryDirectory(prefix="nbcompile-answer-") as home, sync_playwright() as running:
        os.environ["NBCOMPILE_CACHE_DIR"] = f"{home}/cache"
        server = Server("lab", Path(home))
        browser = running.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            for name in arguments.only:
                found: dict[str, list[dict[str, float]]] = {"first": [], "again": []}
                for _ in range(arguments.repeats):
                    page = browser.new_page(viewport={"width": 1400, "height": 1300})
                    for run, seen in measured(server, page, name, arguments.pictures).items():
                        found[run].append(seen)
                    server.stop_kernels()
                    page.close()
                for run, rows in found.items():
                    cells = [
                        statistics.median(row[stage] - row["result"] for row in rows) for stage in STAGES
                    ]
                    print(f"{name:30}{run:>8}" + "".join(f"{cell:12.2f} s" for cell in cells), flush=True)
        finally:
            browser.close()
            server.stop()
    return 0


def measured(server: Any, page: Any, name: str, pictures: Path | None) -> dict[str, dict[str, float]]:
    """Of the first run of a program's cell, and of the next: when each was on screen, in seconds."""
    setup, cell = PROGRAMS[name]
    file = f"{name.replace(' ', '-').replace(',', '')}.ipynb"
    server.write(file, f"%load_ext nbcompile\n{setup}", f"%%compile\n{cell}")
    server.open(page, file)
    found = {}
    for run in ("first", "again"):
        if run == "first":
            page.evaluate(WATCH)
            server.run_all(page)
        else:
            server.execute(page, "notebook:move-cursor-down")
            server.execute(page, "outputarea:clear-all")
            page.evaluate(
                "() => { void jupyterapp.commands.execute('notebook:clear-cell-output'); return 1; }"
            )
            page.wait_for_timeout(300)
            page.evaluate(WATCH)
            server.execute(page, "notebook:run-cell")
        if pictures is not None and run == "first":
            page.wait_for_function("() => 'explorer' in window.seen", timeout=300_000)
            page.wait_for_timeout(100)
            picture(page, pictures / f"{Path(file).stem}-at-once.png")
        page.wait_for_function("() => 'all' in window.seen", timeout=300_000)
        found[run] = page.evaluate("() => window.seen")
        if pictures is not None and run == "first":
            picture(page, pictures / f"{Path(file).stem}-in-the-end.png")
        server.idle(page)
    return found


def picture(page: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    page.locator(".jp-Notebook .jp-CodeCell").last.scroll_into_view_if_needed()
    page.screenshot(path=path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
