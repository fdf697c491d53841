"""Execute a notebook from start to end and leave it in ``out/``, as a notebook and as an HTML page, and with
its compilations in the explorer.

    python scripts/demo.py notebooks/01-first-compile.ipynb

Prints a line a code cell, with its seconds. Ends with status 1 at the first cell that raises; what ran
until then is written all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert import HTMLExporter

from nbcompile.record.compilation import Compilation
from nbcompile.view import MIME, to_page

ROOT = Path(__file__).resolve().parent.parent


def execute(source: Path, out: Path, timeout: int) -> int:
    """Run ``source`` and write ``out/<stem>.ipynb``, ``.html`` and ``-explorer.html``.

    ``timeout`` is in seconds a cell. Returns 0 if every cell ran, else 1.
    """
    # Else a kernel of that name in the user's home would run instead of this environment's Python.
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    notebook = nbformat.read(source, as_version=4)
    total = sum(cell.cell_type == "code" for cell in notebook.cells)
    progress = _Progress(total)
    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        extra_arguments=["--log-level=40"],  # errors; newer kernels warn of TCP, which is local here
        resources={"metadata": {"path": str(source.parent)}},
        on_cell_execute=progress.start,
        on_cell_executed=progress.done,
        on_cell_error=progress.done,
    )
    start = time.perf_counter()
    problem = ""
    try:
        client.execute()
    except CellExecutionError as error:
        problem = str(error)
    except (CellTimeoutError, DeadKernelError) as error:
        problem = f"{type(error).__name__}: {error}"
    out.mkdir(parents=True, exist_ok=True)
    saved, page = out / source.name, out / f"{source.stem}.html"
    nbformat.write(notebook, saved)
    page.write_text(to_html(notebook, source.stem), encoding="utf-8")
    print(f"{time.perf_counter() - start:.0f} s in all")
    print(f"notebook: {_shown(saved)}\npage:     {_shown(page)}")
    if records := compilations(notebook):
        explorer = out / f"{source.stem}-explorer.html"
        explorer.write_text(to_page(records, source.stem), encoding="utf-8")
        print(f"explorer: {_shown(explorer)}")
    if problem:
        print(f"\nA cell failed:\n{problem}", file=sys.stderr)
        return 1
    return 0


def compilations(notebook: nbformat.NotebookNode) -> list[Compilation]:
    """The records that stand in the notebook's outputs, in its order."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    held = [output.data[MIME] for output in outputs if MIME in output.get("data", {})]
    return [Compilation.from_json(json.dumps(payload)) for payload in held]


def to_html(notebook: nbformat.NotebookNode, title: str) -> str:
    """The notebook as one HTML page that loads nothing from elsewhere."""
    exporter = HTMLExporter(require_js_url="", mathjax_url="", jquery_url="", widget_renderer_url="")
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    body, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": title}})
    return str(body)


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


class _Progress:
    def __init__(self, total: int) -> None:
        self.total, self.count, self.started = total, 0, 0.0

    def start(self, cell: Any, cell_index: int) -> None:
        if cell.cell_type == "code":
            self.count += 1
            self.started = time.perf_counter()
            first = next((line for line in cell.source.splitlines() if line.strip()), "")
            print(f"[{self.count}/{self.total}] {first[:70]:70}", end=" ", flush=True)

    def done(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        if self.started:
            failed = execute_reply["content"]["status"] != "ok"
            print(f"{time.perf_counter() - self.started:6.1f} s{'  FAILED' if failed else ''}", flush=True)
            self.started = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "notebook", type=Path, nargs="?", default=ROOT / "notebooks" / "01-first-compile.ipynb"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "out")
    parser.add_argument("--timeout", type=int, default=600, help="seconds a cell may take")
    arguments = parser.parse_args()
    return execute(arguments.notebook.resolve(), arguments.out.resolve(), arguments.timeout)


if __name__ == "__main__":
    sys.exit(main())
