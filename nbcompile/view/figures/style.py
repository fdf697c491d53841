"""What all figures share: plotly itself, colours, ticks in our own units, the frame."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nbcompile.errors import MeasureError
from nbcompile.units import seconds_text, wrap

if TYPE_CHECKING:
    import plotly.graph_objects

COLORS = ("#0072b2", "#009e73", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#80838a", "#8250df")
"""Told apart by colour-blind eyes too: Okabe and Ito's, and two more."""
OWN, LIBRARY, EAGER, BAD = "#0072b2", "#e69f00", "#80838a", "#d55e00"
INK = "#767b84"
"""Legible on white and on black alike: a figure does not know the page that it is on."""
CLEAR = "rgba(0,0,0,0)"
GRID = "rgba(128,131,138,0.25)"
ROW = 34
"""Pixels of a row of bars."""
_LINE = 110
"""Characters of a line below a title."""


def library(what: str, part: str = "graph_objects") -> Any:
    """A module of plotly. MeasureError, in which ``what`` needs it, where it is not installed."""
    try:
        return importlib.import_module(f"plotly.{part}")
    except ImportError as error:
        raise MeasureError(
            f"{what} needs plotly, which is not installed.", advice="Run: pip install plotly"
        ) from error


def plain(text: str) -> str:
    """Plotly reads a few HTML tags in its texts: nothing of a record's is one."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def framed(
    figure: plotly.graph_objects.Figure, title: str, height: int, said: str = "", **layout: Any
) -> plotly.graph_objects.Figure:
    """The figure with its title, a sentence below it in ``said``, and the frame that all have; the background
    is the page's."""
    below = (
        "".join(f'<br><span style="font-size: 12px">{plain(line)}</span>' for line in wrap(said, _LINE, 2))
        if said
        else ""
    )
    figure.update_layout(
        title={"text": plain(title) + below, "font": {"size": 14}, "x": 0.0, "xref": "paper"},
        height=height,
        font={"color": INK},
        margin={"t": (44 if title else 16) + 16 * below.count("<br>"), "l": 20, "r": 20, "b": 46},
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        hoverlabel={"align": "left"},
        **layout,
    )
    figure.update_xaxes(gridcolor=GRID, zerolinecolor=GRID, automargin=True)
    figure.update_yaxes(gridcolor=GRID, zerolinecolor=GRID, automargin=True)
    return figure


def rows_axis(names: Iterable[str]) -> dict[str, Any]:
    """An axis with a row each, the first on top."""
    named = [plain(name) for name in names]
    return {
        "tickmode": "array",
        "tickvals": list(range(len(named))),
        "ticktext": named,
        "range": [len(named) - 0.5, -0.5],
        "showgrid": False,
        "zeroline": False,
    }


def time_ticks(low: float, high: float, wanted: int = 6) -> dict[str, Any]:
    """Ticks from ``low`` to ``high`` seconds, worded as everywhere; a minus sign where they are below 0."""
    values = steps(low, high, wanted)
    words = [("−" if value < 0 else "") + seconds_text(abs(value)) for value in values]
    return {"tickmode": "array", "tickvals": values, "ticktext": words}


def steps(low: float, high: float, wanted: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from ``low`` to ``high``, about ``wanted`` of them."""
    raw = (high - low) / max(1, wanted)
    if not raw > 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((each for each in (1, 2, 5) if each * power >= raw * 0.999), 10) * power
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [place * step for place in range(first, last + 1)]
