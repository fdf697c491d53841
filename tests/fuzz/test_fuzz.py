"""Random programs, a few fixed ones each time and an hour of others by night: see scripts/fuzz.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.check import agrees
from tests.fuzz.draw import draw
from tests.nightly import soon

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz.py"
SEEDS = [*range(20, 36)]
INTERPRETED = [3, 10]


@pytest.mark.parametrize("seed", soon([32], SEEDS))
def test_on_the_cpu(seed: int) -> None:
    agrees(draw(seed))


@pytest.mark.parametrize("seed", soon([10], INTERPRETED))
def test_in_the_interpreter(seed: int) -> None:
    agrees(draw(seed), "interpret")


@pytest.mark.nightly
@pytest.mark.timeout(4500)
@pytest.mark.parametrize(("target", "seconds"), [("cpu", 3000), ("interpret", 600)])
def test_for_an_hour(target: str, seconds: int, tmp_path: Path) -> None:
    """New seeds each night: those of the day."""
    import datetime

    first = datetime.date.today().toordinal() * 100_000
    command = [
        sys.executable,
        str(SCRIPT),
        "--target",
        target,
        "--seconds",
        str(seconds),
        "--seeds",
        f"{first}:",
        "--jobs",
        "2",
        "--reduce",
        "--out",
        str(tmp_path / "out.jsonl"),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 600, check=False)
    assert run.returncode == 0, run.stdout[-20000:] + run.stderr[-2000:]
