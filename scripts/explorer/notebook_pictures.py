"""A picture of each notebook's key moment, as JupyterLab shows the saved file with no kernel.

    python scripts/explorer/notebook_pictures.py [OUTDIR] [NN ...]

The key moment is the output with the most to see. Nothing is run. Needs Playwright and ``make labextension``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from check_machine import chromium  # noqa: E402
from explorer.screenshots import OUT, Camera  # noqa: E402
from tests.browser.jupyter import Server  # noqa: E402

RECORD = "application/vnd.nbcompile.v1+json"


def key_moment(notebook: nbformat.NotebookNode) -> int:
    """The place of the cell with the most to see: a record, else the most HTML, else the most text."""

    def weight(cell: nbformat.NotebookNode) -> tuple[bool, int, int]:
        outputs = [output.get("data", {}) for output in cell.get("outputs", [])]
        text = [output.get("text", "") for output in cell.get("outputs", [])]
        html = max((len(data.get("text/html", "")) for data in outputs), default=0)
        return any(RECORD in data for data in outputs), html, max(map(len, text), default=0)

    return max(range(len(notebook.cells)), key=lambda place: weight(notebook.cells[place]))


def main(out: Path, wanted: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium() or None, args=["--no-sandbox", "--disable-gpu"]
        )
        server = Server("lab", Path(name) / "lab")
        try:
            for file in sorted((ROOT / "notebooks").glob("*.ipynb")):
                if wanted and not file.stem.startswith(wanted):
                    continue
                notebook = nbformat.read(file, as_version=4)
                place = key_moment(notebook)
                notebook.metadata = nbformat.from_dict({})  # no kernel: JupyterLab asks which
                nbformat.write(notebook, server.write(file.name))
                camera = Camera(browser, "light", out)
                with camera.window(1200, 1000) as page:
                    server.open(page, file.name, kernel=False)
                    page.locator(".jp-Dialog button", has_text="No Kernel").click()
                    page.get_by_role("tab", name="File Browser").click()  # folds it away
                    shown = "jupyterapp.shell.currentWidget.content"
                    page.evaluate(f"place => {{ void {shown}.scrollToItem(place, 'start'); }}", place)
                    cell = page.locator(f".jp-Cell[data-windowed-list-index='{place}']")
                    cell.locator(".jp-OutputArea-output").first.wait_for()
                    page.wait_for_timeout(1500)
                    camera.take(f"notebook-{file.stem}", page.locator(".jp-Notebook").first)
                server.stop_kernels()
        finally:
            server.stop()
            browser.close()


if __name__ == "__main__":
    numbers = tuple(argument for argument in sys.argv[1:] if argument[:2].isdigit())
    folders = [argument for argument in sys.argv[1:] if not argument[:2].isdigit()]
    main(Path(folders[0]) if folders else OUT, numbers)
