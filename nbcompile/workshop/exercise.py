"""What an exercise is: a name, and a function that judges an answer."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from nbcompile.errors import NbcompileError, in_one_line


class WrongAnswerError(Exception):
    """Raised by a checker: what is wrong with the answer, and where to look, in a sentence or two."""


class ExerciseError(NbcompileError, KeyError):
    """No exercise has this name."""


@dataclass(frozen=True)
class Judgement:
    """What :func:`check` found. It shows itself as the result of a notebook's cell."""

    exercise: str
    passed: bool
    says: str

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return f"{'✓' if self.passed else '✗'} {self.exercise}: {self.says}"

    def _repr_html_(self) -> str:
        # A word beside the colour: not everybody sees one.
        word, colour = ("Right", "#1a7f37") if self.passed else ("Not yet", "#9a6700")
        return str(
            Markup(
                '<div role="status" style="border-left: 4px solid {}; padding: 4px 12px; margin: 4px 0">'
                "<b>{}.</b> {}</div>"
            ).format(colour, word, self.says)
        )


@dataclass(frozen=True)
class Exercise:
    """``judge(*answers)`` returns what there is to say of a right answer, and raises
    :class:`WrongAnswerError` of another. It is called with what the reader wrote, of whatever type."""

    name: str
    judge: Callable[..., str]

    def check(self, *answers: Any) -> Judgement:
        if any(answer is ... for answer in answers):
            return Judgement(
                self.name, False, "nothing to check yet: write your answer in place of the dots."
            )
        try:
            return Judgement(self.name, True, self.judge(*answers))
        except WrongAnswerError as error:
            return Judgement(self.name, False, str(error))
        except Exception as error:  # an answer may be of any kind; of one that breaks the judge that is told
            return Judgement(self.name, False, f"your answer could not be checked: {in_one_line(error)}")


_KNOWN: dict[str, Exercise] = {}


def exercise(name: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Makes the function below it the judge of this exercise, named ``topic.what``: ``fusion.pairs``."""

    def register(judge: Callable[..., str]) -> Callable[..., str]:
        _KNOWN[name] = Exercise(name, judge)
        return judge

    return register


@cache
def _load() -> None:
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")


def exercises() -> Mapping[str, Exercise]:
    """All of them, by name."""
    _load()
    return dict(sorted(_KNOWN.items()))


def check(name: str, *answers: Any) -> Judgement:
    """Judge the ``answers`` to an exercise. Nothing that an answer does wrong is raised: it is told."""
    known = exercises()
    if name not in known:
        raise ExerciseError(f"there is no exercise {name!r}.", advice=f"There are: {', '.join(known)}.")
    return known[name].check(*answers)
