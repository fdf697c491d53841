"""Functions that stand in other cells of the session, or in files of the user's: their text, and what they do
with that text mended."""

from __future__ import annotations

import gc
import inspect
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from nbcompile.bench.measure.code_objects import codes, is_users

_LARGEST = 100_000
"""Characters of a file that is mended."""


class NotInPlaceError(Exception):
    """The functions of a text cannot do what another text says without being defined anew; says why."""


@dataclass(frozen=True)
class Mended:
    """While it is entered, each function runs its new code: (function, code that it has, new code)."""

    swaps: tuple[tuple[FunctionType, CodeType, CodeType], ...] = ()

    def __enter__(self) -> None:
        for function, _old, new in self.swaps:
            function.__code__ = new

    def __exit__(self, *_: object) -> None:
        for function, old, _new in self.swaps:
            function.__code__ = old


@dataclass(frozen=True)
class OtherCell:
    """A cell that ran before, or a file that was imported: what users call it, its text as typed, and the
    file that its functions name."""

    name: str
    text: str
    file: str

    @property
    def starts(self) -> int:
        """The first line (1-based) that is Python: a cell magic stands above."""
        return 1 + next(
            (at for at, line in enumerate(self.text.split("\n")) if line and not line.startswith("%%")), 0
        )

    def mended(self, text: str) -> Mended:
        """Every function that this cell defined, to run the code of ``text``.

        Raises :class:`NotInPlaceError` where that takes more than other code: a function that is new, gone,
        or takes other variables from around it.
        """
        before, after = self._codes(self.text), self._codes(text)
        names = before.keys() | after.keys()
        changed = {name for name in names if not _same(before.get(name), after.get(name))}
        inner = {name for name in changed if any(name.startswith(f"{other}.<locals>.") for other in changed)}
        swaps = []
        for each in _functions_of(self.file):
            new = after.get(each.__code__.co_qualname)
            # Those that are the same but for their lines too: what breaks there is looked up by line.
            if new is not None and new.co_freevars == each.__code__.co_freevars:
                swaps.append((each, each.__code__, new))
        missed = sorted(changed - inner - {old.co_qualname for _, old, _ in swaps})
        if missed:
            raise NotInPlaceError(f"{self.name if '<' in missed[0] else missed[0]} has to run anew for it")
        return Mended(tuple(swaps))

    @property
    def is_as_it_ran(self) -> bool:
        """Whether its functions still do what its text says."""
        codes = self._codes(self.text)
        # Dynamo's continuations too, whose names are not in any text.
        there = [each.__code__ for each in _functions_of(self.file)]
        return all(_same(code, codes[code.co_qualname]) for code in there if code.co_qualname in codes)

    def _codes(self, text: str) -> dict[str, CodeType]:
        lines = text.split("\n")
        top = compile("\n".join([""] * (self.starts - 1) + lines[self.starts - 1 :]), self.file, "exec")
        return {each.co_qualname: each for each in codes(top)}


def _functions_of(file: str) -> Iterator[FunctionType]:
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == file:  # of a weak proxy too
            yield each


def _same(one: CodeType | None, other: CodeType | None) -> bool:
    """Whether two codes do the same: lines aside, and for what is no function (a class, a cell) what it
    defines."""
    if one is None or other is None:
        return False
    function = bool(one.co_flags & inspect.CO_OPTIMIZED)
    facts = [(each.co_code, each.co_names, each.co_varnames, each.co_freevars) for each in (one, other)]
    if facts[0] != facts[1] or len(one.co_consts) != len(other.co_consts):
        return False
    return all(
        not function or _same(left, right)
        if isinstance(left, CodeType) and isinstance(right, CodeType)
        else (type(left), left) == (type(right), right)
        for left, right in zip(one.co_consts, other.co_consts, strict=True)
    )


def other_cell(shell: Any, file: str) -> OtherCell | None:
    """The cell of this session whose functions name ``file``; None where it is a file, or its text is not all
    Python (``%magic``, ``!command``) or gone."""
    number = getattr(getattr(shell, "compile", None), "_filename_map", {}).get(file)
    ran = "".join(linecache.getlines(file)).rstrip("\n")
    if number is None or not ran:
        return None
    history = getattr(getattr(shell, "history_manager", None), "input_hist_raw", [])
    typed = history[number].rstrip("\n") if 0 < number < len(history) else ""
    if typed.startswith("%%") and typed.split("\n")[1:] == ran.split("\n")[1:]:
        return OtherCell(f"In [{number}]", typed, file)
    # IPython compiled what was typed, but for lines that it rewrote.
    return None if "get_ipython()" in ran else OtherCell(f"In [{number}]", ran, file)


def other_file(file: str) -> OtherCell | None:
    """A Python file of the user's that was imported, and is as it was then; None for one that belongs to
    Python or to an installed package, which nobody rewrites for a notebook, and for a very large one: its
    text becomes part of the record."""
    if not is_users(file):
        return None
    try:
        found = OtherCell(Path(file).name, Path(file).read_text(encoding="utf-8").rstrip("\n"), file)
        return found if len(found.text) <= _LARGEST and found.is_as_it_ran else None
    except (OSError, SyntaxError, ValueError):
        return None
