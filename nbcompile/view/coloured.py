"""A record's text in the colours of a terminal: the verdict and titles bold, each mark in its own colour."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

_BOLD, _DIM, _RED, _GREEN, _YELLOW, _BLUE = "1", "2", "31", "32", "33", "34"
_OF_MARK = {"+": _GREEN, "=": _BLUE, "!": _YELLOW, "x": _RED, "~": _YELLOW, "↻": _YELLOW}
_MARKED = re.compile(r"^( {0,2})([+=!x~↻])( .*)$")
_QUIET = re.compile(r"^ +(↳|→|\.\.\.|…)")


class Terminal(Protocol):
    def isatty(self) -> bool: ...


def has_colours(stream: Terminal, environment: Mapping[str, str]) -> bool:
    """Whether to colour what is printed there: a terminal that can, and whose user does not mind
    (https://no-color.org). FORCE_COLOR is for what is shown in colour elsewhere, such as the log of a CI."""
    if environment.get("NO_COLOR"):
        return False
    return bool(environment.get("FORCE_COLOR")) or (stream.isatty() and environment.get("TERM") != "dumb")


def coloured(text: str) -> str:
    """``text`` (:func:`nbcompile.view.to_text`) with colours; without them it is what it was."""
    lines = text.split("\n")
    out, title = [], True
    for line in lines:
        mark = _MARKED.match(line)
        if title and line:
            line = _in(_BOLD, line)
        elif mark:
            line = f"{mark[1]}{_in(_OF_MARK[mark[2]], mark[2])}{mark[3]}"
        elif _QUIET.match(line):
            line = _in(_DIM, line)
        title = not line
        out.append(line)
    return "\n".join(out)


def _in(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"
