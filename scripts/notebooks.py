"""Write each ``notebooks/NAME.ipynb`` anew from ``notebooks/NAME.py`` (jupytext's py:percent format).

    python scripts/notebooks.py                       the notebooks whose source has changed
    python scripts/notebooks.py --check               nothing is written; status 1 if one would be
    python scripts/notebooks.py --run [NAME ...]      run them too, and keep their outputs
    python scripts/notebooks.py --run --to FOLDER     the same, kept elsewhere: what they show on this machine

The Python file is the one to edit: it diffs and lints. The notebook is kept because it is what people open,
with the outputs of a run of exactly these cells, so that it can be read where nothing runs. Of a cell tagged
``solution`` the notebook has a fold with the code; one tagged ``wrong`` is for the tests alone
(docs/workshop.md). If pyproject.toml says where the project is, the notebook also has badges that open it
there, and begins by installing nbcompile where it is missing (scripts/badges.py).
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbformat import NotebookNode

import badges

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
TIMEOUT = 600  # seconds a cell
KEPT = ("text/plain", "text/html", "image/png", "image/svg+xml", "application/vnd.nbcompile.v1+json")
"""Kinds of output that are kept. Views of a live kernel's widgets are not: without it they show nothing."""
LARGEST = 400_000
"""Characters of a record, above which only its HTML is kept: GitHub shows no notebook of many megabytes."""


def rendered(source: Path, repository: str | None = None) -> NotebookNode:
    """The notebook that ``source`` makes, without outputs; the same for the same source. With badges for the
    ``repository``, an address on GitHub, if there is one."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    cells = []
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if "wrong" in tags:
            continue
        if "solution" in tags:
            cell = nbformat.v4.new_markdown_cell(folded("Solution", cell.source))
            tags = []
        cell.id = f"cell-{len(cells):02}"
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        cells.append(cell)
    if repository:
        cells[0].source += f"\n\n{badges.badges(repository, f'notebooks/{source.stem}.ipynb')}"
        cells.insert(1, setup_cell(repository))
    notebook.cells = cells
    return notebook


def setup_cell(repository: str) -> NotebookNode:
    """It belongs to no lesson: without a count, an output, or a say in whether those of a run still hold."""
    cell = nbformat.v4.new_code_cell(badges.setup(repository), id="setup")
    cell.metadata["tags"] = ["setup"]
    return cell


def lesson(notebook: NotebookNode) -> list[NotebookNode]:
    """The code cells that the source has."""
    return [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and "setup" not in cell.metadata.get("tags", [])
    ]


def folded(title: str, code: str) -> str:
    return f"<details><summary>{title}</summary>\n\n```python\n{code}\n```\n\n</details>"


def digest(notebook: NotebookNode) -> str:
    """Of what is run: the same for notebooks of the same code."""
    code = "\0".join(cell.source for cell in lesson(notebook))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def with_outputs(made: NotebookNode, kept: NotebookNode | None) -> NotebookNode:
    """``made`` with the outputs of ``kept``, if those are of a run of the same code."""
    run = kept.metadata.get("nbcompile_run", {}) if kept is not None else {}
    if kept is None or run.get("code") != digest(made):
        return made
    for cell, before in zip(lesson(made), lesson(kept), strict=True):
        cell.outputs, cell.execution_count = before.outputs, before.execution_count
    made.metadata["nbcompile_run"] = run
    return made


def run(notebook: NotebookNode, folder: Path) -> float:
    """Execute in place; seconds. nbclient's CellExecutionError where a cell raises."""
    from nbclient import NotebookClient

    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    metadata = copy.deepcopy(notebook.metadata)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        extra_arguments=["--log-level=40"],
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
    )
    start = time.perf_counter()
    client.execute()
    seconds = time.perf_counter() - start
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        for output in cell.outputs:
            for kind in [kind for kind, value in output.get("data", {}).items() if not is_kept(kind, value)]:
                del output["data"][kind]
            output.get("metadata", {}).clear()
        cell.outputs = [o for o in cell.outputs if o.output_type in ("stream", "error") or o.get("data")]
    notebook.metadata = metadata  # without what the kernel said of itself
    notebook.metadata["nbcompile_run"] = {"code": digest(notebook), "seconds": round(seconds)}
    return seconds


def is_kept(kind: str, value: Any) -> bool:
    return kind in KEPT and (isinstance(value, str) or len(json.dumps(value)) <= LARGEST)


def text_of(notebook: NotebookNode) -> str:
    return str(nbformat.writes(notebook, version=4)) + "\n"


def current(source: Path, repository: str | None) -> str:
    """The text that the notebook of ``source`` is to have now, with the outputs it has if they hold."""
    target = source.with_suffix(".ipynb")
    kept = nbformat.read(target, as_version=4) if target.exists() else None
    return text_of(with_outputs(rendered(source, repository), kept))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="of notebooks, or beginnings of them; else all")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--to", type=Path, default=NOTEBOOKS, metavar="FOLDER")
    asked = parser.parse_args()
    asked.to.mkdir(parents=True, exist_ok=True)
    sources = sorted(NOTEBOOKS.glob("*.py"))
    if asked.names:
        sources = [s for s in sources if s.stem.startswith(tuple(asked.names))]
    repository = badges.repository()
    stale = []
    for source in sources:
        target = asked.to / f"{source.stem}.ipynb"
        if asked.run:
            notebook = rendered(source)
            print(f"{source.stem}: {run(notebook, NOTEBOOKS):.0f} s", flush=True)
            text = text_of(with_outputs(rendered(source, repository), notebook))
        else:
            text = current(source, repository)
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        stale.append(target.name)
        if not asked.check:
            target.write_text(text, encoding="utf-8")
    print(f"{'stale' if asked.check else 'written'}: {', '.join(stale) or 'none'}")
    return 1 if asked.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
