"""Results of searches on disk: a config is found once for a kernel, a chip and a class of sizes.

The name of a result is made of the function's text with its own variables renamed: the same kernel in
another layer, or in another graph, is searched for once.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from nbcompile.compiler.runtime.cache import DiskCache, Entry, from_plain, key
from nbcompile.compiler.runtime.gpu.build import assumptions
from nbcompile.compiler.runtime.gpu.grid import is_pointer
from nbcompile.compiler.runtime.gpu.text import canonical
from nbcompile.compiler.runtime.gpu.tools import triton_version
from nbcompile.compiler.stages import Config, KernelSource, Launch
from nbcompile.targets import Target

_FORMAT = "nbcompile-autotune-1"
_FILE = "search.json"


@dataclass(frozen=True)
class Tried:
    """One candidate: its text, median seconds (None: it has none, see ``note``)."""

    candidate: str
    seconds: float | None
    note: str = ""


@dataclass(frozen=True)
class Result:
    """What a search found: the config to use, and everything that was tried. ``complete``: the budget did
    not cut it short."""

    winner: Config
    tried: tuple[Tried, ...]
    complete: bool = True


def search_key(source: KernelSource, launch: Launch, chip: Target) -> str:
    """The name of a launch's search. Equal for functions that differ in names alone, for sizes (of a
    dynamic graph) of about the same magnitude."""
    sizes = [(item.name, item.hint.bit_length()) for item in launch.arguments if not is_pointer(item.type)]
    return key(
        _FORMAT, canonical(source.source, launch), [item.type for item in launch.arguments], sizes,
        assumptions(launch), launch.grid, launch.configs, launch.together,
        chip.name, chip.part, chip.multiprocessors, triton_version(),
    )  # fmt: skip


def find(cache: DiskCache, name: str, launch: Launch, budget: float) -> Result | None:
    """The stored result of a search: of a complete one, or of one cut short by the same budget (seconds)."""

    def made(entry: Entry) -> Result:
        result: Result = from_plain(Result, json.loads(entry.text(_FILE)))
        if set(result.winner.constants) != set(launch.configs[0].constants):
            raise ValueError("its constants are not those of the launch")
        return result

    return cache.find(name, made) or cache.find(_cut_short(name, budget), made)


def keep(cache: DiskCache, name: str, result: Result, budget: float) -> None:
    """Store a result; one cut short is for the same budget only."""
    place = name if result.complete else _cut_short(name, budget)
    cache.put(place, {_FILE: json.dumps(asdict(result)).encode()})


def _cut_short(name: str, budget: float) -> str:
    return key(name, float(budget))
