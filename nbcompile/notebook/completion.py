"""Tab completion of the ``%%compile`` line: flags, and values where they are known."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from nbcompile.backends.browse import list_mode_options, list_options
from nbcompile.errors import OptionError
from nbcompile.notebook.arguments import DTYPES, TARGETS
from nbcompile.view.facts.parts import PARTS

typed_matcher: Callable[[Any], Any] = context_matcher()
_LINE = re.compile(r"\s*%%?compile\s")


def matcher(flags: Iterable[str], backends: Callable[[], Iterable[str]]) -> Any:
    """A matcher for ``ip.Completer.custom_matchers``. ``flags`` are the option strings."""
    known = tuple(flags)

    @typed_matcher
    def compile_matcher(context: CompletionContext) -> SimpleMatcherResult:
        line = context.line_with_cursor[: context.cursor_position]
        if not _LINE.match(line):
            return SimpleMatcherResult(completions=[])
        typed = re.split(r"\s", line)[-1]
        before = line[: len(line) - len(typed)].split()
        # The completer replaces context.token, which may be shorter than the word (it splits at - and ,).
        prefix = typed[: len(typed) - len(context.token)] if typed.endswith(context.token) else ""
        found = [
            word[len(prefix) :] for word in _words(typed, before, known, backends) if word.startswith(typed)
        ]
        return SimpleMatcherResult(
            completions=[SimpleCompletion(text=word, type="param") for word in found], suppress=bool(found)
        )

    return compile_matcher


def _words(
    typed: str, before: list[str], flags: tuple[str, ...], backends: Callable[[], Iterable[str]]
) -> list[str]:
    option = before[-1] if before else ""
    done, comma, _ = typed.rpartition(",")
    if option == "--backend":
        return sorted(backends())
    if option == "--mode":
        return [done + comma + name for name in _modes(_backend(before))]
    if option == "--dtype":
        return [done + comma + name for name in DTYPES]
    if option == "--target":
        return list(TARGETS)
    if option == "--compare":
        return [done + comma + name for name in sorted({"eager", *backends()})]
    if option == "--show":
        return [done + comma + name for name in PARTS]
    if option == "--mode-diff":
        return [done + comma + name for name in _modes(_backend(before))]
    if option == "-o":
        return _options(_backend(before), typed)
    return sorted(flags) if typed.startswith("-") or not typed else []


def _backend(before: list[str]) -> str:
    """The backend that the line names, or the default one."""
    named = [value for flag, value in itertools.pairwise(before) if flag == "--backend"]
    return named[-1] if named else "nbcompile"


def _modes(backend: str) -> list[str]:
    try:
        return list(list_mode_options(backend=backend))
    except OptionError:
        return []


def _options(backend: str, typed: str) -> list[str]:
    """``NAME=`` for each option of the backend; after the sign its values, where these are few."""
    try:
        table = list_options(backend)
    except OptionError:
        return []
    name, equals, _ = typed.partition("=")
    if not equals:
        return [f"{option.name}=" for option in table if "*" not in option.name]
    return [f"{name}={value}" for option in table if option.name == name for value in option.values]
