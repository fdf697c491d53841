"""What is said of a ``%%compile`` line that cannot be meant: with the nearest name that can."""

from __future__ import annotations

import argparse
import ast
import keyword
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from IPython.core.error import UsageError
from IPython.core.getipython import get_ipython

from nbcompile.near import did_you_mean

_FLAG = re.compile(r"unrecognized arguments: (--?[\w-]+)")
_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
_CALLED_OTHERWISE = {"--no-time": "--no-bench", "--no-timing": "--no-bench", "--notime": "--no-bench"}
"""What is looked for under another name, and is like none in its letters."""
OF_A_RECORD = ("compare", "save", "into", "show", "mode_diff", "train", "live", "doctor", "check")
"""Flags that say what to do with the record of a call: a callable has none before it is called."""


def helpful(parser: argparse.ArgumentParser) -> Callable[[str], NoReturn]:
    """What a parser does with an error: a UsageError that names what is near."""

    def error(message: str) -> NoReturn:
        flag, choice = _FLAG.search(message), _CHOICE.search(message)
        meant = ""
        if flag:
            other = _CALLED_OTHERWISE.get(flag[1])
            near = did_you_mean(flag[1], parser._option_string_actions, 1)
            meant = f"Did you mean {other}?" if other else near
        elif choice:
            meant = did_you_mean(choice[1], re.findall(r"[\w:.-]+", choice[2]))
        raise UsageError(f"{message}. {meant}".strip() if meant else message)

    return error


def check_callable(parsed: argparse.Namespace, expression: str) -> None:
    """UsageError for flags that ``%compile`` cannot follow where it is given no call."""
    given: list[str] = [name for name in OF_A_RECORD if _is_given(getattr(parsed, name))]
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise UsageError(f"{flags} wants a call, e.g. %compile {expression}(x)")


class DynamicAction(argparse.Action):
    """``--dynamic`` and ``--no-dynamic``, of which one line has one."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: Any = None
    ) -> None:
        asked = option == "--dynamic"
        if getattr(namespace, self.dest) not in (None, asked):
            parser.error("--dynamic and --no-dynamic contradict each other: give one of them")
        setattr(namespace, self.dest, asked)


def check_kept(parsed: argparse.Namespace) -> None:
    """UsageError where what a cell leaves could not be kept as the line says, before the cell runs."""
    if parsed.save:
        file = Path(parsed.save).expanduser()
        if file.suffix not in (".json", ".html"):
            raise UsageError(f"--save {parsed.save}: the name must end in .json or .html")
        if not file.parent.is_dir():
            raise UsageError(f"--save {parsed.save}: there is no folder {file.parent}")
    shell = get_ipython()
    known = shell.user_ns if shell is not None else {}
    for flag, name in (("--into", parsed.into), ("--sweep-into", parsed.sweep_into)):
        if name and (not name.isidentifier() or keyword.iskeyword(name)):
            raise UsageError(f"{flag} {name}: not a Python name")
        if name and isinstance(known.get(name), ModuleType):
            raise UsageError(f"{flag} would overwrite the module {name}: take another name")


def check_timed(parsed: argparse.Namespace, sweeps: bool) -> None:
    """UsageError for flags of times where the cell is not timed, and for what a cell does not take."""
    if parsed.ranks_stop:
        raise UsageError("--ranks-stop is for %compile, with one %, and takes no expression")
    others = sweeps or parsed.mode_diff or parsed.doctor or parsed.check or parsed.interpret or parsed.ranks
    if parsed.no_bench and parsed.compare and not others:
        raise UsageError("--compare says what is timed, and --no-bench that nothing is: leave one out")


def refuse_ranks(parsed: argparse.Namespace) -> None:
    """UsageError for ``%compile --ranks N EXPRESSION``, which would run on no rank."""
    if parsed.ranks:
        raise UsageError("--ranks runs a cell: write %%compile --ranks N in its first line")


def no_expression(rest: str) -> UsageError:
    """What is wrong with a line of ``%compile`` whose ``rest`` is no expression."""
    try:
        ast.parse(rest)
    except SyntaxError as wrong:
        return UsageError(f"{rest} is no Python: {wrong.msg}")
    wants = "%compile wants an expression, e.g. %compile f(x)"
    return UsageError(f"{wants}, and this is a statement: {rest}. Write %%compile above it, in a cell")


def _is_given(value: Any) -> bool:
    return value not in (None, False, "", [])
