"""Put the figures that ``scripts/bench.py --markdown`` printed into README.md, between two comments.

    python scripts/bench.py --markdown > out/bench.md
    python scripts/readme_table.py out/bench.md

Or both by ``make table``. If the file holds no table, README.md stays as it was, and the status is 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
HEADING = "## Figures"


def insert(readme: str, figures: str) -> str:
    """``readme`` with ``figures`` between the two marks, in place of what was there.

    ValueError if ``figures`` has no Markdown table, or unless each mark occurs once.
    """
    return insert_between(readme, figures, BEGIN, END, HEADING)


def insert_between(readme: str, figures: str, begin: str, end: str, heading: str = "") -> str:
    """The same between any two marks, under a heading if there is one."""
    if not any(line.startswith("|") and set(line) <= set("|-: ") for line in figures.splitlines()):
        raise ValueError("there is no Markdown table in the figures")
    if readme.count(begin) != 1 or readme.count(end) != 1:
        raise ValueError(f"README.md is to hold {begin} and {end} once each")
    head, _, rest = readme.partition(begin)
    above = f"{heading}\n\n" if heading else ""
    return f"{head}{begin}\n{above}{figures.strip()}\n{end}{rest.partition(end)[2]}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Put benchmark figures into README.md.")
    parser.add_argument("figures", type=Path, nargs="?", default=ROOT / "out" / "bench.md")
    arguments = parser.parse_args()
    readme = ROOT / "README.md"
    try:
        text = insert(readme.read_text(encoding="utf-8"), arguments.figures.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"README.md is as it was: {error}", file=sys.stderr)
        return 1
    readme.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
