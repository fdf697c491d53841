"""``nbcompile.interact``: one program under controls, for a page that shows ipywidgets: JupyterLab, Notebook,
VS Code, Colab."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nbcompile.backends import registry
from nbcompile.bench.measure.compare import Measuring
from nbcompile.bench.sweep.grid import Grid, Point
from nbcompile.bench.sweep.point import Outcome, SweepProgram, check_keys, run_point
from nbcompile.errors import ExplorerError, MeasureError, OptionError
from nbcompile.record.compilation import Compilation
from nbcompile.record.provenance import Links
from nbcompile.settings import CompileSettings
from nbcompile.units import seconds_text, speed_text
from nbcompile.view.facts import facts as fact
from nbcompile.view.facts.why import why
from nbcompile.view.figures.style import BAD, EAGER, OWN, ROW, framed, library, plain, rows_axis, time_ticks

try:
    import ipywidgets
except ImportError as error:
    raise ExplorerError(
        "nbcompile.interact needs ipywidgets, which is not installed.",
        advice="Run: pip install anywidget ipywidgets plotly",
    ) from error

if TYPE_CHECKING:
    import plotly.graph_objects

BACKENDS = ("nbcompile", "inductor", "aot_eager", "eager")
AS_IT_IS = "as it is"
DTYPES = (AS_IT_IS, "float32", "bfloat16", "float16", "float64")
_LABEL = {"description_width": "72px"}
_MOST_ROWS = 14


def interact(
    fn: Callable[..., Any] | None,
    inputs: Any = (),
    *,
    backends: Sequence[str] = BACKENDS,
    dtypes: Sequence[str] = DTYPES,
    sizes: Mapping[str, Sequence[Any]] | None = None,
    train: bool = False,
    budget: float = 0.5,
    manual: bool = False,
) -> Interaction:
    """Controls for backend, mode, dtype, fusion and sizes of ``fn(*inputs)``; whatever is chosen is compiled,
    checked against float64 and timed beside eager, and stands below among what was chosen before.

    ``inputs``: arguments as :func:`nbcompile.compare` takes them; or a function that makes them from
    ``sizes``, ``{"B": (1, 8, 64)}``, each a slider. With ``fn=None`` that function returns ``(fn, inputs)``.
    ``train`` adds the backward pass. ``budget``: seconds of samples for each choice. ``manual``: compile when
    the button is pressed, not at every change. Parameters are copied where the dtype is another.
    OptionError for a backend, dtype or size that cannot be meant, ExplorerError without ipywidgets.
    """
    return Interaction(fn, inputs, tuple(backends), tuple(dtypes), dict(sizes or {}), train, budget, manual)


class Interaction(ipywidgets.VBox):  # type: ignore[misc]
    """What :func:`interact` returns. ``controls`` are the widgets by what they choose (``backend``, ``mode``,
    ``dtype``, ``fuse``, each size, ``run``, ``open``), to be laid out anew or set by a program. ``outcomes``
    holds all that was measured, ``record`` the record of what is chosen now, if it has been; ``place`` is
    where that one opens."""

    def __init__(
        self,
        fn: Callable[..., Any] | None,
        inputs: Any,
        backends: tuple[str, ...],
        dtypes: tuple[str, ...],
        sizes: dict[str, Sequence[Any]],
        train: bool,
        budget: float,
        manual: bool,
    ) -> None:
        self._program = SweepProgram(fn, _maker(inputs, sizes))
        self._measuring = Measuring(train=train, budget=budget)
        self._manual = manual
        self._outcomes: dict[Point, Outcome] = {}
        types = tuple(str(name).removeprefix("torch.") for name in dtypes)
        Grid.parse({"dtype": [name for name in types if name != AS_IT_IS] or "float32", **sizes})
        for backend in backends:
            registry.check(backend)
        backend, mode, dtype = (
            ipywidgets.Dropdown(options=options, description=name, style=_LABEL)
            for name, options in (("backend", backends), ("mode", _modes(backends[0])), ("dtype", types))
        )
        fuse = ipywidgets.Checkbox(value=True, description="fuse loops into kernels", indent=False)
        sliders = {
            name: ipywidgets.SelectionSlider(
                options=list(values), description=name, style=_LABEL, continuous_update=False
            )
            for name, values in sizes.items()
        }
        run, opener = (ipywidgets.Button(layout={"width": "auto"}) for _ in range(2))
        opener.description = "Open the record"
        self._sizes = tuple(sliders)
        self.controls = {"backend": backend, "mode": mode, "dtype": dtype, "fuse": fuse, **sliders,
                         "run": run, "open": opener}  # fmt: skip
        self.place = ipywidgets.VBox()
        self._said, self._chart = ipywidgets.HTML(), _chart()
        backend.observe(self._backend_chosen, "value")
        for control in (mode, dtype, fuse, *sliders.values()):
            control.observe(self._chosen, "value")
        run.on_click(lambda _: self._measure())
        opener.on_click(lambda _: self._open())
        left = ipywidgets.VBox((backend, mode, dtype, fuse))
        right = ipywidgets.VBox((*sliders.values(), ipywidgets.HBox((run, opener))))
        choices = ipywidgets.HBox((left, right), layout={"flex_flow": "row wrap"})
        chart = () if self._chart is None else (self._chart,)
        super().__init__((choices, self._said, *chart, self.place))
        self._chosen(None)

    @property
    def point(self) -> Point:
        """What the controls say."""
        values: dict[str, Any] = {
            "backend": self.controls["backend"].value,
            "mode": self.controls["mode"].value,
        }
        if self.controls["dtype"].value != AS_IT_IS:
            values["dtype"] = self.controls["dtype"].value
        if self.controls["backend"].value == "nbcompile" and not self.controls["fuse"].value:
            values["options"] = "unfused"
        values.update((name, self.controls[name].value) for name in self._sizes)
        return Point(tuple(values.items()))

    @property
    def record(self) -> Compilation | None:
        """Of what is chosen now; None where it has not been compiled, or could not be."""
        outcome = self._outcomes.get(self.point)
        return outcome.record if outcome is not None else None

    @property
    def outcomes(self) -> dict[Point, Outcome]:
        """All that was measured, in the order in which it was."""
        return dict(self._outcomes)

    @property
    def text(self) -> str:
        """What is said of the choice, as HTML."""
        return str(self._said.value)

    def figure(self) -> plotly.graph_objects.Figure:
        """What is drawn, as a plotly figure of its own. MeasureError where nothing was measured."""
        return _figure(self._outcomes, self.point)

    def _backend_chosen(self, _: Any) -> None:
        mode = self.controls["mode"]
        kept, modes = mode.value, _modes(self.controls["backend"].value)
        mode.unobserve(self._chosen, "value")
        mode.options = modes
        mode.value = kept if kept in modes else modes[0]
        mode.observe(self._chosen, "value")
        self.controls["fuse"].disabled = self.controls["backend"].value != "nbcompile"
        self._chosen(None)

    def _chosen(self, _: Any) -> None:
        if self.point in self._outcomes or self._manual:
            self._show()
        else:
            self._measure()

    def _measure(self) -> None:
        point = self.point
        known = registry.backends().get(point.backend)
        if known is not None and not known.trains and self._measuring.train:
            self._outcomes[point] = Outcome("skipped", f"{point.backend} does not train")
        else:
            self._say(f"{point}: compiling, checking, timing …")
            options = {"fuse": False} if point.get("options") else {}
            mode = None if point.mode == "default" else point.mode
            settings = CompileSettings(point.backend, mode, options)
            self._outcomes[point] = run_point(self._program, point, settings, self._measuring)
        self._show()

    def _show(self) -> None:
        outcome = self._outcomes.get(self.point)
        self.controls["open"].disabled = outcome is None or outcome.record is None
        self.controls["run"].description = "Compile and time" + (" again" if outcome is not None else "")
        self._say(_told(self.point, outcome))
        if self._chart is not None and self._outcomes:
            drawn = _figure(self._outcomes, self.point)
            with self._chart.batch_update():
                self._chart.data = []
                self._chart.add_traces(drawn.data)
                self._chart.layout = drawn.layout

    def _say(self, text: str) -> None:
        lines = [html.escape(line) for line in text.splitlines()]
        rest = "".join(f"<br>{line}" for line in lines[1:])
        self._said.value = f'<div style="line-height: 1.5"><b>{lines[0]}</b>{rest}</div>'

    def _open(self) -> None:
        from nbcompile.notebook.play.exploring import explore

        if self.record is not None:
            self.place.children = (explore(self.record),)


def _maker(inputs: Any, sizes: Mapping[str, Sequence[Any]]) -> Callable[..., Any]:
    if not callable(inputs):
        if sizes:
            raise OptionError(
                "sizes need a function that makes the inputs from them.",
                advice="Write inputs=lambda B: torch.randn(B, 64).",
            )
        return lambda: inputs
    make: Callable[..., Any] = inputs
    check_keys(make, sizes)
    return make


def _modes(backend: str) -> tuple[str, ...]:
    known = registry.backends().get(backend)
    return known.modes if known is not None else ("default",)


def _told(point: Point, outcome: Outcome | None) -> str:
    """The verdict and why, in up to three lines."""
    if outcome is None:
        return f"{point}: not compiled yet"
    if outcome.record is None:
        return f"{point}: {outcome.status}\n{outcome.reason}"
    if point.backend == "eager":
        return f"{point}: {seconds_text(_median(outcome, False))} a call"
    found = fact.facts(outcome.record, Links(outcome.record))
    said = (
        f"{point}: {found.verdict.text}"
        if outcome.status in ("ok", "eager")
        else f"{point}: {outcome.status}"
    )
    lines = (
        said,
        outcome.reason if outcome.status not in ("ok", "eager") else "",
        why(outcome.record, found).text,
    )
    return "\n".join(line for line in lines if line)


def _chart() -> Any:
    """A figure that can be drawn on again; None where plotly or its widget is not installed."""
    try:
        return library("the chart").FigureWidget()
    except (ImportError, MeasureError):
        return None


def _figure(outcomes: Mapping[Point, Outcome], chosen: Point) -> plotly.graph_objects.Figure:
    """The last rows: eager and what was chosen, a pair of bars each; what is chosen now is marked."""
    go = library("the chart")
    shown = list(outcomes.items())[-_MOST_ROWS:]
    if chosen in outcomes and chosen not in dict(shown):
        shown = [*shown[1:], (chosen, outcomes[chosen])]
    if not shown:
        raise MeasureError("nothing was measured yet.", advice="Choose something, or press the button.")
    figure = go.Figure()
    longest = 0.0
    for own, color, name in ((False, EAGER, "eager"), (True, OWN, "chosen")):
        bars = [(place, _median(outcome, own)) for place, (_, outcome) in enumerate(shown)]
        timed = [(place, value) for place, value in bars if value]
        longest = max([longest, *(value for _, value in timed)])
        figure.add_trace(
            go.Bar(
                orientation="h",
                name=name,
                x=[value for _, value in timed],
                y=[place + (0.18 if own else -0.18) for place, _ in timed],
                width=0.32,
                marker={"color": color},
                text=[f"  {_words(shown[place][1], own)}" for place, _ in timed],
                textposition="outside",
                cliponaxis=False,
                hoverinfo="skip",
            )
        )
    for place, (point, outcome) in enumerate(shown):
        if point.backend != "eager" and not _median(outcome, True):
            figure.add_annotation(
                x=0, y=place + 0.18, xanchor="left", showarrow=False, font={"color": BAD},
                text=plain(f"{outcome.status} {outcome.reason}"[:90]),
            )  # fmt: skip
    names = [f"▸ {point}" if point == chosen else str(point) for point, _ in shown]
    figure.update_xaxes(
        range=[0, 1.35 * longest or 1.0], title_text="one call", **time_ticks(0.0, longest, 5)
    )
    figure.update_yaxes(**rows_axis(names))
    return framed(figure, "", 110 + ROW * len(shown), barmode="overlay", showlegend=False)


def _median(outcome: Outcome, own: bool) -> float | None:
    measured = outcome.record.measurements if outcome.record is not None else ()
    found = [m for m in measured if (m.contestant != "eager") == own and m.counts]
    return found[-1].median if found else None


def _words(outcome: Outcome, own: bool) -> str:
    ours, eager = _median(outcome, True), _median(outcome, False)
    if not own or not ours or not eager:
        return seconds_text(_median(outcome, own))
    wrong = ", wrong numbers" if outcome.status == "differs" else ""
    return f"{seconds_text(ours)}, {speed_text(eager / ours)}{wrong}"
