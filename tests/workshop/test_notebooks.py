"""Each notebook runs from start to end, with each exercise unsolved, wrong twice, and solved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest

from nbcompile.workshop import exercises
from tests.from_scripts import load
from tests.nightly import few

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "notebooks").glob("*.py"))
QUICKEST = 2
"""One of so many notebooks is run by ``make test``, all by ``make test-nightly``."""

notebooks, badges = load("notebooks"), load("badges")


def seconds(source: Path) -> float:
    kept = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    return float(kept.metadata.get("nbcompile_run", {}).get("seconds", 0))


def by_time() -> list[object]:
    quick = sorted(SOURCES, key=seconds)[:QUICKEST]
    marks = {source: () if source in quick else pytest.mark.nightly for source in SOURCES}
    return [pytest.param(source, id=source.stem, marks=marks[source]) for source in SOURCES]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_is_what_its_source_makes_with_the_outputs_of_a_run(source: Path) -> None:
    text = source.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert text == notebooks.current(source, badges.repository()), "run `make notebooks`"
    kept = nbformat.reads(text, as_version=4)
    assert kept.metadata.get("nbcompile_run", {}).get("code") == notebooks.digest(kept), (
        f"its outputs are of other code: run `make notebooks ARGS='--run {source.stem}'`"
    )
    assert seconds(source) < 180
    assert not [o for cell in kept.cells for o in cell.get("outputs", []) if o.output_type == "error"]
    for cell in kept.cells:
        if "exercise" in cell.metadata.get("tags", []):
            assert any("Not yet" in o.get("data", {}).get("text/html", "") for o in cell.outputs)


@few(1)
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("source", by_time())
def test_it_runs_and_each_exercise_knows_right_from_wrong(source: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.workshop.rehearse", str(source)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, f"{run.stdout[-4000:]}\n{run.stderr[-4000:]}"
    rows = [
        line.removeprefix("exercise ") for line in run.stdout.splitlines() if line.startswith("exercise {")
    ]
    found = [json.loads(row) for row in rows]
    tags = [tag for cell in jupytext.read(source).cells for tag in cell.metadata.get("tags", [])]
    assert len(found) == tags.count("exercise")
    for row in found:
        assert row["exercise"] in exercises()
        assert not row["unsolved"][0], row
        assert len(row["wrong"]) >= 2 and not any(passed for passed, _ in row["wrong"]), row
        assert not any("could not be checked" in says for _, says in row["wrong"]), row
        assert row["solved"] and row["solved"][0], row
