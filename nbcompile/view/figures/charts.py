"""The charts of a record by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nbcompile.errors import MeasureError
from nbcompile.near import did_you_mean
from nbcompile.record.compilation import Compilation
from nbcompile.view.figures import contestants, kernels

if TYPE_CHECKING:
    import plotly.graph_objects

CHARTS: dict[str, tuple[Callable[[Compilation, str], plotly.graph_objects.Figure | None], str]] = {
    "times": (contestants.calls_of_all, "nothing was timed"),
    "samples": (contestants.samples_of_all, "nothing was timed"),
    "payoff": (contestants.pays_off, "no compile was timed beside eager"),
    "calls": (kernels.in_order, "it has no kernels or library calls"),
    "roofline": (kernels.under_the_roof, "no kernel's chip has known rates"),
    "errors": (kernels.by_node, "no node was checked: nbcompile.check makes such records"),
}
"""Each with why a record may have none."""


def plot(compilation: Compilation, chart: str, what: str) -> plotly.graph_objects.Figure:
    """See :meth:`nbcompile.record.compilation.Compilation.plot`."""
    if chart and chart not in CHARTS:
        raise MeasureError(
            f"{chart!r} is no chart of a record.",
            advice=f"{did_you_mean(str(chart), CHARTS)}Charts: {', '.join(CHARTS)}.",
        )
    for make, _ in (CHARTS[chart],) if chart else CHARTS.values():
        figure = make(compilation, what)
        if figure is not None:
            return figure
    why = CHARTS[chart][1] if chart else "it holds no times and no kernels"
    raise MeasureError(f"there is nothing to draw of this record: {why}.")
