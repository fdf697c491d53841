"""What a sweep returns: its points with their records, as a table, a plot, a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nbcompile.bench.sweep.grid import Grid, Point
from nbcompile.bench.sweep.point import Outcome
from nbcompile.bench.sweep.table import COUNTS, rows
from nbcompile.errors import MeasureError
from nbcompile.record.compilation import Compilation

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects


class Records(Mapping[Point, Compilation]):
    """The records of the points that have one, by point, or by the number of its row in the table."""

    def __init__(self, outcomes: Mapping[Point, Outcome]) -> None:
        self._points = tuple(outcomes)
        self._found = {point: o.record for point, o in outcomes.items() if o.record is not None}

    def __getitem__(self, key: Point | int) -> Compilation:
        return self._found[self._points[key] if isinstance(key, int) else key]

    def __iter__(self) -> Iterator[Point]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class Sweep:
    """The outcome of every point of a grid.

    ``outcomes`` has a status, a reason and a record for each; ``records`` only those that have a record.
    ``notes`` say what did not go as asked, ``interrupted`` whether points are left.
    """

    def __init__(
        self,
        grid: Grid,
        outcomes: Mapping[Point, Outcome],
        keys: Mapping[Point, str],
        notes: tuple[str, ...] = (),
        interrupted: bool = False,
    ) -> None:
        self.grid = grid
        self.outcomes = dict(outcomes)
        self.notes, self.interrupted = notes, interrupted
        self._keys = dict(keys)

    @property
    def points(self) -> tuple[Point, ...]:
        """In the order of the table's rows."""
        return tuple(self.outcomes)

    @property
    def records(self) -> Records:
        """The Compilations, by point or number of row."""
        return Records(self.outcomes)

    def record(self, **wanted: Any) -> Compilation:
        """The record of the one point that has these values, e.g. ``record(backend="inductor", B=8)``.
        MeasureError where none has them, or several."""
        found = [
            point
            for point in self.points
            if all(str(point.get(key)) == str(value).removeprefix("torch.") for key, value in wanted.items())
        ]
        if len(found) != 1:
            raise MeasureError(
                f"{len(found)} points have {wanted}.",
                advice=f"Name one by its {', '.join(key for key, _ in self.grid.axes)}.",
            )
        record = self.outcomes[found[0]].record
        if record is None:
            raise MeasureError(f"{found[0]} has no record: {self.outcomes[found[0]].reason}")
        return record

    def rows(self) -> list[dict[str, Any]]:
        """The table as plain values, a mapping a row."""
        return rows(self.outcomes)

    def table(self) -> pandas.DataFrame:
        """A tidy table, a row a point: the grid's keys, then what :mod:`nbcompile.bench.sweep.table` lists.
        MeasureError where pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise MeasureError(
                "a sweep's table needs pandas, which is not installed.",
                advice="Run: pip install pandas",
            ) from error
        made = pandas.DataFrame(self.rows())
        numbers = [name for name in made.columns if name not in dict(self.grid.axes)]
        for name in numbers:
            if name not in ("status", "reason"):
                made[name] = made[name].astype("Int64" if name in (*COUNTS, "threads") else "float64")
        return made

    def advice(self) -> str:
        """Which compiler to use, in one sentence, with the numbers behind it."""
        from nbcompile.bench.sweep.advice import advice

        return advice(self.outcomes)

    def plot(
        self, x: str = "", y: str = "steady", color: str = "backend", facet: str = ""
    ) -> plotly.graph_objects.Figure:
        """A column of the table over a key of the grid, a line for each value of ``color``, a panel for each
        of ``facet``; a menu picks one value of another key. MeasureError where plotly is not installed."""
        from nbcompile.bench.sweep.plot import plot

        return plot(dict(self.grid.axes), self.rows(), x, y, color, facet)

    def by_key(self) -> dict[str, Outcome]:
        """Outcomes by what each point is known by in a store."""
        return {self._keys[point]: outcome for point, outcome in self.outcomes.items()}

    def __len__(self) -> int:
        return len(self.outcomes)

    def __repr__(self) -> str:
        from nbcompile.bench.sweep.shown import to_text

        return to_text([key for key, _ in self.grid.axes], self.outcomes, self.advice(), self.notes)

    def _repr_html_(self) -> str:
        from nbcompile.bench.sweep.shown import to_html

        axes = [key for key, _ in self.grid.axes]
        return to_html(axes, self.outcomes, self.advice(), self.notes)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}
