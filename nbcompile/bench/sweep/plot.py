"""A sweep as a plotly figure: lines over one of the grid's keys, and a menu for what is not drawn apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nbcompile.bench.sweep.table import COLUMNS, TIMES
from nbcompile.errors import MeasureError
from nbcompile.view.figures.style import CLEAR, COLORS, library

if TYPE_CHECKING:
    import plotly.graph_objects

_UNITS = {"speedup": "times eager's speed", "peak_bytes": "bytes", "break_even": "calls", "kernels": ""}
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
Row = dict[str, Any]


def plot(
    axes: Mapping[str, tuple[Any, ...]], rows: Sequence[Row], x: str, y: str, color: str, facet: str
) -> plotly.graph_objects.Figure:
    """The ``rows`` of a sweep's table over the ``axes`` of its grid: see
    :meth:`nbcompile.bench.sweep.result.Sweep.plot`."""
    make_subplots = library("a sweep's plot", "subplots").make_subplots
    x = x or _varied_key(axes, color)
    for name, allowed in ((x, axes), (color, axes), (facet, {"": (), **axes}), (y, COLUMNS)):
        if name not in allowed:
            raise MeasureError(
                f"{name!r} cannot be drawn.",
                advice=f"Keys: {', '.join(axes)}. Columns: {', '.join(COLUMNS)}.",
            )
    rest = [key for key, values in axes.items() if key not in (x, color, facet) and len(values) > 1]
    panels = axes[facet] if facet else ("",)
    figure = make_subplots(
        rows=1,
        cols=len(panels),
        shared_yaxes=True,
        subplot_titles=[f"{facet} = {value}" for value in panels] if facet else None,
    )
    numbers = [row for row in rows if isinstance(row[y], int | float)]
    filters: list[Row] = []
    shown: set[str] = set()
    for column, panel in enumerate(panels, 1):
        inside = [row for row in numbers if not facet or row[facet] == panel]
        for group in _groups(inside, (color, *rest)):
            line = _line(group, axes, (x, y, color), rest, numbers)
            line.showlegend = line.name not in shown
            figure.add_trace(line, row=1, col=column)
            shown.add(line.name)
            filters.append({key: group[0][key] for key in (color, *rest)})
    unit = "seconds" if y in TIMES and y != "speedup" else _UNITS.get(y, "")
    title = f"{y} ({unit})" if unit else y
    scale = "log" if unit == "seconds" else None
    figure.update_yaxes(title_text=title, type=scale, col=1, exponentformat="SI")
    figure.update_xaxes(title_text=x, type=_scale(axes[x]))
    figure.update_layout(
        updatemenus=_menu(filters, {key: axes[key] for key in (color, *rest)}),
        margin={"t": 60 if facet or rest else 30},
        paper_bgcolor=CLEAR,
    )
    return figure


def _line(
    group: Sequence[Row],
    axes: Mapping[str, tuple[Any, ...]],
    drawn: tuple[str, str, str],
    rest: Sequence[str],
    rows: Sequence[Row],
) -> plotly.graph_objects.Scatter:
    """One line: the points of ``group``, over ``drawn`` (x, y and the key of the colour). What has other
    values of the keys ``rest`` is dashed in another way."""
    go = library("a sweep's plot")
    x, y, color = drawn
    first = group[0]
    variant = tuple(first[key] for key in rest)
    label = " ".join((str(first[color]), *(f"{key}={value}" for key, value in zip(rest, variant))))
    place = axes[color].index(first[color])
    dash = list(dict.fromkeys(tuple(row[key] for key in rest) for row in rows)).index(variant)
    return go.Scatter(
        x=[row[x] for row in group],
        y=[row[y] for row in group],
        name=label,
        legendgroup=label,
        mode="lines+markers",
        line={"color": COLORS[place % len(COLORS)], "dash": _DASHES[dash % len(_DASHES)]},
        error_y=_spread(group) if y == "steady" else None,
        customdata=[[row["status"], row["reason"]] for row in group],
        hovertemplate=f"{x}=%{{x}}<br>{y}=%{{y:.4s}}<br>%{{customdata[0]}} %{{customdata[1]}}",
    )


def _varied_key(axes: Mapping[str, tuple[Any, ...]], color: str) -> str:
    """What to draw over: the first size that varies, else any key that does, else the first key."""
    from nbcompile.bench.sweep.grid import KEYS

    varied = [key for key, values in axes.items() if len(values) > 1 and key != color]
    return next((key for key in varied if key not in KEYS), varied[0] if varied else next(iter(axes)))


def _groups(rows: Sequence[Row], keys: Sequence[str]) -> list[list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(found.values())


def _spread(group: Sequence[Row]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [row["steady_p75"] - row["steady"] for row in group],
        "arrayminus": [row["steady"] - row["steady_p25"] for row in group],
        "thickness": 1,
    }


def _scale(values: tuple[Any, ...]) -> str:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        return "category"
    return "log" if min(numbers) > 0 and max(numbers) >= 8 * min(numbers) else "linear"


def _menu(filters: Sequence[Row], keys: dict[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """One menu: everything, or what has one value of one key. The legend does the rest."""
    choices: list[tuple[str, list[bool]]] = [("all", [True] * len(filters))]
    for key, values in keys.items():
        if len(values) > 1:
            choices += [(f"{key} = {value}", [row[key] == value for row in filters]) for value in values]
    buttons = [
        {"label": label, "method": "restyle", "args": [{"visible": visible}]} for label, visible in choices
    ]
    return [{"buttons": buttons, "x": 1.0, "xanchor": "right", "y": 1.15}] if len(buttons) > 2 else []
