"""Pictures of the bench's tables as a notebook shows them, light and dark, for docs/screenshots.

    python scripts/explorer/bench_pictures.py [OUTDIR]

Runs a sweep, a comparison of modes, one of captures, an export and a cell on two ranks on this machine. Needs
Playwright; takes two minutes. The times in the pictures are of whatever machine it ran on.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from check_machine import chromium  # noqa: E402
from explorer.screenshots import OUT, Camera  # noqa: E402

RUN = """
import sys
from pathlib import Path
import torch
from torch import nn
import nbcompile

torch.manual_seed(0)
out = Path(sys.argv[1])
model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256)).eval()
x = torch.randn(512, 256)

def program(x):
    return (torch.softmax(x, -1) * 2 + x).sum(0)

def branches(x):
    return x * 2 if x.sum() > 0 else x - 1

def shown(value):
    if hasattr(value, "_repr_mimebundle_"):
        made = value._repr_mimebundle_()
        return (made[0] if isinstance(made, tuple) else made)["text/html"]
    return value._repr_html_()

if __name__ == "__main__":
    named = {"input": {0: "batch"}}
    sizes = lambda B=8: (torch.randn(B, 256),)
    grid = {"backend": ["eager", "nbcompile", "inductor", "aot_eager"], "B": [8, 512, 4096]}
    views = {
        "sweep": nbcompile.compare(program, sizes, grid, budget=0.3),
        "modes": nbcompile.mode_diff(program, (x,), ("default", "max-autotune"), budget=0.3),
        "captures": nbcompile.captures(branches, (torch.ones(4, 4),), budget=0.1),
        "export": nbcompile.export(model, (x,), out / "model.pt2", dynamic=named, budget=0.3),
    }
    net, rows = nn.Linear(64, 64), torch.randn(32, 64)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with nbcompile.Ranks(2, device="cpu", engines="processes") as ranks:
        cell = "loss = net(rows).pow(2).mean()\\nloss.backward()\\noptimizer.step()"
        views["ranks"] = ranks.run(cell, {"net": net, "optimizer": optimizer, "rows": rows}, split=("rows",))
    for name, view in views.items():
        (out / f"{name}.html").write_text(shown(view))
"""
# What JupyterLab's themes set, of what the fragments use.
THEMES = {
    "light": "background: #fff; color: rgba(0, 0, 0, 0.87)",
    "dark": "background: #111; color: #fff; --jp-ui-font-color1: #fff; --jp-content-font-color1: #fff;"
    " --jp-layout-color0: #111; --jp-layout-color1: #212121; --jp-layout-color2: #424242;"
    " --jp-border-color2: #616161",
}


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        script = folder / "run.py"
        script.write_text(RUN)
        subprocess.run([sys.executable, str(script), str(folder)], check=True, cwd=ROOT)
        script.unlink()
        browser = playwright.chromium.launch(
            executable_path=chromium() or None, args=["--no-sandbox", "--disable-gpu"]
        )
        for body in sorted(folder.glob("*.html")):
            for theme, style in THEMES.items():
                page = folder / "page.htm"
                page.write_text(
                    f'<meta charset="utf-8"><body style="font: 13px sans-serif; margin: 0; {style}">'
                    f'<div id="shot" style="padding: 12px">{body.read_text()}</div>'
                )
                camera = Camera(browser, theme, out)
                with camera.window(1000, 700) as window:
                    window.goto(page.as_uri())
                    camera.take(f"bench-{body.stem}", window.locator("#shot"))
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
