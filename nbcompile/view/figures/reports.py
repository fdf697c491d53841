"""What the doctor tried, and what modes change, as figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbcompile.errors import MeasureError
from nbcompile.record.advice.doctor import DoctorReport
from nbcompile.record.mode_diff import ModeDiff
from nbcompile.units import clip, seconds_text, speed_text
from nbcompile.view.figures.style import BAD, EAGER, OWN, ROW, framed, library, plain, rows_axis, time_ticks
from nbcompile.view.reports import doctor as report

if TYPE_CHECKING:
    import plotly.graph_objects

_TONES = {"pays": OWN, "level": EAGER}


def doctor(found: DoctorReport) -> plotly.graph_objects.Figure:
    """What was tried by how many times as fast it is, with its 99 % interval; right of the line at 1 is
    faster. MeasureError where nothing ran."""
    rows = [row for row in found.rows if row.speedup is not None]
    if not rows:
        raise MeasureError("nothing that the doctor tried has a time: there is nothing to draw.")
    go = library("a doctor's chart")
    values = [row.speedup or 1.0 for row in rows]
    lows = [row.low if row.low is not None else value for row, value in zip(rows, values, strict=True)]
    highs = [row.high if row.high is not None else value for row, value in zip(rows, values, strict=True)]
    figure = go.Figure(
        go.Scatter(
            x=values,
            y=list(range(len(rows))),
            mode="markers",
            marker={"size": 10, "color": [_TONES.get(row.status, BAD) for row in rows]},
            error_x={
                "type": "data", "symmetric": False, "thickness": 1.4, "color": EAGER,
                "array": [high - value for high, value in zip(highs, values, strict=True)],
                "arrayminus": [value - low for low, value in zip(lows, values, strict=True)],
            },
            hovertext=[plain(f"{row.name}: {speed_text(row.speedup or 1.0)}. {row.reason}") for row in rows],
            hoverinfo="text",
        )
    )  # fmt: skip
    figure.add_vline(x=1.0, line={"color": EAGER, "width": 1.4}, layer="below")
    figure.update_xaxes(title_text="times as fast as now", type="log" if max(values) > 4 else "linear")
    figure.update_yaxes(**rows_axis(clip(row.name, 48) for row in rows))
    title = f"{found.function}: what was tried"
    return framed(figure, title, 130 + ROW * len(rows), report.title(found), showlegend=False)


def modes(found: ModeDiff) -> plotly.graph_objects.Figure:
    """Two bars a mode: one call, and the compile. MeasureError where no mode was timed."""
    rows = list(found.results)
    calls = [result.seconds for result in rows]
    compiles = [result.measurement.cold if result.measurement else None for result in rows]
    parts = [(name, times) for name, times in (("one call", calls), ("compile", compiles)) if any(times)]
    if not parts:
        raise MeasureError("no mode was timed: there is nothing to draw.")
    figure = library("a chart of modes", "subplots").make_subplots(
        rows=1, cols=len(parts), shared_yaxes=True, subplot_titles=[name for name, _ in parts]
    )
    go = library("a chart of modes")
    for column, (name, times) in enumerate(parts, 1):
        timed = [(place, value) for place, value in enumerate(times) if value]
        figure.add_trace(
            go.Bar(
                orientation="h",
                x=[value for _, value in timed],
                y=[place for place, _ in timed],
                width=0.56,
                marker={"color": OWN if name == "one call" else EAGER},
                text=[f"  {seconds_text(value)}" for _, value in timed],
                textposition="outside",
                cliponaxis=False,
                hoverinfo="skip",
            ),
            row=1,
            col=column,
        )
        most = max(value for _, value in timed)
        figure.update_xaxes(range=[0, 1.35 * most], **time_ticks(0.0, most, 4), row=1, col=column)
    figure.update_yaxes(**rows_axis(found.modes))
    height = 130 + ROW * len(rows)
    return framed(figure, f"{found.function} on {found.backend}", height, showlegend=False)
