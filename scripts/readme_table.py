"""Put benchmark figures into README.md, between the two ``figures`` comments.

    python scripts/bench.py --json out/bench.json
    python scripts/readme_table.py out/bench.json

The file is a JSON object: ``"caption"``, one sentence on where it was measured; ``"columns"``, a list of
names; ``"rows"``, lists of strings and numbers of that length. If it is anything else, README.md stays as
it was, and the status is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown. ValueError if a row is not as long as the header."""
    columns = [str(name) for name in figures["columns"]]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for row in figures["rows"]:
        if len(row) != len(columns):
            raise ValueError(f"row {row!r} has {len(row)} entries for {len(columns)} columns")
        lines.append(f"| {' | '.join(_entry(value) for value in row)} |")
    return f"## Figures\n\n{figures['caption']}\n\n" + "\n".join(lines)


def insert(readme: str, text: str) -> str:
    """``readme`` with ``text`` between the two marks. ValueError unless each mark occurs once."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise ValueError(f"README.md is to hold {BEGIN} and {END} once each")
    head, _, rest = readme.partition(BEGIN)
    return f"{head}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}"


def _entry(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value).replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser(description="Put benchmark figures into README.md.")
    parser.add_argument("figures", type=Path, nargs="?", default=ROOT / "out" / "bench.json")
    arguments = parser.parse_args()
    readme = ROOT / "README.md"
    try:
        figures = json.loads(arguments.figures.read_text(encoding="utf-8"))
        text = insert(readme.read_text(encoding="utf-8"), table(figures))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"README.md is as it was: {error}", file=sys.stderr)
        return 1
    readme.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
