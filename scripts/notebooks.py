"""Write each ``notebooks/NAME.ipynb`` anew from ``notebooks/NAME.py`` (jupytext's py:percent format).

The Python file is the one to edit: it diffs and lints. The notebook is kept, without outputs, because it
is what people open. With ``--check`` nothing is written, and the status is 1 if one differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jupytext
import nbformat

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


def rendered(source: Path) -> str:
    """The notebook that ``source`` makes, as JSON text; the same text for the same source."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"
        cell.metadata = nbformat.from_dict({})
    return nbformat.writes(notebook, version=4) + "\n"


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = []
    for source in sorted(NOTEBOOKS.glob("*.py")):
        target = source.with_suffix(".ipynb")
        text = rendered(source)
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        stale.append(target.name)
        if not check:
            target.write_text(text, encoding="utf-8")
    print(f"{'stale' if check else 'written'}: {', '.join(stale) or 'none'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
