"""What is kept of a participant: which exercises were tried, how often and when. No answers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

SCHEMA: Literal["nbcompile.progress/1"] = "nbcompile.progress/1"
MOST_EXERCISES = 500
"""In one file. There are fewer than a hundred; an instructor may add some."""
MOST_ATTEMPTS = 99_999
"""That are counted of one exercise: a loop may ask a judge for ever."""
MOST_NAME = 80
"""Letters of a participant's name."""

Time = Annotated[float, Field(ge=0, le=4e9)]
"""Seconds since 1970, by the clock of the participant's machine."""
_Name = Annotated[str, Field(min_length=1, max_length=MOST_NAME)]


@dataclass(frozen=True)
class ExerciseProgress:
    """``attempts`` up to the first right one (that included), and when it was first tried and ``solved``."""

    attempts: Annotated[int, Field(ge=1, le=MOST_ATTEMPTS)]
    first: Time
    solved: Time | None = None

    def after(self, passed: bool, now: float) -> ExerciseProgress:
        """With one verdict more. What comes after the first right answer is not counted."""
        if self.solved is not None:
            return self
        attempts = min(self.attempts + 1, MOST_ATTEMPTS)
        return ExerciseProgress(attempts, min(self.first, now), now if passed else None)


@dataclass(frozen=True)
class Progress:
    """A participant's file: ``exercises`` by name."""

    participant: _Name
    exercises: Annotated[dict[_Name, ExerciseProgress], Field(max_length=MOST_EXERCISES)] = field(
        default_factory=dict
    )
    schema: Literal["nbcompile.progress/1"] = SCHEMA

    def after(self, exercise: str, passed: bool, now: float) -> Progress:
        """With a verdict on an exercise added."""
        known = self.exercises.get(exercise)
        entry = known.after(passed, now) if known else ExerciseProgress(1, now, now if passed else None)
        return dataclasses.replace(self, exercises={**self.exercises, exercise: entry})

    def to_dict(self) -> dict[str, Any]:
        """JSON values: what the file holds."""
        entries = {name: dataclasses.asdict(each) for name, each in self.exercises.items()}
        return {"schema": self.schema, "participant": self.participant, "exercises": entries}
