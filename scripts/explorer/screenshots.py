"""Pictures of every view of the explorer, light and dark, for docs/screenshots.

    python scripts/explorer/screenshots.py [OUTDIR]

Compiles a few cells on this machine, opens their pages in headless Chromium, and JupyterLab for what needs a
live kernel. Needs Playwright, ``make explorer`` and ``make labextension``; takes some minutes. The times in
the pictures are of whatever machine it ran on.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from check_machine import chromium  # noqa: E402
from tests.browser.jupyter import Server  # noqa: E402

OUT = ROOT / "docs" / "screenshots"
SETUP = """import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
x = torch.randn(8, 64, 256)
w, ln = torch.randn(256, 256) * 0.06, nn.LayerNorm(256)
big = torch.randn(1024, 1024)
"""
CELLS = {
    "layer": "%%compile --train --save {file}\ny = layer(x)\nloss = y.pow(2).mean()\nloss.backward()",
    "forward": "%%compile --save {file}\nh = x @ w\np = torch.softmax(h, -1)\ny = ln(x + p)\n"
    "z = F.gelu(y) * torch.sigmoid(h)\nloss = z.pow(2).mean()\nloss",
    "gpu": "%%compile --target cuda:90 --save {file}\np = torch.softmax(big, -1)\n"
    "y = F.gelu(big + p)\ny.sum(0)",
    "break": "%%compile --no-bench --save {file}\nq = torch.relu(big) * 2\nprint(q.sum().item())\n"
    "values, order = torch.sort(q, dim=-1)\ntorch.cumsum(values.sin() * 3, 0).sum()",
    "watched": "%%compile --watch --no-bench --save {file}\ndef noisy(q):\n    r = torch.relu(q) * 2\n"
    "    print(r.sum().item())\n    return r.sin() + 1\nnoisy(big).sum()",
    "failed": "%%compile --save {file}\ny = torch.relu(big) @ big\nz = y + undefined_name\nz",
}  # fmt: skip
RUN = """
import sys, warnings
warnings.simplefilter("ignore")
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "nbcompile")
setup, *cells = sys.stdin.read().split(chr(0))
for cell in (setup, *cells):
    shell.run_cell(cell, store_history=True)
"""
LIVE = ["%load_ext nbcompile\nimport torch\nx = torch.randn(512, 1024)",
        "%%compile --no-bench\ny = torch.softmax(x, -1) * 2\nz = (y.sin() + 1).sum(0)\nz"]  # fmt: skip


def compiled(folder: Path) -> dict[str, Path]:
    """The pages of all cells, each run in a session of its own process."""
    text = "\0".join([SETUP, *(cell.format(file=f"{name}.html") for name, cell in CELLS.items())])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", RUN], input=text, text=True, check=True, cwd=folder,
                   env=environment, stdout=subprocess.DEVNULL)  # fmt: skip
    return {name: folder / f"{name}.html" for name in CELLS}


class Camera:
    """Takes pictures in one theme."""

    def __init__(self, browser: Browser, theme: str, out: Path) -> None:
        self.browser, self.theme, self.out = browser, theme, out

    @contextmanager
    def window(self, width: int, height: int) -> Iterator[Page]:
        scheme = "dark" if self.theme == "dark" else "light"
        page = self.browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.set_default_timeout(60_000)
        yield page
        page.close()

    def take(self, name: str, place: Locator | Page) -> None:
        """Keep a picture, reduced to 256 colours where Pillow is installed."""
        place.page.wait_for_timeout(500) if isinstance(place, Locator) else place.wait_for_timeout(500)
        data = place.screenshot()
        file = self.out / f"{name}-{self.theme}.png"
        try:
            from PIL import Image
        except ImportError:
            file.write_bytes(data)
        else:
            Image.open(io.BytesIO(data)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
                file, optimize=True
            )
        print(file.name)

    def page(
        self, name: str, file: Path, steps: Callable[[Page], None], width: int = 1240, height: int = 900
    ) -> None:
        """A picture of the explorer in a page, after ``steps``."""
        with self.window(width, height) as page:
            page.goto(file.as_uri())
            page.wait_for_selector(".nbc-app")
            steps(page)
            self.take(f"explorer-{name}", page.locator(".nbc").first)


def panel(name: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("tab", name=name).first.click()


def stage(name: str) -> Callable[[Page], None]:
    return lambda page: page.locator(".nbc-pane-graph").get_by_role("tab", name=name, exact=True).click()


def in_turn(*steps: Callable[[Page], None]) -> Callable[[Page], None]:
    def run(page: Page) -> None:
        for step in steps:
            step(page)

    return run


def lit(page: Page) -> None:
    page.locator(".nbc-line[data-line='4'] .nbc-source").click()


def charts(page: Page) -> None:
    panel("Timing")(page)
    page.wait_for_selector(".js-plotly-plot")
    page.locator(".nbc-panel").evaluate("each => { each.style.maxHeight = 'none' }")


def ptx(page: Page) -> None:
    code = page.locator(".nbc-pane-code")
    code.get_by_role("tab", name="PTX").click()
    code.get_by_role("button", name="Show the source beside it").click()
    page.locator(".cm-line").nth(12).click()


def peers(page: Page) -> None:
    code = page.locator(".nbc-pane-code")
    code.get_by_role("tablist", name="compiler").get_by_role("tab", name="inductor").click()


def capture(page: Page) -> None:
    panel("Capture")(page)
    for _ in range(3):
        page.get_by_role("button", name="next node").click()
    page.locator(".nbc-panel").evaluate("each => { each.style.maxHeight = 'none' }")


def pages(camera: Camera, files: dict[str, Path]) -> None:
    camera.page("overview", files["layer"], lambda page: None)
    camera.page("lit", files["forward"], lit)
    camera.page("forward-backward", files["layer"], stage("backward"))
    camera.page("timing", files["forward"], charts)
    camera.page("roofline", files["gpu"], charts)
    camera.page("ptx", files["gpu"], ptx)
    camera.page("peers", files["forward"], peers)
    camera.page("capture", files["watched"], capture, width=1400)
    camera.page("breaks", files["break"], panel("Guards"))
    camera.page("text", files["forward"], panel("Text"))
    camera.page("failed", files["failed"], lambda page: None)
    camera.page("narrow", files["forward"], lit, width=420, height=900)


def lab(camera: Camera, server: Server) -> None:
    """JupyterLab: the cell's own marks, a decision overruled, a kernel edited, the explorer beside."""
    with camera.window(1500, 1180) as page:
        path = server.write(f"{camera.theme}.ipynb", *LIVE)
        server.open(page, path.name)
        server.theme(page, camera.theme)
        page.get_by_role("tab", name="File Browser").click()  # folds it away
        server.run_all(page)
        explorer = page.locator(".jp-Notebook .nbc")
        explorer.locator(".nbc-facts").wait_for()
        explorer.locator(".nbc-open").click()
        server.idle(page)
        explorer.get_by_role("switch", name="fuse max → exp").click()
        explorer.locator(".nbc-changed").wait_for()
        explorer.locator(".nbc-line[data-line='2'] .nbc-source").hover()
        camera.take("explorer-lab", page)
        explorer.get_by_role("tab", name="Play").click()
        explorer.get_by_role("spinbutton").first.wait_for()
        camera.take("explorer-play", explorer)
        explorer.get_by_role("tab", name="Compare").click()
        explorer.locator(".nbc-panel table").first.wait_for()
        camera.take("explorer-compare", explorer)
    server.stop_kernels()


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        files = compiled(folder)
        browser = playwright.chromium.launch(
            executable_path=chromium() or None, args=["--no-sandbox", "--disable-gpu"]
        )
        server = Server("lab", folder / "lab")
        try:
            for theme in ("light", "dark"):
                camera = Camera(browser, theme, out)
                pages(camera, files)
                lab(camera, server)
        finally:
            server.stop()
            browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
