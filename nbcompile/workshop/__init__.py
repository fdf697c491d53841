"""Exercises of the workshop's notebooks, checked by code.

A notebook asks; its reader writes an answer and calls :func:`check`, which says whether it is right and, if
not, what to look at. Checkers compile and measure: none of them knows an answer by heart that the compiler
could be asked for. Each module here has the checkers of one notebook, ``judging`` what they have in common;
``docs/workshop.md`` says how to write one.
"""

from __future__ import annotations

from nbcompile.workshop.exercise import Exercise, Judgement, WrongAnswerError, check, exercise, exercises
from nbcompile.workshop.progress import ClassSheet, class_sheet, keep_progress

__all__ = [
    "ClassSheet",
    "Exercise",
    "Judgement",
    "WrongAnswerError",
    "check",
    "class_sheet",
    "exercise",
    "exercises",
    "keep_progress",
]
