"""The figures that notebook 10 quotes are those of the page that it names."""

from __future__ import annotations

import re
from pathlib import Path

from nbcompile.workshop.modes import FIGURES

PAGE = Path(__file__).parents[2] / "docs" / "gpu-backends.md"


def test_the_figures_are_those_of_the_page() -> None:
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    pages = {section.splitlines()[0]: section for section in sections}
    for program, rows in FIGURES.items():
        for contestant, (microseconds, cold) in rows.items():
            (row,) = re.findall(rf"^\| {contestant} \|(.*)$", pages[program], re.MULTILINE)
            cells = [cell.strip() for cell in row.split("|")]
            assert float(cells[0].split()[0]) == microseconds, (program, contestant)
            assert float(cells[2] or 0) == cold, (program, contestant)
