"""Contestants held against each other: one call of each, every sample, and when a compile has paid off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nbcompile.record.compilation import Compilation
from nbcompile.units import count_text, seconds_text, speed_text
from nbcompile.view.facts.timings import Timing, TimingRow, note, timings
from nbcompile.view.figures.style import (
    BAD,
    EAGER,
    LIBRARY,
    OWN,
    ROW,
    framed,
    library,
    plain,
    rows_axis,
    time_ticks,
)

if TYPE_CHECKING:
    import plotly.graph_objects

_MOST_POINTS = 400
"""Samples drawn of one contestant: more would only cover each other."""


def calls_of_all(compilation: Compilation, what: str) -> plotly.graph_objects.Figure | None:
    """A bar a contestant: the median of one call, its spread from p10 to p90. Who ran no compiled code has a
    row without a bar, which says so."""
    timing = _timing(compilation, what)
    if timing is None or not _timed(timing):
        return None
    go = library("a chart of times")
    rows = timing.rows
    numbers = _timed(timing)
    figure = go.Figure(
        go.Bar(
            orientation="h",
            x=[row.median for row in numbers],
            y=[rows.index(row) for row in numbers],
            width=0.56,
            marker={"color": [color(row) for row in numbers]},
            text=[plain(_said(row)) for row in numbers],
            textposition="outside",
            cliponaxis=False,
            error_x=_spread(numbers),
            hovertext=[plain(_hover(row)) for row in numbers],
            hoverinfo="text",
        )
    )
    for row in rows:
        if row not in numbers:
            figure.add_annotation(
                x=0, y=rows.index(row), xanchor="left", showarrow=False, font={"color": BAD},
                text=plain(note(row) or "not timed"),
            )  # fmt: skip
    most = max(row.median or 0.0 for row in numbers)
    ticks = time_ticks(0.0, most)
    figure.update_xaxes(range=[0, 1.3 * most], title_text="one call", **ticks)
    figure.update_yaxes(**rows_axis(row.name for row in rows))
    return framed(figure, f"{timing.what}: {timing.about}", 110 + ROW * len(rows), showlegend=False)


def samples_of_all(compilation: Compilation, what: str) -> plotly.graph_objects.Figure | None:
    """Every sample of every contestant, and their quartiles."""
    timing = _timing(compilation, what)
    numbers = _timed(timing)
    if timing is None or not numbers:
        return None
    go = library("a chart of samples")
    figure = go.Figure()
    for row in numbers:
        samples = _thinned(compilation.measurements[row.measurement].steady)
        figure.add_trace(
            go.Box(
                x=samples,
                name=plain(row.name),
                marker={"color": color(row), "size": 3, "opacity": 0.5},
                boxpoints="all",
                jitter=0.6,
                pointpos=0,
                hoveron="points",
                hovertext=[plain(f"{row.name}: {seconds_text(value)}") for value in samples],
                hoverinfo="text",
            )
        )
    every = [value for row in numbers for value in compilation.measurements[row.measurement].steady]
    figure.update_xaxes(title_text="one call", **time_ticks(min(every), max(every)))
    figure.update_yaxes(autorange="reversed")
    return framed(figure, f"{timing.what}: every sample", 110 + 2 * ROW * len(numbers), showlegend=False)


def pays_off(compilation: Compilation, what: str) -> plotly.graph_objects.Figure | None:
    """How far each contestant is ahead of eager (above 0) or behind it, its compile counted, by the number of
    calls; a ring where it overtakes. ``None`` where no compile was timed beside eager."""
    timing = _timing(compilation, what)
    timed = _timed(timing)
    paying = [row for row in timed if row.cold is not None and row.contestant != "eager"]
    eager = next((row.median for row in timed if row.contestant == "eager"), None)
    if timing is None or eager is None or not paying:
        return None
    go = library("a chart of what pays off")
    reach = _reach(paying, eager)
    figure = go.Figure()
    ends = [0.0]
    for row in paying:
        assert row.median is not None and row.cold is not None
        gain, cost = eager - row.median, row.cold
        calls = [reach * place / 24 for place in range(25)]
        ends += [-cost, reach * gain - cost]
        figure.add_trace(
            go.Scatter(
                x=calls, y=[each * gain - cost for each in calls], name=plain(row.name), mode="lines",
                line={"color": color(row), "width": 2.2, "dash": "solid" if row.own else "dash"},
                hovertext=[plain(_standing(row, round(each), eager)) for each in calls], hoverinfo="text",
            )
        )  # fmt: skip
        if row.break_even is not None and row.break_even <= reach:
            figure.add_trace(
                go.Scatter(
                    x=[row.break_even], y=[0], mode="markers+text", showlegend=False,
                    text=[count_text(row.break_even, "call")], textposition="top right", hoverinfo="text",
                    hovertext=[plain(f"{row.name} pays off after {count_text(row.break_even, 'call')}")],
                    marker={"size": 11, "symbol": "circle-open", "line": {"width": 2}, "color": color(row)},
                )
            )  # fmt: skip
    figure.add_hline(y=0, line={"color": EAGER, "width": 1.4}, annotation_text="eager", layer="below")
    figure.update_xaxes(title_text="calls", range=[0, reach])
    figure.update_yaxes(title_text="ahead of eager", **time_ticks(min(ends), max(ends), 5))
    return framed(figure, f"{timing.what}: ahead of eager, compile included", 340)


def color(row: TimingRow) -> str:
    """Ours, eager's, or everybody else's."""
    return OWN if row.own else EAGER if row.contestant == "eager" else LIBRARY


def _timing(compilation: Compilation, what: str) -> Timing | None:
    found = timings(compilation)
    return next((timing for timing in found if what in ("", timing.what)), None)


def _timed(timing: Timing | None) -> list[TimingRow]:
    return [row for row in timing.rows if row.counts and row.median] if timing is not None else []


def _spread(rows: Sequence[TimingRow]) -> dict[str, Any]:
    ends = [(row.p10 or row.median or 0.0, row.median or 0.0, row.p90 or row.median or 0.0) for row in rows]
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - median for _, median, high in ends],
        "arrayminus": [median - low for low, median, _ in ends],
        "thickness": 1,
    }


def _said(row: TimingRow) -> str:
    ratio = f", {speed_text(row.ratio)}" if row.ratio and row.contestant != "eager" else ""
    return f"  {seconds_text(row.median)}{ratio}"


def _hover(row: TimingRow) -> str:
    spread = f", {seconds_text(row.p10)} to {seconds_text(row.p90)}" if row.p10 is not None else ""
    cold = f"; compiled in {seconds_text(row.cold)}" if row.cold is not None else ""
    return f"{row.name}: {seconds_text(row.median)}{spread}{cold}"


def _standing(row: TimingRow, calls: int, eager: float) -> str:
    spent = (row.cold or 0.0) + calls * (row.median or 0.0)
    ahead = calls * eager - spent
    side = "ahead" if ahead >= 0 else "behind"
    return (
        f"{row.name}: {count_text(calls, 'call')} in {seconds_text(spent)}, {seconds_text(abs(ahead))} {side}"
    )


def _thinned(samples: Sequence[float]) -> list[float]:
    step = max(1, -(-len(samples) // _MOST_POINTS))
    return list(samples[::step])


def _reach(paying: Sequence[TimingRow], eager: float) -> int:
    """Calls until the farthest crossing that is shown; one far beyond the first is left out of sight."""
    paid = [row.break_even for row in paying if row.break_even is not None]
    near = [calls for calls in paid if calls <= 40 * max(1, min(paid))]
    if near:
        return max(4, int(1.35 * max(near)) + 1)
    return max(4, int(2 * max(row.cold or 0.0 for row in paying) / eager))
