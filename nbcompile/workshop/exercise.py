"""What an exercise is: a name, and a function that judges an answer."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from nbcompile.errors import NbcompileError, in_one_line
from nbcompile.workshop.progress.keeping import noted


class WrongAnswerError(Exception):
    """Raised by a checker: what is wrong with the answer, and where to look, in a sentence or two."""


class UnansweredError(WrongAnswerError):
    """There is no answer yet: the reader's function returns nothing, or dots."""


class ExerciseError(NbcompileError, KeyError):
    """No exercise has this name."""


@dataclass(frozen=True)
class Judgement:
    """What :func:`check` found. It shows itself as the result of a notebook's cell. ``answered``: something
    stands in place of the dots. ``note`` is what else is to be told, such as where this is kept."""

    exercise: str
    passed: bool
    says: str
    answered: bool = True
    note: str = ""

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        note = f"\n  {self.note}" if self.note else ""
        return f"{'✓' if self.passed else '✗'} {self.exercise}: {self.says}{note}"

    def _repr_html_(self) -> str:
        # A word beside the colour: not everybody sees one.
        word, colour = ("Right", "#1a7f37") if self.passed else ("Not yet", "#9a6700")
        return str(
            Markup(
                '<div role="status" style="border-left: 4px solid {}; padding: 4px 12px; margin: 4px 0">'
                "<b>{}.</b> {}{}</div>"
            ).format(colour, word, self.says, self._note_html())
        )

    def _note_html(self) -> Markup:
        if not self.note:
            return Markup("")
        return Markup('<div style="font-size: 12px; color: #80838a; margin-top: 2px">{}</div>').format(
            self.note
        )


def _open(answer: Any) -> bool:
    """Whether an answer has dots in it that were to be replaced."""
    if isinstance(answer, Mapping):
        return any(map(_open, answer.values()))
    return answer is ... or (isinstance(answer, list | tuple) and any(each is ... for each in answer))


@dataclass(frozen=True)
class Exercise:
    """``judge(*answers)`` returns what there is to say of a right answer, and raises
    :class:`WrongAnswerError` of another. It is called with what the reader wrote, of whatever type."""

    name: str
    judge: Callable[..., str]

    def check(self, *answers: Any) -> Judgement:
        if any(answer is ... for answer in answers):
            says = "nothing to check yet: write your answer in place of the dots."
            return Judgement(self.name, False, says, answered=False)
        answered = not any(map(_open, answers))
        try:
            return Judgement(self.name, True, self.judge(*answers))
        except UnansweredError as error:
            return Judgement(self.name, False, str(error), answered=False)
        except WrongAnswerError as error:
            return Judgement(self.name, False, str(error), answered)
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
    """Judge the ``answers`` to an exercise. Nothing that an answer does wrong is raised: it is told. The
    verdict is kept for an instructor only where that was asked for (:func:`keep_progress`)."""
    known = exercises()
    if name not in known:
        raise ExerciseError(f"there is no exercise {name!r}.", advice=f"There are: {', '.join(known)}.")
    found = known[name].check(*answers)
    return replace(found, note=noted(name, found.passed)) if found.answered else found
