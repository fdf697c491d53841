"""A pass: a named step from one value to the next; and how a row of them is run, each with its record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nbcompile.options import Options
from nbcompile.record.recorder import Recorder
from nbcompile.targets import Target


@dataclass(frozen=True)
class Setting:
    """What a pass is told beside the value that it takes.

    ``here`` has the numbers of the GPU that code is made for, where there is one, ``products`` what makes its
    matrix products where there is a choice (:class:`nbcompile.compiler.products.Products`), ``vector_math``
    the C functions that have a SIMD version here; with ``apart`` no input is overwritten where a kernel makes
    its new value. ``said`` is what the pass itself adds to its record.
    """

    options: Options
    recorder: Recorder
    here: Target | None = None
    products: Any = None
    vector_math: frozenset[str] = frozenset()
    apart: bool = False
    said: list[str] = field(default_factory=list)

    @property
    def chip(self) -> Target:
        """What code is made for."""
        return self.options.chip if self.here is None else self.here


@dataclass(frozen=True)
class Pass:
    """``run(value, setting)`` gives the next value: another form of the graph, whose id then ends in
    ``makes`` (``"loops"``), or the same form, changed."""

    name: str
    run: Callable[[Any, Setting], Any]
    makes: str = ""


def places(passes: Sequence[Pass], id: str, start: str = "") -> Iterator[tuple[Pass, str, str]]:
    """Each pass with the id of what it takes and of what it makes, for the graph ``id`` (``"g0.fw"``) in the
    form ``start``."""
    at = f"{id}.{start}" if start else id
    for step in passes:
        before, at = at, f"{id}.{step.makes}" if step.makes else at
        yield step, before, at


def run(passes: Sequence[Pass], value: Any, id: str, setting: Setting, start: str = "") -> list[Any]:
    """What each of the passes makes, in order; each leaves a PassRecord, also one that raises."""
    made = []
    for step, before, after in places(passes, id, start):
        with setting.recorder.step(step.name, before, after) as said:
            value = step.run(value, replace(setting, said=said))
        made.append(value)
    return made
