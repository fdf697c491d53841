"""What was compiled in this session: an index, and of each cell what has changed since its last run.

Records are kept as they are, the latest ones, up to :data:`NODES` nodes in all; none of them holds a tensor.
A cell is known again by the name that its front end gives it: JupyterLab's cells keep theirs while they are
edited. Where there are none, in a terminal, the index is all there is.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from nbcompile.api import Compiled
from nbcompile.errors import OptionError, PlayError
from nbcompile.record.compilation import Compilation, Since
from nbcompile.record.diff import changes
from nbcompile.record.matching import RecordedProgram
from nbcompile.record.measured import difference
from nbcompile.units import clip, count_text, ratio_text, seconds_text
from nbcompile.view.facts.facts import own_measurement, verdict
from nbcompile.view.reports import report
from nbcompile.view.reports.report import Section

NODES = 120_000
"""Graph nodes, of all records together, beyond which the oldest records are dropped."""
COMPARED = 20_000
"""Nodes of a record beyond which only its kernels and times are held against the run before."""
TOLD = 3  # changes besides kernels and time
DRIFT = 0.9
"""What a machine may be slower at another time: two runs that are closer are alike."""


@dataclass(frozen=True)
class SessionRun:
    """One compilation. ``cell``: what the front end calls its cell, or empty; ``when``: seconds since
    1970."""

    record: Compilation
    cell: str
    when: float


class SessionRuns:
    """The last compilations of a session, in order."""

    def __init__(self) -> None:
        self._runs: OrderedDict[int, SessionRun] = OrderedDict()  # a number each: a text run again has one id
        self._last: dict[str, int] = {}
        self._numbers = itertools.count()
        self._followed: list[tuple[float, weakref.ref[Compiled]]] = []

    def since(self, cell: str, record: Compilation) -> Compilation:
        """``record``, with what has changed since the last run of this cell."""
        before = self._runs.get(self._last.get(cell, -1)) if cell else None
        if before is None or not (record.graphs or before.record.graphs):
            return record
        return dataclasses.replace(record, since=changed_since(before.record, record))

    def remember(self, cell: str, record: Compilation) -> None:
        """``record`` is what this cell was last; a call of ``%compile`` has none."""
        number = next(self._numbers)
        self._runs[number] = SessionRun(record, cell, time.time())
        if cell:
            self._last[cell] = number
        nodes = sum(_size(run.record) for run in self._runs.values())
        while nodes > NODES and len(self._runs) > 1:
            nodes -= _size(self._runs.popitem(last=False)[1].record)
        self._last = {name: number for name, number in self._last.items() if number in self._runs}

    def record(self, id: str) -> Compilation:
        """A record that is still held, by its id: of several the last. PlayError where there is none."""
        found = next((run.record for run in reversed(self._runs.values()) if run.record.id == id), None)
        if found is None:
            raise PlayError(
                "that run is no longer held by this kernel.", advice="Undo the edit and run again."
            )
        return found

    def followed(self, compiled: Compiled) -> Compiled:
        """A callable, whose record grows with its calls: listed while it lives, once it compiled."""
        self._followed = [(when, each) for when, each in self._followed if each() is not None]
        self._followed.append((time.time(), weakref.ref(compiled)))
        return compiled

    def index(self) -> RunIndex:
        """All that is held, the first first."""
        living = [(when, made) for when, each in self._followed if (made := each()) is not None]
        found = [SessionRun(made.compilation, "", when) for when, made in living]
        every = [*self._runs.values(), *(run for run in found if run.record.graphs)]
        return RunIndex(tuple(sorted(every, key=lambda run: run.when)))


@dataclass(frozen=True)
class RunIndex:
    """The compilations of a session as a table; ``index[n]`` is the record of row ``n``."""

    runs: tuple[SessionRun, ...]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Compilation]:
        return (run.record for run in self.runs)

    def __getitem__(self, row: int) -> Compilation:
        try:
            return self.runs[row].record
        except IndexError:
            raise OptionError(f"there is no row {row}: this index has {len(self.runs)}.") from None

    def __repr__(self) -> str:
        return report.to_text(self._title(), [self._table()])

    def _repr_html_(self) -> str:
        return report.to_html(self._title(), [self._table()])

    def _title(self) -> str:
        return f"{count_text(len(self.runs), 'compilation')} of this session"

    def _table(self) -> Section:
        rows = []
        for row, run in enumerate(self.runs):
            record = run.record
            source = record.cell.source if record.cell is not None else ""
            first = next((line for line in source.splitlines() if line and not line.startswith("%")), "")
            ours, _ = own_measurement(record)
            rows.append(
                (
                    str(row),
                    _named(record),
                    time.strftime("%H:%M:%S", time.localtime(run.when)),
                    clip(first, 48),
                    f"{record.backend} {record.mode}".removesuffix(" default"),
                    str(len(record.kernels)),
                    seconds_text(ours.median if ours and ours.counts else None),
                    clip(verdict(record).text, 160),
                )
            )
        heads = ("", "cell", "at", "first line", "compiler", "kernels", "a call", "")
        return Section(heads=heads, rows=tuple(rows), right=(0, 5, 6))


def changed_since(before: Compilation, after: Compilation) -> Since:
    """What is different in ``after``, in a few words each: kernels, time, and what made the difference."""
    told = [_kernels(before, after), *_time(before, after)]
    if _size(before) + _size(after) <= 2 * COMPARED:
        found = [
            change
            for change in changes(RecordedProgram(before), RecordedProgram(after))
            if change.kind not in ("kernels", "eager") and change.verdict != "note"
        ]
        told += [f"{change.where}: {change.message}" if change.where else change.message
                 for change in found[:TOLD]]  # fmt: skip
        if len(found) > TOLD:
            told.append(f"{count_text(len(found) - TOLD, 'change')} more")
    return Since(before.id, _named(before), tuple(told))


def _kernels(before: Compilation, after: Compilation) -> str:
    was, now = len(before.kernels), len(after.kernels)
    return f"{count_text(now, 'kernel')} as before" if was == now else f"{was} → {count_text(now, 'kernel')}"


def _time(before: Compilation, after: Compilation) -> list[str]:
    """How the time of a call compares: the two were not taken side by side, so only a clear difference is
    one."""
    (one, _), (two, _) = own_measurement(before), own_measurement(after)
    if one is None or two is None or not (one.counts and two.counts and one.median and two.median):
        return []
    times = f"{seconds_text(one.median)} → {seconds_text(two.median)}"
    found = difference(two, one, DRIFT)
    if found in ("same", "unclear"):
        return [f"no clear difference in time ({times})"]
    ratio = one.median / two.median if found == "faster" else two.median / one.median
    return [f"{ratio_text(ratio)} {found} ({times})"]


def _named(record: Compilation) -> str:
    count = record.cell.execution_count if record.cell is not None else None
    return f"In [{count}]" if count is not None else clip(record.backend, 20)


def _size(record: Compilation) -> int:
    return sum(len(graph.nodes) for graph in record.graphs) + sum(map(_size, record.peers))
