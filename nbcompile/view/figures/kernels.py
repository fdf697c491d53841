"""The kernels of a record: under the roof of their chip, and the calls in the order in which they run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nbcompile.record.compilation import Compilation
from nbcompile.record.provenance import Links
from nbcompile.units import bytes_text, clip, seconds_text, share_text
from nbcompile.view.drawing.roofline import Roofline, bound, quantity, roofline
from nbcompile.view.facts import facts as fact
from nbcompile.view.facts.facts import Call
from nbcompile.view.facts.kernels import runs_text
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

_COLORS = {"fused": OWN, "library": LIBRARY, "fallback": BAD, "break": "#cc79a7", "captured": EAGER}
_MOST_CALLS = 60


def under_the_roof(compilation: Compilation, _: str) -> plotly.graph_objects.Figure | None:
    """Operations a byte across, operations a second up, both logarithmic: a full dot was measured, a ring is
    where its predicted time puts it. Kernels without arithmetic have no place here; the title counts them."""
    roof = roofline(compilation)
    if roof is None:
        return None
    go = library("a roofline")
    placed = [
        (point, label, point.seconds or point.predicted)
        for point, label in zip(roof.points, roof.labels, strict=True)
        if point.flops and point.bytes
    ]
    figure = go.Figure()
    _add_roofs(figure, roof, [point.intensity for point, _, _ in placed])
    figure.add_trace(
        go.Scatter(
            x=[point.intensity for point, _, _ in placed],
            y=[point.flops / spent for point, _, spent in placed],
            text=[plain(label) for _, label, _ in placed],
            mode="markers+text",
            textposition="bottom right",
            showlegend=False,
            marker={
                "size": 10,
                "color": OWN,
                "symbol": ["circle" if point.seconds else "circle-open" for point, _, _ in placed],
            },
            hovertext=[
                plain(
                    f"{label} {point.name}: moves {bytes_text(point.bytes)}, computes "
                    f"{quantity(point.flops, 'flop')}, {'measured' if point.seconds else 'predicted'} "
                    f"{seconds_text(spent)}, limit {seconds_text(point.limit_seconds)}"
                    f"{_of_limit(point.share)}, bound by {bound(point)}"
                )
                for point, label, spent in placed
            ],
            hoverinfo="text",
        )
    )
    left = len(roof.points) - len(placed)
    said = f"{roof.summary}; {left} without arithmetic not drawn" if left else roof.summary
    figure.update_xaxes(title_text="operations a byte (flop/B)", type="log", dtick=1)
    rates = [10.0**power for power in range(16)]
    words = [quantity(rate, "") for rate in rates]
    figure.update_yaxes(title_text="operations a second (flop/s)", type="log", tickvals=rates, ticktext=words)
    return framed(figure, roof.title, 440, said)


def in_order(compilation: Compilation, _: str) -> plotly.graph_objects.Figure | None:
    """A bar a kernel, library call and fallback, in the order in which they run: measured time, a mark where
    the chip's rates predict it; the bytes that each moves where not all have a time."""
    calls = fact.facts(compilation, Links(compilation)).calls
    if not calls:
        return None
    go = library("a chart of calls")
    timed = all(call.seconds is not None for call in calls)
    predicted = all((call.seconds or call.predicted) is not None for call in calls)
    shown = calls[:_MOST_CALLS]
    lengths = [_length(call, timed, predicted) for call in shown]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            x=lengths,
            y=list(range(len(shown))),
            width=0.6,
            marker={"color": [_COLORS[call.fate] for call in shown]},
            hovertext=[plain(_told(call)) for call in shown],
            hoverinfo="text",
            showlegend=False,
        )
    )
    marked = [(place, call.predicted) for place, call in enumerate(shown) if timed and call.predicted]
    if marked:
        figure.add_trace(
            go.Scatter(
                x=[value for _, value in marked], y=[place for place, _ in marked], mode="markers",
                name="predicted", hoverinfo="skip",
                marker={"symbol": "line-ns", "size": 16, "line": {"width": 2, "color": "#80838a"}},
            )
        )  # fmt: skip
    kind = "measured" if timed else "measured or predicted" if predicted else "moved"
    most = max([*lengths, *(value for _, value in marked)], default=0.0)
    if timed or predicted:
        figure.update_xaxes(title_text=f"time, {kind}", **time_ticks(0.0, most))
    else:
        figure.update_xaxes(title_text="bytes moved; not every call has a time", exponentformat="SI")
    figure.update_yaxes(**rows_axis(_name(call) for call in shown))
    left = len(calls) - len(shown)
    title = "calls in order" + (f" (the first {len(shown)} of {len(calls)})" if left else "")
    return framed(figure, title, 110 + ROW * len(shown) * 3 // 4)


def by_node(compilation: Compilation, _: str) -> plotly.graph_objects.Figure | None:
    """The error of every node against float64, in the order of the graph; ``None`` where the record is of no
    check."""
    nodes = [
        (graph.title, node) for graph in compilation.graphs for node in graph.nodes if node.error is not None
    ]
    if not nodes:
        return None
    go = library("a chart of errors")
    figure = go.Figure(
        go.Scatter(
            x=list(range(len(nodes))),
            # What is exact has no logarithm: it stands below what float64 can tell.
            y=[
                max(node.error or 0.0, 1e-17) if math.isfinite(node.error or 0.0) else 1.0
                for _, node in nodes
            ],
            mode="markers",
            marker={"color": OWN, "size": 7},
            hovertext=[
                plain(f"{node.name} ({node.op}) of {title}: {node.error:.1e}") for title, node in nodes
            ],
            hoverinfo="text",
        )
    )
    figure.update_xaxes(title_text="node, in the order of the graph")
    figure.update_yaxes(title_text="relative error against float64", type="log", exponentformat="power")
    return framed(figure, "error by node", 340)


def _add_roofs(figure: plotly.graph_objects.Figure, roof: Roofline, intensities: list[float]) -> None:
    go = library("a roofline")
    ceilings = roof.ceilings
    ridge = ceilings.float32_rate / ceilings.bandwidth
    low, high = min([*intensities, ridge, 1.0]) / 3, max([*intensities, ridge]) * 4
    xs = [low, ridge, high]
    figure.add_trace(
        go.Scatter(
            x=xs, y=[min(ceilings.bandwidth * x, ceilings.float32_rate) for x in xs], mode="lines",
            line={"color": EAGER, "width": 2}, hoverinfo="skip",
            name=f"{bytes_text(ceilings.bandwidth)}/s memory, "
            f"{quantity(ceilings.float32_rate, 'flop/s')} float32",
        )
    )  # fmt: skip
    if ceilings.matrix_rate > ceilings.float32_rate:
        top = ceilings.matrix_rate / ceilings.bandwidth
        figure.add_trace(
            go.Scatter(
                x=[ridge, top, max(high, 2 * top)],
                y=[ceilings.float32_rate, ceilings.matrix_rate, ceilings.matrix_rate],
                mode="lines", line={"color": EAGER, "width": 1.4, "dash": "dash"}, hoverinfo="skip",
                name=f"{quantity(ceilings.matrix_rate, 'flop/s')} matrix units",
            )
        )  # fmt: skip
    figure.update_layout(legend={"y": 0.04, "yanchor": "bottom", "x": 1.0, "xanchor": "right"})


def _of_limit(share: float | None) -> str:
    return f" ({share_text(share)})" if share is not None else ""


def _length(call: Call, timed: bool, predicted: bool) -> float:
    if timed:
        return call.seconds or 0.0
    return (call.seconds or call.predicted or 0.0) if predicted else float(call.bytes)


def _name(call: Call, most: int = 34) -> str:
    """``k0 add_mul``; ``addmm`` of a library call, whose label is its name."""
    return clip(call.name if call.name.startswith(call.label) else f"{call.label} {call.name}", most)


def _told(call: Call) -> str:
    said = [f"{_name(call, 200)}: moves {bytes_text(call.bytes)}"]
    if call.seconds is not None:
        said.append(f"measured {seconds_text(call.seconds)}")
    if call.predicted is not None:
        said.append(f"predicted {seconds_text(call.predicted)}")
    return ", ".join(said) + runs_text(call)
