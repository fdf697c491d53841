"""A pass: a named step from one value to the next; and how a row of them is run, each with its record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from nbcompile.compiler.loop_ir.nodes import Loop
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder
from nbcompile.targets import Target

Kernel = TypeVar("Kernel")


@dataclass(frozen=True)
class Apart:
    """What of a graph is not compiled as it could be, and why: loops (by their names) that are kernels of
    their own, and nodes (by their ids) that ATen runs."""

    alone: Mapping[str, str] = field(default_factory=dict)
    called: Mapping[str, str] = field(default_factory=dict)


Failed = tuple[tuple[Loop, ...], Exception]
"""The loops of a kernel, and what was raised of it."""


def each_kernel(kernels: Iterable[Sequence[Loop]], work: Callable[[int], Kernel]) -> list[Kernel]:
    """What ``work`` makes of each kernel, by its place; ``kernels`` are the loops of each. Raises the first
    error of all, of which :func:`failed_kernels` then tells each kernel that failed."""
    made: list[Kernel] = []
    failed: list[Failed] = []
    for place, loops in enumerate(kernels):
        try:
            made.append(work(place))
        except Exception as error:
            failed.append((tuple(loops), error))
    if failed:
        first = failed[0][1]
        first._failed_kernels = tuple(failed)  # type: ignore[attr-defined]
        raise first
    return made


def failed_kernels(error: Exception) -> tuple[Failed, ...]:
    """The kernels that an error is about; none if it is about another thing."""
    return getattr(error, "_failed_kernels", ())


@dataclass(frozen=True)
class Setting:
    """What a pass is told beside the value that it takes.

    ``here`` has the numbers of the GPU that code is made for, where there is one, ``products`` what makes its
    matrix products where there is a choice (:class:`nbcompile.compiler.products.Products`), ``vector_math``
    the C functions that have a SIMD version here; with ``apart`` no input is overwritten where a kernel makes
    its new value; ``apart_from`` is what has failed so far. ``said`` is what the pass itself adds to its
    record.
    """

    options: Options
    recorder: Recorder
    here: Target | None = None
    products: Any = None
    vector_math: frozenset[str] = frozenset()
    apart: bool = False
    apart_from: Apart = field(default_factory=Apart)
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
