"""Compile time as a plotly figure: a flame chart of the stretches that torch reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from nbcompile.traces.reading.values import TimedPart
from nbcompile.units import count_text, seconds_text
from nbcompile.view.figures.style import CLEAR, library, plain

if TYPE_CHECKING:
    import plotly.graph_objects

MOST_BARS = 3_000
"""A bar a stretch; the shortest are left out beyond that, and the title says so."""
_KINDS = (
    ("Dynamo", "#0072b2", ("dynamo", "bytecode", "compile_attempt", "entire_frame", "build_guards",
                           "insert_")),
    ("AOTAutograd", "#009e73", ("aot", "AOT", "create_aot", "backend_compile", "joint", "partition",
                                "additional_fake", "trace_joint", "min_cut", "entire_backward")),
    ("Inductor", "#d55e00", ("inductor", "compile_fx", "GraphLowering", "Scheduler", "codegen", "code_gen",
                             "fx_codegen", "pass.", "_recursive_", "PythonWrapper", "FxGraph")),
    ("kernels compiled", "#cc79a7", ("compile_file", "async_compile", "PyCodeCache", "Triton", "triton",
                                     "CachingAutotuner", "cpp")),
)  # fmt: skip
_REST = ("other", "#80838a")


def flame(parts: Sequence[TimedPart], id: str, name: str) -> plotly.graph_objects.Figure:
    """``id``: of one compilation, whose first stretch is then the beginning; else of the whole trace."""
    go = library("a flame chart")
    wanted = [part for part in parts if not id or part.compile == id]
    shown = sorted(wanted, key=lambda part: part.begins - part.ends)[:MOST_BARS]
    begin = min((part.begins for part in shown), default=0.0)
    threads = {thread: number for number, thread in enumerate(sorted({part.thread for part in shown}))}
    # A name wants room: below an eighth of the width none is written, and the pointer shows it.
    shortest = (max((part.ends for part in shown), default=0.0) - begin) / 8
    rows = _rows(shown, threads)
    figure = go.Figure()
    for kind, color, of_kind in _kinds(shown):
        figure.add_trace(
            go.Bar(
                base=[part.begins - begin for part in of_kind],
                x=[part.ends - part.begins for part in of_kind],
                y=[rows[part] for part in of_kind],
                orientation="h",
                name=kind,
                width=0.94,
                marker={"color": color, "line": {"width": 0.5, "color": "rgba(255,255,255,0.6)"}},
                text=[part.name if part.ends - part.begins > shortest else "" for part in of_kind],
                textangle=0,
                textposition="inside",
                insidetextanchor="start",
                constraintext="none",
                customdata=[
                    [part.name, part.compile, seconds_text(part.ends - part.begins)] for part in of_kind
                ],
                hovertemplate="%{customdata[0]}<br>%{customdata[2]}, of %{customdata[1]}<extra></extra>",
            )
        )
    left = len(wanted) - len(shown)
    title = f"{name}: compile time" + (f" of {id}" if id else "")
    title += f" ({count_text(left, 'shorter stretch', 'shorter stretches')} not drawn)" if left else ""
    figure.update_layout(
        title={"text": plain(title), "font": {"size": 14}},
        barmode="overlay",
        xaxis={"title": {"text": "seconds"}},
        yaxis={"autorange": "reversed", "showticklabels": False, "zeroline": False, "showgrid": False},
        margin={"t": 50, "l": 20, "r": 20},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 1.0, "xanchor": "right"},
        uniformtext={"minsize": 8, "mode": "hide"},
        paper_bgcolor=CLEAR,
    )
    return figure


def _kinds(parts: Iterable[TimedPart]) -> list[tuple[str, str, list[TimedPart]]]:
    """The parts of each kind that there are, with its colour."""
    sorted_out: dict[str, list[TimedPart]] = {}
    for part in parts:
        sorted_out.setdefault(_kind(part.name), []).append(part)
    colors = {**{kind: color for kind, color, _ in _KINDS}, _REST[0]: _REST[1]}
    return [(kind, color, sorted_out[kind]) for kind, color in colors.items() if kind in sorted_out]


def _kind(name: str) -> str:
    return next((kind for kind, _, begins in _KINDS if name.startswith(begins)), _REST[0])


def _rows(parts: Sequence[TimedPart], threads: dict[int, int]) -> dict[TimedPart, int]:
    """The row of each: as deep as it lies, threads below each other."""
    deepest: dict[int, int] = {}
    for part in parts:
        number = threads[part.thread]
        deepest[number] = max(deepest.get(number, 0), part.depth)
    offsets, at = {}, 0
    for number in sorted(deepest):
        offsets[number] = at
        at += deepest[number] + 2
    return {part: offsets[threads[part.thread]] + part.depth for part in parts}
