"""What a checker's verdict says and shows."""

from __future__ import annotations

import pytest

from nbcompile.workshop import WrongAnswerError, check, exercise, exercises
from nbcompile.workshop.exercise import ExerciseError


@exercise("test.half")
def half(answer: float) -> str:
    if answer * 2 != 1:
        raise WrongAnswerError(f"<b>twice {answer} is not 1.")
    return "twice that is 1."


def test_right_and_wrong() -> None:
    right, wrong = check("test.half", 0.5), check("test.half", 2)
    assert right and right.passed and repr(right) == "✓ test.half: twice that is 1."
    assert not wrong and wrong.says == "<b>twice 2 is not 1."
    assert "Right" in right._repr_html_() and "Not yet" in wrong._repr_html_()
    assert "&lt;b&gt;twice" in wrong._repr_html_()


def test_an_unsolved_cell_is_told_so_and_raises_nothing() -> None:
    said = check("test.half", ...)
    assert not said and "in place of the dots" in said.says


def test_an_answer_of_another_kind_raises_nothing() -> None:
    said = check("test.half", object())
    assert not said and said.says.startswith("your answer could not be checked: TypeError")
    assert not check("test.half", 1, 2, 3)


def test_an_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(ExerciseError, match=r"no exercise 'test.none'.*test\.half"):
        check("test.none", 1)
    assert "test.half" in exercises()
