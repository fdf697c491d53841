"""No judge passes a wrong answer, raises, or leaves it to Python to say what is wrong with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nbcompile.workshop import check, exercises
from tests.nightly import few
from tests.workshop.contexts import NOTEBOOKS, alone, exercises_of
from tests.workshop.mutations import generic, mutations

ROOT = Path(__file__).parents[2]
SOURCES = sorted(NOTEBOOKS.glob("*.py"))
UNMEASURED = {"08-codegen": ["codegen.offset", "codegen.mask"], "14-export": ["export.dims", "export.baked"]}
"""Some of the exercises whose answers are judged without a clock."""


def refused(passed: bool, says: str) -> bool:
    """Whether a judge said in a sentence of its own that an answer is wrong."""
    return not passed and "could not be checked" not in says and says.strip() != ""


@few(3)
@pytest.mark.parametrize("name", [name for source in SOURCES for name in alone(source)])
def test_an_answer_of_another_kind_is_refused(name: str) -> None:
    """Of exercises whose judge is handed nothing but the answer."""
    for wrong, answer in generic():
        said = check(name, answer)
        assert refused(said.passed, said.says), (wrong, said)


def wrong_answers(source: Path, tmp_path: Path, names: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.workshop.mutate", str(source), *names],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, f"{run.stdout[-2000:]}\n{run.stderr[-4000:]}"
    lines = [line for line in run.stdout.splitlines() if line.startswith("exercise {")]
    rows: list[dict[str, Any]] = [json.loads(line.removeprefix("exercise ")) for line in lines]
    assert [row["exercise"] for row in rows] == names
    for row in rows:
        assert row["right"][0], row["right"]
        assert len(row["wrong"]) >= 20
        failed = [item for item in row["wrong"] if not refused(item[1], item[2])]
        assert not failed, (row["exercise"], failed)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stem", UNMEASURED)
def test_a_changed_solution_is_refused(stem: str, tmp_path: Path) -> None:
    wrong_answers(NOTEBOOKS / f"{stem}.py", tmp_path, UNMEASURED[stem])


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_changed_solution_is_refused_by_every_judge(source: Path, tmp_path: Path) -> None:
    wrong_answers(source, tmp_path, exercises_of(source))


def test_each_exercise_is_in_a_notebook() -> None:
    asked = [name for source in SOURCES for name in exercises_of(source)]
    assert len(asked) == len(set(asked)) and set(asked) <= set(exercises())


@pytest.mark.parametrize("right", [3, 2000, 2.5, True, "word", [1, 2], (1, 2), {1, 2}, {"a": 1, "b": 2}])
def test_no_mutation_is_the_answer_itself(right: Any) -> None:
    found = [answer for _, answer in mutations(right)]
    assert found and not any(type(answer) is type(right) and answer == right for answer in found)
