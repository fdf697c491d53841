"""What the doctor found: what makes a program faster here, by how much, what does not, and what was not
tried.

Plain data: :func:`nbcompile.doctor` makes it, and :mod:`nbcompile.view.reports.doctor` shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nbcompile.record.shown import Shown, figure_of

if TYPE_CHECKING:
    import plotly.graph_objects

Effect = Literal["same", "precision", "work"]
"""What a change does to the numbers: none but rounding, fewer digits, or it is other work (a larger
batch)."""
RowStatus = Literal[
    "pays",  # measured faster, its whole interval above 1, and right
    "level",  # no clear difference
    "slower",
    "differs",  # its numbers are wrong
    "failed",  # it raised, or did not compile
    "crashed",  # its process died
    "timeout",
]
LEAST = 1.03
"""Times as fast as the present state that something must be to be recommended: closer is a tie, however
narrow the interval, for one process differs from the next by as much."""


@dataclass(frozen=True)
class DoctorRow:
    """One thing that was tried, or several together.

    ``speedup`` is against the present state, which ran by turns with it in the same process (for more work:
    by the time of a sample); ``low`` and ``high`` are its 99 % interval. ``seconds`` is a call, ``compile``
    the first one. ``error`` and ``eager_error`` are the largest of its outputs against float64, where it
    changes the precision. ``peak_bytes``: what a call held at most, above what was held before it. ``option``
    goes on the magic line, ``diff`` into the cell. ``verified``: measured again, longer."""

    name: str
    effect: Effect
    status: RowStatus
    reason: str = ""
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: float | None = None
    present_seconds: float | None = None
    compile: float | None = None
    error: float | None = None
    eager_error: float | None = None
    peak_bytes: int | None = None
    option: str = ""
    diff: tuple[str, ...] = ()
    verified: bool = False


@dataclass(frozen=True)
class NotTried:
    """What was left out, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class DoctorReport(Shown):
    """``rows`` are what was tried: what pays first, what was measured again before what was measured once and
    the fastest first; then what does not. ``present`` is the state that they are held against, in words, with
    its time, ``why`` where that time goes."""

    report = "doctor"
    function: str
    present: str
    present_seconds: float | None = None
    rows: tuple[DoctorRow, ...] = ()
    left: tuple[NotTried, ...] = ()
    why: str = ""
    seconds: float = 0.0
    budget: float = 0.0
    interrupted: bool = False

    @property
    def pays(self) -> tuple[DoctorRow, ...]:
        """What pays without changing what the numbers mean: first what was measured again."""
        return tuple(row for row in self.rows if row.status == "pays" and row.effect == "same")

    @property
    def less_precise(self) -> tuple[DoctorRow, ...]:
        """What pays and costs digits: first what was measured again."""
        return tuple(row for row in self.rows if row.status == "pays" and row.effect == "precision")

    @property
    def more_work(self) -> tuple[DoctorRow, ...]:
        """What pays by the sample, with more of them a call."""
        return tuple(row for row in self.rows if row.status == "pays" and row.effect == "work")

    @property
    def best(self) -> DoctorRow | None:
        """The fastest that keeps the numbers and paid again when it was measured again; None: there is
        nothing to recommend."""
        return next((row for row in self.pays if row.verified), None)

    def plot(self) -> plotly.graph_objects.Figure:
        """What was tried, by what it gains, as a plotly figure. MeasureError where nothing ran."""
        return figure_of(self)

    def __repr__(self) -> str:
        best = self.best
        found = f"{best.name}: {best.speedup:.2f}×" if best and best.speedup else "nothing pays here"
        return f"<DoctorReport of {self.function}: {found}>"
