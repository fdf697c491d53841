"""Plotly figures of records: every number that they draw is the record's, and nothing in them is markup."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from nbcompile.errors import MeasureError
from nbcompile.record.advice.doctor import DoctorReport, DoctorRow
from nbcompile.record.compilation import Compilation
from nbcompile.record.mode_diff import ModeDiff, ModeResult
from nbcompile.view.figures.charts import CHARTS
from nbcompile.view.figures.style import steps
from tests.view import fixtures, fixtures_gpu, fixtures_hostile
from tests.view.test_consistent import WRONG, record_of

pytest.importorskip("plotly")


def bars(record: Compilation) -> dict[str, float]:
    figure = record.plot("times")
    names = figure.layout.yaxis.ticktext
    return {names[place]: value for place, value in zip(figure.data[0].y, figure.data[0].x, strict=True)}


def test_a_bar_a_contestant_as_long_as_its_median() -> None:
    record = record_of("transformer", 0)
    assert bars(record) == {m.contestant: m.median for m in record.measurements}


def test_who_ran_no_compiled_code_has_a_row_that_says_so_and_no_bar() -> None:
    record = record_of("transformer", 6)
    figure = record.plot("times")
    assert "nbcompile" in figure.layout.yaxis.ticktext and "nbcompile" not in bars(record)
    assert any("it said so" in note.text for note in figure.layout.annotations)


def test_every_sample_is_drawn() -> None:
    record = record_of("transformer", 0)
    drawn = {box.name: tuple(box.x) for box in record.plot("samples").data}
    assert drawn == {m.contestant: m.steady for m in record.measurements}


def test_a_line_crosses_eager_where_the_table_says_that_it_pays_off() -> None:
    from nbcompile.view.facts.timings import timings

    record = record_of("transformer", 0)
    paid = {row.name: row.break_even for row in timings(record)[0].rows if row.break_even is not None}
    figure = record.plot("payoff")
    rings = {mark.x[0] for mark in figure.data if mark.mode == "markers+text"}
    assert paid and rings <= set(paid.values())
    for line in (each for each in figure.data if each.mode == "lines" and each.name in paid):
        below = [x for x, y in zip(line.x, line.y, strict=True) if y < 0]
        above = [x for x, y in zip(line.x, line.y, strict=True) if y > 0]
        assert max(below) <= paid[line.name] <= min(above, default=paid[line.name]) + 1


def test_what_is_wrong_never_pays_off_here_either() -> None:
    record = record_of("transformer", WRONG)
    ours = [mark for mark in record.plot("payoff").data if mark.mode == "markers+text"]
    assert not [mark for mark in ours if "nbcompile" in mark.hovertext[0]]


def test_calls_stand_in_order_with_measured_times_and_predictions() -> None:
    record = fixtures_gpu.many(9, measured=True)
    bar, mark = record.plot("calls").data
    assert list(bar.x) == [kernel.seconds for kernel in record.kernels]
    assert list(mark.x) == [kernel.predicted_seconds for kernel in record.kernels if kernel.predicted_seconds]


def test_calls_without_times_are_as_long_as_their_bytes_and_the_axis_says_so() -> None:
    figure = fixtures.transformer().plot("calls")
    assert "bytes" in figure.layout.xaxis.title.text and len(figure.data) == 1


def test_no_dot_is_above_the_roof() -> None:
    record = fixtures_gpu.many(9, measured=True)
    figure = record.plot("roofline")
    roofs, dots = figure.data[:-1], figure.data[-1]
    assert len(dots.x) == sum(bool(kernel.flops) for kernel in record.kernels)
    for x, y in zip(dots.x, dots.y, strict=True):
        bandwidth = roofs[0].y[0] / roofs[0].x[0]
        assert y <= 1.01 * min(bandwidth * x, max(value for roof in roofs for value in roof.y))


def test_the_errors_of_a_check_are_drawn_in_the_order_of_its_nodes() -> None:
    record = fixtures.transformer()
    graph = record.graphs[0]
    nodes = tuple(dataclasses.replace(node, error=10.0**-place) for place, node in enumerate(graph.nodes))
    checked = dataclasses.replace(
        record, graphs=(dataclasses.replace(graph, nodes=nodes), *record.graphs[1:])
    )
    drawn = checked.plot("errors").data[0]
    assert list(drawn.y) == [max(10.0**-place, 1e-17) for place in range(len(nodes))]


@pytest.mark.parametrize("make", [fixtures.transformer, fixtures_gpu.gpu, lambda: record_of("real", 1)])
def test_without_a_name_the_first_chart_there_is_something_for(make: object) -> None:
    assert callable(make)
    assert make().plot().data


def test_what_cannot_be_drawn_is_said() -> None:
    empty = Compilation(id="empty")
    with pytest.raises(MeasureError, match="nothing to draw"):
        empty.plot()
    for chart in CHARTS:
        with pytest.raises(MeasureError, match=CHARTS[chart][1].partition(":")[0]):
            empty.plot(chart)
    with pytest.raises(MeasureError, match="no chart") as raised:
        empty.plot("rofline")
    assert "Did you mean roofline" in str(raised.value)


def test_without_plotly_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(MeasureError, match="pip install plotly"):
        record_of("transformer", 0).plot()


def test_no_text_of_a_record_is_markup() -> None:
    record = fixtures_hostile.hostile()
    for chart in CHARTS.keys() - {"payoff"}:  # of one contestant there is none
        text = str(record.plot(chart).to_dict())  # to_json() would write < in another way
        assert "&lt;script" in text and "<script" not in text and "<img" not in text, chart


def test_the_doctors_figure_has_what_was_tried_with_its_interval() -> None:
    rows = (
        DoctorRow("backend inductor", "same", "pays", speedup=1.2, low=1.1, high=1.3),
        DoctorRow("dynamic", "same", "slower", speedup=0.7, low=0.6, high=0.8),
        DoctorRow("no process", "same", "crashed"),
    )
    found = DoctorReport("f", "nbcompile", 0.01, rows)
    dots = found.plot().data[0]
    assert list(dots.x) == [1.2, 0.7]
    assert list(dots.error_x.array) == pytest.approx([0.1, 0.1])
    with pytest.raises(MeasureError, match="nothing"):
        DoctorReport("f", "nbcompile", 0.01, rows[2:]).plot()


def test_modes_have_a_bar_for_a_call_and_one_for_the_compile() -> None:
    record = record_of("transformer", 0)
    ours = record.measurements[1]
    found = ModeDiff("f", "nbcompile", (
        ModeResult("default", record, measurement=ours),
        ModeResult("max-autotune", record, measurement=dataclasses.replace(ours, cold=2.0)),
    ))  # fmt: skip
    calls, compiles = found.plot().data
    assert list(calls.x) == [ours.median, ours.median] and list(compiles.x) == [ours.cold, 2.0]
    with pytest.raises(MeasureError, match="no mode was timed"):
        ModeDiff("f", "nbcompile", (ModeResult("default", record),)).plot()


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 4.5), (1e-6, 3e-6), (0.0, 0.0)])
def test_ticks_lie_between_the_ends_and_are_round(low: float, high: float) -> None:
    found = steps(low, high, 5)
    assert 1 <= len(found) <= 11
    assert all(low - 1e-9 <= value <= high + 1e-9 for value in found)
