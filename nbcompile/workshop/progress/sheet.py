"""How far a class is: the files of its participants, added up."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from nbcompile.errors import OptionError
from nbcompile.units import count_text
from nbcompile.workshop.progress.curriculum import NOTEBOOKS, Notebook
from nbcompile.workshop.progress.files import SUFFIX, ProgressError, file_name, read, shown_name
from nbcompile.workshop.progress.model import ExerciseProgress, Progress

MOST_FILES = 500
"""Of a folder that are read, in the order of their names."""
_KNOWN = frozenset(name for notebook in NOTEBOOKS for name in notebook.exercises)

State = Literal["solved", "tried", "not yet"]


@dataclass(frozen=True)
class Participant:
    """One file: who it says it is of, with the file's name where it is not the one of that name."""

    name: str
    progress: Progress

    def state(self, exercise: str) -> State:
        """How far they are with an exercise."""
        entry = self.entry(exercise)
        return "not yet" if entry is None else "tried" if entry.solved is None else "solved"

    def entry(self, exercise: str) -> ExerciseProgress | None:
        """What is known of an exercise, if it was tried."""
        return self.progress.exercises.get(exercise)

    def solved(self, exercises: Iterable[str]) -> int:
        """How many of these are solved."""
        return sum(self.state(exercise) == "solved" for exercise in exercises)


@dataclass(frozen=True)
class Tally:
    """An exercise over the class: how many have ``tried`` it and ``solved`` it, in how many attempts."""

    exercise: str
    tried: int
    solved: int
    attempts: int

    @property
    def open(self) -> int:
        """How many have tried it and not solved it yet."""
        return self.tried - self.solved


@dataclass(frozen=True)
class SkippedFile:
    """A file that was not read, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class ClassSheet:
    """The participants of a class, by name. It prints itself, a notebook shows it, and ``to_page`` is a file
    of its own. ``skipped`` are files that could not be read; ``more`` of them were not looked at.
    ``notebooks`` are those that are asked about."""

    title: str
    participants: tuple[Participant, ...]
    skipped: tuple[SkippedFile, ...] = ()
    more: int = 0
    notebooks: tuple[Notebook, ...] = NOTEBOOKS

    @property
    def begun(self) -> tuple[Notebook, ...]:
        """Those of the notebooks in which anybody has tried an exercise."""
        tried = {name for each in self.participants for name in each.progress.exercises}
        return tuple(notebook for notebook in self.notebooks if tried.intersection(notebook.exercises))

    @property
    def unknown(self) -> tuple[str, ...]:
        """Exercises in the files that are none of the workshop's notebooks: they are in no table."""
        found = {name for each in self.participants for name in each.progress.exercises}
        return tuple(sorted(found - _KNOWN))

    def tally(self, exercise: str) -> Tally:
        """An exercise over the class."""
        found = [entry for each in self.participants if (entry := each.entry(exercise))]
        solved = sum(entry.solved is not None for entry in found)
        return Tally(exercise, len(found), solved, sum(entry.attempts for entry in found))

    def solved_in(self, notebook: Notebook) -> int:
        """How often its exercises are solved, over the class."""
        return sum(each.solved(notebook.exercises) for each in self.participants)

    def stuck(self, most: int = 5) -> list[Tally]:
        """Where the class is stuck: the exercises that most have tried and not solved, of equals those with
        more attempts first."""
        found = [self.tally(name) for notebook in self.begun for name in notebook.exercises]
        waiting = [each for each in found if each.open]
        return sorted(waiting, key=lambda each: (-each.open, -each.attempts / each.tried))[:most]

    def rows(self) -> list[dict[str, Any]]:
        """A row for each participant and exercise of a notebook that was begun, for a table of your own
        (``pandas.DataFrame(sheet.rows())``). Times are UTC, None where there is none."""
        return [
            {
                "participant": each.name,
                "notebook": notebook.number,
                "exercise": exercise,
                "state": each.state(exercise),
                "attempts": entry.attempts if (entry := each.entry(exercise)) else 0,
                "first": _time(entry.first) if entry else None,
                "solved": _time(entry.solved) if entry else None,
            }
            for each in self.participants
            for notebook in self.begun
            for exercise in notebook.exercises
        ]

    def summary(self) -> str:
        """The class in a sentence."""
        asked = [name for notebook in self.begun for name in notebook.exercises]
        solved = sum(each.solved(asked) for each in self.participants)
        told = count_text(len(self.participants), "participant")
        if not self.begun:
            return f"{told}, and nobody has tried an exercise yet"
        begun = count_text(len(self.begun), "notebook")
        return (
            f"{told}, {begun} begun, {solved:,} of {len(asked) * len(self.participants):,} exercises solved"
        )

    def to_page(self) -> str:
        """An HTML file with nothing outside of it, light and dark by the reader's setting, for a screen in
        the room."""
        return str(_view("page").to_page(self))

    def __str__(self) -> str:
        return str(_view("text").to_text(self))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": str(_view("text").to_html(self))}


def _view(name: str) -> Any:
    """What shows it: opened when something is shown, as the records' views are."""
    return import_module(f"nbcompile.workshop.progress.{name}")


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def class_sheet(folder: str | os.PathLike[str], *, title: str = "", only: Sequence[str] = ()) -> ClassSheet:
    """How far the class is whose participants named ``folder`` (:func:`keep_progress`), in all notebooks or
    ``only`` those of these numbers: ``("03", "06")``. Files that cannot be read are skipped and listed.
    ProgressError if there is no such folder, or nobody's file in it."""
    numbers = [each.number for each in NOTEBOOKS]
    if unknown := [number for number in only if number not in numbers]:
        raise OptionError(f"There is no notebook {unknown[0]}.", advice=f"There are {', '.join(numbers)}.")
    wanted = tuple(each for each in NOTEBOOKS if not only or each.number in only)
    place = Path(folder).expanduser()
    try:
        names = sorted(name for name in os.listdir(place) if _is_asked(name))
    except OSError as error:
        raise ProgressError(f"{place} cannot be read: {error.strerror or error}.") from error
    if not names:
        raise ProgressError(
            f"{place} holds no participant's file (*{SUFFIX}).",
            advice="Participants name this folder: NBCOMPILE_CLASS_FOLDER, or "
            "nbcompile.workshop.keep_progress(folder).",
        )
    read_in: list[tuple[str, Progress]] = []
    skipped = []
    for name in names[:MOST_FILES]:
        try:
            read_in.append((name, read(place / name)))
        except ProgressError as error:
            skipped.append(SkippedFile(shown_name(name), error.message))
    people = sorted(_named(read_in), key=lambda each: each.name.casefold())
    shown = shown_name(title) or shown_name(place.absolute().name) or "The class"
    return ClassSheet(shown, tuple(people), tuple(skipped), len(names[MOST_FILES:]), wanted)


def _is_asked(name: str) -> bool:
    return name.endswith(SUFFIX) and not name.startswith(".")


def _named(found: Sequence[tuple[str, Progress]]) -> list[Participant]:
    """Who each file is of. One that is not called as its participant's would be is named beside them:
    anybody can write anybody's name into a file."""
    people = []
    for file, progress in found:
        name = shown_name(progress.participant) or "?"
        own = file == file_name(progress.participant)
        people.append(Participant(name if own else f"{name} ({shown_name(file)})", progress))
    return people
