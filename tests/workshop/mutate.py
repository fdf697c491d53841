"""Gives wrong answers to the exercises of a notebook, with the context that the notebook gives its judges.

    python -m tests.workshop.mutate notebooks/06-fusion.py [EXERCISE ...]

Prints a line of JSON for each exercise: what was said of the solution (``right``) and of each wrong answer
(``wrong``), as [what is wrong, passed, words].
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from nbcompile.workshop import check
from tests.workshop.contexts import Context, contexts, exercises_of
from tests.workshop.mutations import Answer, breaking, generic, mutations, twice_called

STILL_RIGHT = {
    "first.lines": "'.*': (backwards|the last once more)",  # lines in any order
    "tour.write": "returns twice that|another type",  # any function of such a shape
    "capture.recompiles": r"the last once more|\[\d\] (one more|shorter)",  # any three recompiles
    "eager.predict": "returns twice that",  # a factor of 3 is allowed
    "training.accumulate": "returns nothing|another type|a list of it|an object|right the first time only",
    "training.schedule": "right the first time only",  # it is asked once
    "export.dims": r"'query': 0: \[1\] less",  # batches of 0 are not tried
    "own.lowering": "right the first time only",  # it is asked once
    "own.backend": "right the first time only",
    "build.rule": "right the first time only",  # the first time is the one to refuse
}
"""Mutations of a solution that are right too, by exercise: a pattern of what is wrong with them elsewhere."""


def wrong_answers(right: Any, name: str) -> Iterator[Answer]:
    """Generic ones, mutations, and what only some exercises can be given."""
    yield from generic()
    for wrong, answer in mutations(right):
        if not re.fullmatch(STILL_RIGHT.get(name, "(?!)"), wrong):
            yield wrong, answer
    if name in ("first.one", "capture.mend", "others.pattern", "tour.write"):
        yield "in several graphs", breaking(right)
    if name == "training.accumulate":
        yield "called twice", twice_called(right)


def judged(context: Context) -> Iterator[tuple[str, bool, str]]:
    """Each wrong answer, with what the judge says of it."""
    for place in context.readers:
        for wrong, answer in wrong_answers(context.arguments[place], context.name):
            arguments = [*context.arguments]
            arguments[place] = answer
            torch._dynamo.reset()
            with contextlib.redirect_stdout(io.StringIO()):
                said = check(context.name, *arguments)
            yield wrong, said.passed, said.says


if __name__ == "__main__":
    source = Path(sys.argv[1]).resolve()
    for context in contexts(source, sys.argv[2:] or exercises_of(source)):
        right = check(context.name, *context.arguments)
        row = {"exercise": context.name, "right": (right.passed, right.says), "wrong": list(judged(context))}
        print(f"exercise {json.dumps(row)}", flush=True)
