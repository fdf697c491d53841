"""Go through a notebook's source as its reader would who gets each exercise wrong twice before it is right.

    python -m tests.workshop.rehearse notebooks/06-fusion.py

Prints a line of JSON an exercise. Ends with status 1 at a cell that raises.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import jupytext
from IPython.core.interactiveshell import InteractiveShell

from nbcompile.workshop import Judgement


def rehearse(source: Path) -> list[dict[str, Any]]:
    """For each exercise: its name, and what was said of the cell as it stands (``unsolved``), of each wrong
    answer (``wrong``) and of the solution (``solved``), as (passed, words)."""
    shell = InteractiveShell.instance()
    sys.path.insert(0, str(source.parent))
    found: list[dict[str, Any]] = []
    last = ""  # the expression that ends an exercise's cell: what judges
    for cell in jupytext.read(source, fmt="py:percent").cells:
        if cell.cell_type != "code":
            continue
        (kind,) = {"exercise", "wrong", "solution"} & set(cell.metadata.get("tags", [])) or {""}
        code = cell.source
        if kind in ("wrong", "solution"):
            code += f"\n\n{last}"
        outcome = shell.run_cell(code, store_history=True)
        outcome.raise_error()
        if not kind:
            continue
        verdict = outcome.result
        assert isinstance(verdict, Judgement), f"this {kind} cell does not end in check(...):\n{code}"
        said = (verdict.passed, verdict.says)
        if kind == "exercise":
            last = ast.get_source_segment(code, ast.parse(code).body[-1]) or ""
            found.append({"exercise": verdict.exercise, "unsolved": said, "wrong": [], "solved": None})
        elif kind == "wrong":
            found[-1]["wrong"].append(said)
        else:
            found[-1]["solved"] = said
    return found


if __name__ == "__main__":
    for row in rehearse(Path(sys.argv[1]).resolve()):
        print(f"exercise {json.dumps(row)}")
