"""A cell as it is with a mend, as one function that can take the place of the cell's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nbcompile.notebook.cell.cell_run import CellPart
from nbcompile.notebook.cell.measuring import as_program
from nbcompile.notebook.cell.other_cells import Mended
from nbcompile.record.advice.coach import Mend

SHOWN = "_nbcompile_shown"
"""The name that the last line of a mended cell is bound to, where it is displayed."""


@dataclass(frozen=True)
class MendedProgram:
    """``fn(*arguments)`` gives what the cell's own parts give as one program (:func:`as_program`). Functions
    of other cells are mended in it while ``surroundings`` is entered."""

    mend: Mend
    fn: Callable[..., Any]
    arguments: tuple[Any, ...]
    surroundings: Mended


def mended_program(
    own: Sequence[CellPart], mended: Sequence[CellPart], mend: Mend, surroundings: Mended
) -> MendedProgram | None:
    """The parts of a mended cell in place of its own. None where the names that they bind do not tell which
    result is which: one that is bound twice, or that only one of them has."""
    wanted = [tuple(map(_called, part.function.results)) for part in own]
    made = [_called(name) for part in mended for name in part.function.results]
    names = [name for each in wanted for name in each]
    if not own or len(set(names)) < len(names) or len(set(made)) < len(made) or not set(names) <= set(made):
        return None
    fn, arguments = as_program(mended)
    is_one, was_one = (len(parts) == 1 and parts[0].grad_enabled for parts in (mended, own))

    def program(*given: Any) -> Any:
        found = fn(*given)
        results = dict(zip(made, found if is_one else [value for each in found for value in each]))
        packs = [tuple(results[name] for name in each) for each in wanted]
        return packs[0] if was_one else packs

    return MendedProgram(mend, program, arguments, surroundings)


def _called(name: str) -> str:
    return SHOWN if name.startswith("__value__") else name
