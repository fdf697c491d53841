"""What is said of a ``%%compile`` line that cannot be meant: with the nearest name that can."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, NoReturn

from IPython.core.error import UsageError

from nbcompile.near import did_you_mean

_FLAG = re.compile(r"unrecognized arguments: (--?[\w-]+)")
_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
OF_A_RECORD = ("compare", "save", "into", "show", "mode_diff", "train", "live", "doctor", "check")
"""Flags that say what to do with the record of a call: a callable has none before it is called."""


def helpful(parser: argparse.ArgumentParser) -> Callable[[str], NoReturn]:
    """What a parser does with an error: a UsageError that names what is near."""

    def error(message: str) -> NoReturn:
        flag, choice = _FLAG.search(message), _CHOICE.search(message)
        meant = ""
        if flag:
            meant = did_you_mean(flag[1], parser._option_string_actions, 1)
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


def _is_given(value: Any) -> bool:
    return value not in (None, False, "", [])
