"""Functions that stand in other cells of the session, or in files of the user's: their text, what they do
with that text mended, and which globals they read and write."""

from __future__ import annotations

import contextlib
import dis
import gc
import inspect
import linecache
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch

from nbcompile.bench.measure.code_objects import codes, is_users
from nbcompile.notebook.cell.inner_compiles import is_compiled

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


# -- what a cell's names lead to ------------------------------------------------------------------------


class ReachedGlobals:
    """Names that the functions and methods a cell may call read and write as globals.

    Found from the names the cell reads, through the functions, classes, modules and containers they
    hold, as far as these were defined in the notebook.
    """

    def __init__(self, names: Iterable[str], namespace: Mapping[str, Any]) -> None:
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.compiled: list[Any] = []  # what torch.compile has made of those that may be called
        self.constant: list[types.FunctionType] = []  # whose result Dynamo takes for a constant
        self.jax = False  # whether any of it is jax's
        self.keywords: set[str] = set()  # that its functions pass on
        self._namespace = namespace
        self._seen: set[int] = set()
        for name in names:
            self._follow(namespace.get(name))

    def _follow(self, value: Any) -> None:
        if id(value) in self._seen or len(self._seen) > _MAX_FOLLOWED:
            return
        self._seen.add(id(value))
        if is_compiled(value):
            self.compiled.append(value)
        self.jax = self.jax or is_jax(value)
        if isinstance(value, types.FunctionType) and vars(value).get("_dynamo_marked_constant"):
            self.constant.append(value)
        if isinstance(value, types.FunctionType):
            if value.__globals__ is self._namespace:
                self._read_code(value.__code__)
            for cell in value.__closure__ or ():
                with contextlib.suppress(ValueError):  # a variable not bound yet
                    self._follow(cell.cell_contents)
        elif isinstance(value, type):
            if value.__module__ == self._namespace.get("__name__"):
                self._follow_class(value)
        else:
            for item in _inside(value):
                self._follow(item)

    def _follow_class(self, kind: type) -> None:
        for base in kind.__mro__:
            for member in list(vars(base).values()) if base.__module__ == kind.__module__ else ():
                self._follow(getattr(member, "__func__", getattr(member, "fget", member)))

    def _read_code(self, code: types.CodeType) -> None:
        reads: set[str] = set()
        _collect(code, reads, self.writes)
        self.keywords |= {word for each in codes(code) for word in _keywords(each)}
        new = reads - self.reads
        self.reads |= new
        for name in new:
            self._follow(self._namespace.get(name))


_MAX_FOLLOWED = 2000


def is_jax(value: Any) -> bool:
    """Whether it is an array of jax, a function that it jitted, a module or anything else of its."""
    if isinstance(value, types.ModuleType):
        name = value.__name__
    elif isinstance(value, types.FunctionType | type):
        name = value.__module__ or ""
    else:
        name = type(value).__module__
    return name.partition(".")[0] in ("jax", "jaxlib")


def _inside(value: Any) -> Iterable[Any]:
    """What code a value may lead to."""
    if isinstance(value, types.MethodType):
        return (value.__self__, value.__func__)
    if isinstance(value, list | tuple | set):
        return list(value)[:_MAX_FOLLOWED]
    if isinstance(value, dict):
        return list(value.values())[:_MAX_FOLLOWED]
    if isinstance(value, torch.nn.Module):
        return {type(module) for module in value.modules()}
    return () if isinstance(value, torch.Tensor | types.ModuleType) else (type(value),)


def _keywords(code: types.CodeType) -> Iterable[str]:
    """The names of arguments in its calls, which Python keeps among the constants."""
    return (
        word for each in code.co_consts if isinstance(each, tuple) for word in each if isinstance(word, str)
    )


def _collect(code: types.CodeType, reads: set[str], writes: set[str]) -> None:
    for instruction in (found for each in codes(code) for found in dis.get_instructions(each)):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            reads.add(instruction.argval)
        elif instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            writes.add(instruction.argval)
