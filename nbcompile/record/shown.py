"""The one door from the records to the views. It opens when something is shown: records are read without."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import plotly.graph_objects


class Shown:
    """A value that prints itself, and that a notebook shows: ``report`` names the module in
    ``nbcompile/view/reports/`` whose ``to_text`` and ``to_html`` do it."""

    report: ClassVar[str]

    def __str__(self) -> str:
        return str(_view(f"reports.{self.report}").to_text(self))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Its text too: IPython would print the repr where no HTML is shown."""
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        return str(_view(f"reports.{self.report}").to_html(self))


def chart_of(compilation: Any, chart: str, what: str) -> plotly.graph_objects.Figure:
    """A chart of a record, as a plotly figure."""
    return _view("figures.charts").plot(compilation, chart, what)


def figure_of(report: Shown) -> plotly.graph_objects.Figure:
    """What a report found, as a plotly figure."""
    return getattr(_view("figures.reports"), report.report)(report)


def explorer_of(compilation: Any) -> dict[str, Any]:
    """What a notebook shows of a record, by MIME type: the explorer."""
    bundle: dict[str, Any] = _view("").mime_bundle(compilation)
    return bundle


def _view(name: str) -> Any:
    return import_module(f"nbcompile.view.{name}".rstrip("."))
