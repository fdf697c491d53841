"""How far a class is: each participant's verdicts in a file of their own, and the instructor's sheet of them.

Nothing is kept unless a folder is named, and nothing leaves the machine but by that folder. ``keeping``
writes a participant's file, ``reading`` reads those of a class, of whomever they are, ``sheet`` adds them up;
``text`` and ``page`` show it.
"""

from __future__ import annotations

from nbcompile.workshop.progress.keeping import keep_progress
from nbcompile.workshop.progress.sheet import ClassSheet, class_sheet

__all__ = ["ClassSheet", "class_sheet", "keep_progress"]
