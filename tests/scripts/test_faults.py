"""The faults that scripts/faults provokes: each of them, a few times."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "scripts" / "faults" / "run.py"


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.nightly
@pytest.mark.slow
def test_faults_are_counted_and_written(tmp_path: Path) -> None:
    page, out = tmp_path / "page.md", tmp_path / "faults.jsonl"
    page.write_text(
        "# Faults\n\n<!-- the table: make faults -->\nbefore\n<!-- end of the table -->\n\nEnd.\n"
    )
    run = _run("--only", "more entries,one bit", "--trials", "2", "--out", str(out), "--write", str(page))
    assert run.returncode == 0, run.stdout + run.stderr
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert [each["lost"] for each in told] == [0, 0] and all(each["tried"] >= 2 for each in told)
    text = page.read_text()
    assert "| one bit is flipped |" in text and "**2 kinds of " in text
    assert "before" not in text and text.endswith("End.\n")


def test_the_page_has_every_kind_of_fault() -> None:
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    sources = "".join(file.read_text(encoding="utf-8") for file in SCRIPT.parent.glob("*.py"))
    names = re.findall(r'^@kind\(\s*"\w+",\s*"(.*?)",', sources, re.M)
    assert len(names) >= 40 and len(set(names)) == len(names)
    assert [name for name in names if f"| {name} |" not in page] == []


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("group", ["damage", "disk", "others", "compiler", "processes", "session"])
def test_the_program_survives(group: str) -> None:
    run = _run("--only", group, "--trials", "3")
    assert run.returncode == 0, run.stdout + run.stderr
