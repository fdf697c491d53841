"""Gives wrong answers to the exercises of a notebook, with the context that the notebook gives its judges.

    python -m tests.workshop.mutate notebooks/06-fusion.py [EXERCISE ...]

Prints a line of JSON for each exercise: what was said of the solution (``right``), of each wrong answer
(``wrong``) and of those drawn by chance near the right one (``drawn``), as [what is wrong, passed, words].
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from nbcompile.workshop import check
from tests.workshop.contexts import Context, contexts, exercises_of
from tests.workshop.drawn import drawn
from tests.workshop.mutations import STILL_RIGHT, Answer, breaking, generic, mutations, twice_called


def changed(name: str, right: Any) -> Iterator[Answer]:
    """Generic ones, mutations, and what only some exercises can be given."""
    yield from generic()
    for wrong, answer in mutations(right):
        if not re.fullmatch(STILL_RIGHT.get(name, "(?!)"), wrong):
            yield wrong, answer
    if name in ("first.one", "capture.mend", "others.pattern", "tour.write"):
        yield "in several graphs", breaking(right)
    if name == "training.accumulate":
        yield "called twice", twice_called(right)


Answers = Callable[[str, Any], Iterable[Answer]]
"""Wrong answers to an exercise of this name, made of the right one."""


def judged(context: Context, answers: Answers) -> Iterator[tuple[str, bool, str]]:
    """Each wrong answer, with what the judge says of it."""
    for place in context.readers:
        for wrong, answer in answers(context.name, context.arguments[place]):
            arguments = [*context.arguments]
            arguments[place] = answer
            torch._dynamo.reset()
            with contextlib.redirect_stdout(io.StringIO()):
                said = check(context.name, *arguments)
            yield wrong, said.passed, said.says


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("exercises", nargs="*")
    parser.add_argument("--drawn", type=int, default=10, help="so many of those drawn")
    parser.add_argument("--only-drawn", action="store_true", help="leave out the others")
    asked = parser.parse_args()
    source = asked.source.resolve()
    for context in contexts(source, asked.exercises or exercises_of(source)):
        right = check(context.name, *context.arguments)
        row = {
            "exercise": context.name,
            "right": (right.passed, right.says),
            "wrong": [] if asked.only_drawn else list(judged(context, changed)),
            "drawn": list(judged(context, lambda name, right: drawn(name, right, asked.drawn))),
        }
        print(f"exercise {json.dumps(row)}", flush=True)
