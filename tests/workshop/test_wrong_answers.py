"""No judge passes a wrong answer, raises, or leaves it to Python to say what is wrong with it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nbcompile.workshop import check, exercises
from tests.nightly import few
from tests.workshop.contexts import NOTEBOOKS, alone, by_themselves, exercises_of
from tests.workshop.drawn import TOLERANCE, drawn, near
from tests.workshop.mutations import generic, mutations

ROOT = Path(__file__).parents[2]
SOURCES = sorted(NOTEBOOKS.glob("*.py"))
UNMEASURED = {"08-codegen": ["codegen.offset", "codegen.mask"], "14-export": ["export.dims", "export.baked"]}
"""Some of the exercises whose answers are judged without a clock."""


SLOW = {
    "eager.predict", "fusion.speedup", "fusion.overrule", "fusion.inductor", "worth.choose", "others.fewer",
    "others.pattern", "training.buckets", "training.schedule", "tour.write", "loops.order", "own.rule",
    "worth.lengths", "export.dims",
}  # fmt: skip
"""Judges that measure, or run other compilers, or many programs."""


def refused(passed: bool, says: str) -> bool:
    """Whether a judge said in a sentence of its own that an answer is wrong."""
    return not passed and "could not be checked" not in says and says.strip() != ""


@few(3)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.nightly if name in SLOW else ())
        for source in SOURCES
        for name in alone(source)
    ],
)
def test_an_answer_of_another_kind_is_refused(name: str) -> None:
    """Of exercises whose judge is handed nothing but the answer."""
    for wrong, answer in generic():
        said = check(name, answer)
        assert refused(said.passed, said.says), (wrong, said)


ANSWERS = {name: answer for source in SOURCES for name, answer in by_themselves(source).items()}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly if name in SLOW else ()) for name in ANSWERS],
)
def test_an_answer_beside_the_right_one_is_refused(name: str, nightly: bool) -> None:
    """Of exercises whose right answer is known without running a notebook."""
    for wrong, answer in drawn(name, ANSWERS[name])[: 10 if nightly else 3]:
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
        assert len(row["wrong"]) >= 20 and len(row["drawn"]) == 10
        failed = [item for item in row["wrong"] + row["drawn"] if not refused(item[1], item[2])]
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


@pytest.mark.parametrize("right", [3, 2.5, True, "word", [1, 2], {1, 2}, {"a": 1, "b": 2}, (1, "x")])
def test_what_is_drawn_is_ten_different_answers_and_the_same_ones_each_time(right: Any) -> None:
    found = drawn("test.some", right)
    assert [wrong for wrong, _ in found] == [wrong for wrong, _ in drawn("test.some", right)]
    assert len({wrong for wrong, _ in found}) == 10
    assert not any(type(answer) is type(right) and answer == right for _, answer in found)
    assert [wrong for wrong, _ in found] != [wrong for wrong, _ in drawn("test.other", right)]


def test_what_is_drawn_near_a_function_returns_something_else() -> None:
    chance = random.Random(0)
    for _ in range(60):
        wrong, answer = near(lambda i, j: 10 * i + j, chance)
        try:
            found = answer(2, 3)
        except (TypeError, ValueError):
            continue
        assert found != 23 or wrong == "right the first time only" or type(found) is not int, wrong


def test_what_an_exercise_allows_for_is_not_drawn() -> None:
    assert set(TOLERANCE) <= set(exercises())
    for _, answer in drawn("eager.overhead", 1.0):
        if isinstance(answer, float) and answer > 0:
            assert not 0.25 < answer < 4, "the right answer may itself be off by a factor of two"
