"""What ``make test`` leaves to the night is a spread, the same one each time, and none of it is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.nightly import soon

ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import pytest
from tests.nightly import few, one_in

@few(3)
@pytest.mark.parametrize("x", range(3))
@pytest.mark.parametrize("y", "abc")
def test_many(x, y): ...

@few(9)
@pytest.mark.parametrize("x", range(2))
def test_less_than_asked_for(x): ...

@pytest.mark.parametrize(("x", "y"), one_in(2, range(2), range(2)))
def test_pairs(x, y): ...

def test_alone(): ...
"""


def collected(folder: Path, *options: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-n0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), str(folder), *options],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.rpartition("::")[2] for line in done.stdout.splitlines() if "::test_" in line]


def test_few_of_many_and_each_value_among_them(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n", encoding="utf-8")
    (tmp_path / "test_some.py").write_text(TESTS, encoding="utf-8")
    by_day, by_night = collected(tmp_path), collected(tmp_path, "--nightly")
    many = [name for name in by_day if name.startswith("test_many")]
    assert {name[10] for name in many} == set("abc") and {name[12] for name in many} == set("012")
    assert len(many) == 3 and by_day == collected(tmp_path)
    assert len(by_day) == 3 + 2 + 2 + 1 and len(by_night) == 9 + 2 + 4 + 1


def test_those_that_are_chosen_run_by_day() -> None:
    by_night = {str(each.values[0]): bool(each.marks) for each in soon("b", "abc")}
    assert by_night == {"a": True, "b": False, "c": True}
