"""Every option and mode of every backend: what ``nbcompile.list_options("inductor")`` shows."""

from __future__ import annotations

import dataclasses
import fnmatch
import inspect
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nbcompile.backends import registry
from nbcompile.errors import OptionError
from nbcompile.options import MODES, REPLAY_MODES, SEARCH_MODES, Options, unknown_option
from nbcompile.record.shown import Shown


@dataclass(frozen=True)
class Option:
    """One option of a backend: its type and default as Python writes them, the values to choose from where
    these are few, what its source says of it, and the value that each mode sets."""

    name: str
    type: str = ""
    default: str = ""
    about: str = ""
    values: tuple[str, ...] = ()
    modes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OptionTable(Shown):
    """The options of a backend. ``table["name"]`` is one, ``table.matching("autotune")`` fewer of them."""

    report = "options"
    backend: str
    options: tuple[Option, ...]

    def __iter__(self) -> Iterator[Option]:
        return iter(self.options)

    def __len__(self) -> int:
        return len(self.options)

    def __getitem__(self, name: str) -> Option:
        for option in self.options:
            if option.name == name:
                return option
        raise unknown_option(self.backend, name, [option.name for option in self.options])

    def check(self, names: Iterable[str]) -> None:
        """OptionError for a name that is not among them, unless the backend declares none at all."""
        for name in names if self.options else ():
            if not any(fnmatch.fnmatchcase(name, option.name) for option in self.options):
                raise unknown_option(self.backend, name, [option.name for option in self.options])

    def matching(self, pattern: str) -> OptionTable:
        """Those whose name is like ``pattern`` (``triton.*``), or with this word in name or description."""
        word = pattern.lower()
        if re.search(r"[*?\[]", word):
            found = [o for o in self.options if fnmatch.fnmatch(o.name.lower(), word)]
        else:
            found = [o for o in self.options if word in o.name.lower() or word in o.about.lower()]
        return OptionTable(self.backend, tuple(found))

    def __repr__(self) -> str:
        return str(self)


def list_options(backend: str = "nbcompile", pattern: str = "") -> OptionTable:
    """The options that ``-o NAME=VALUE`` and ``options=`` take for a backend; ``pattern`` as for
    :meth:`OptionTable.matching`. OptionError for an unknown backend. Needs no package of the backend but for
    Inductor's, which come with torch."""
    if backend == "nbcompile":
        found = _ours()
    elif backend == "inductor":
        from nbcompile.backends.inductor.config_options import inductor_options

        found = tuple(Option(**entry) for entry in inductor_options())
    else:
        if backend not in registry.backends():
            registry.check(backend)
        known = registry.backends().get(backend)
        found = tuple(Option(name, about=about) for name, about in (known.options if known else {}).items())
    table = OptionTable(backend, found)
    return table.matching(pattern) if pattern else table


def list_mode_options(mode: str | None = None, backend: str = "nbcompile") -> dict[str, Any]:
    """What a mode sets, by the option's name; without ``mode`` that of every mode. nbcompile's modes are no
    bundles of options: for these, what they switch on."""
    if backend == "nbcompile":
        modes: dict[str, dict[str, Any]] = {
            name: {
                **({"search": "configs of kernels, and matrix products"} if name in SEARCH_MODES else {}),
                **({"replay": "CUDA graphs"} if name in REPLAY_MODES else {}),
            }
            for name in MODES
        }
    elif backend == "inductor":
        import torch._inductor

        modes = {name: dict(set_) for name, set_ in torch._inductor.list_mode_options().items()}
    else:
        known = registry.backends().get(backend)
        if known is None:
            registry.check(backend)
        modes = {name: {} for name in (known.modes if known is not None else ("default",))}
    if mode is None:
        return modes
    if mode not in modes:
        raise OptionError(f"backend {backend!r} has no mode {mode!r}.", advice=f"Modes: {', '.join(modes)}.")
    return modes[mode]


def _ours() -> tuple[Option, ...]:
    """The fields of Options, described by its docstring."""
    about: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(Options.__doc__ or "").splitlines()[1:]:
        started = re.match(r"(\w+):\s+(.*)", line)
        if started:
            name, about[started[1]] = started[1], started[2]
        elif name and line.startswith(" "):
            about[name] += f" {line.strip()}"
    hints = typing.get_type_hints(Options)
    found = []
    for entry in dataclasses.fields(Options):
        if entry.name == "mode":
            continue
        values = typing.get_args(hints[entry.name]) if "Literal" in str(hints[entry.name]) else ()
        if hints[entry.name] is bool:
            values = ("true", "false")
        kind = hints[entry.name].__name__ if isinstance(hints[entry.name], type) else str(entry.type)
        found.append(Option(entry.name, kind, repr(entry.default), _plain(about.get(entry.name, "")), values))
    return tuple(found)


def _plain(text: str) -> str:
    """A docstring's text without its markup."""
    return re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")
