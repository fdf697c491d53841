"""Sweeps in this process: their rows, what they leave alone, what they keep, what they advise."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.bench.sweep.advice import advice
from nbcompile.bench.sweep.grid import Grid, Point
from nbcompile.bench.sweep.point import Outcome
from nbcompile.bench.sweep.result import Sweep
from nbcompile.bench.sweep.table import COLUMNS
from nbcompile.errors import MeasureError, OptionError, RecordError
from nbcompile.record.compilation import Compilation, Measurement
from nbcompile.view import MIME
from tests.bench.sweep.programs import make, scaled

FAST: dict[str, Any] = {"budget": 0.01, "cold": False}


def sweep(grid: dict[str, Any], fn: Any = scaled, make_inputs: Any = make, **settings: Any) -> Sweep:
    return nbcompile.compare(fn, make_inputs, grid, **{**FAST, **settings})


# -- the grid --------------------------------------------------------------------------------------


def test_a_grid_is_every_combination_in_the_order_of_settings() -> None:
    grid = Grid.parse({"backend": ["a", "b"], "n": range(1, 3), "dtype": torch.float32})
    points = [dict(point.values) for point in grid.points()]
    assert points == [
        {"backend": backend, "n": b, "dtype": "float32"} for b in (1, 2) for backend in ("a", "b")
    ]
    assert str(grid.points()[0]) == "a n=1 float32"


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        ({"backend": []}, "has no values"),
        ({"n": [1, 1]}, "a value twice"),
        ({"dtype": "floaty"}, "dtype 'floaty' is unknown"),
        ({"n": [torch.ones(2)]}, "cannot be a value of a grid"),
        ({"backend": [print]}, "is no name"),
        ({"options": {"a": 1}}, "not a mapping"),
    ],
)
def test_a_grid_that_cannot_be_meant(grid: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        Grid.parse(grid)


# -- rows ------------------------------------------------------------------------------------------


def test_a_row_a_point_with_eager_beside_it() -> None:
    pytest.importorskip("pandas")
    heard: list[str] = []
    before = torch.get_rng_state()
    found = sweep(
        {"backend": ["eager", "aot_eager"], "mode": ["default", "max-autotune"], "n": [2, 4]},
        cold=True,
        progress=heard.append,
    )
    assert torch.equal(before, torch.get_rng_state())
    table = found.table()
    assert list(table.columns) == ["backend", "mode", "n", *COLUMNS]
    assert list(table.status) == ["ok", "skipped"] * 4
    assert set(table.reason[1::2]) == {f"{name} has no mode max-autotune" for name in ("eager", "aot_eager")}
    run = table[table.status == "ok"]
    assert (run.steady_p25 <= run.steady).all() and (run.steady <= run.steady_p75).all()
    assert (run.error == run.eager_error).all()  # the same operators
    compiled = run[run.backend == "aot_eager"]
    assert (compiled.cold > compiled.steady).all() and (compiled.graphs == 1).all()
    ratio = compiled.eager_steady / compiled.steady
    assert list(compiled.speedup) == list(ratio)
    slower = compiled[compiled.speedup < 1]
    assert all(math.isinf(calls) for calls in slower.break_even)
    assert table.peak_bytes.isna().all(), "on a CPU only of isolated points"
    assert heard[0].startswith("4 of 8 points") and heard[-1].startswith("7 of 8 points")
    record = found.record(backend="aot_eager", mode="default", n=4)
    assert record.backend == "aot_eager" and record.graphs[0].nodes[0].shape == (4, 8)
    assert found.records[6] is record and found.records[found.points[6]] is record
    assert {MIME, "text/html", "text/plain"} == set(record._repr_mimebundle_())
    with pytest.raises(MeasureError, match="2 points have"):
        found.record(backend="aot_eager", mode="default")


@pytest.mark.nightly
def test_twenty_variants_are_twenty_compiles() -> None:
    variants = [{"autotune_seconds": seconds} for seconds in range(20)]
    found = sweep({"backend": "nbcompile", "options": variants}, accuracy=False)
    assert [outcome.status for outcome in found.outcomes.values()] == ["ok"] * 20
    for row, record in zip(variants, found.records.values(), strict=True):
        assert record.measurements[-1].ran_compiled and record.measurements[-1].steady
        assert record.options["autotune_seconds"] == row["autotune_seconds"]
        assert len(record.kernels) == 1 and len(record.graphs) == 4


@pytest.mark.nightly
def test_types_are_given_to_make_inputs_or_to_what_it_makes() -> None:
    seen = []

    def takes(dtype: torch.dtype) -> torch.Tensor:
        seen.append(dtype)
        return torch.ones(3, 4, dtype=dtype)

    def plain() -> torch.Tensor:
        return torch.ones(3, 4)

    layer = torch.nn.Linear(4, 4)
    grid = {"backend": "aot_eager", "dtype": ["float64", "bfloat16"]}
    for make_inputs in (takes, plain):
        found = sweep(grid, layer, make_inputs, accuracy=False)
        kinds = [record.graphs[0].nodes[-2].dtype for record in found.records.values()]
        assert kinds == ["float64", "bfloat16"]
    assert seen == [torch.float64, torch.bfloat16] and layer.weight.dtype == torch.float32


@pytest.mark.nightly
def test_make_inputs_may_make_the_function_too() -> None:
    found = sweep({"backend": "aot_eager", "n": [2, 3]}, None, lambda n: (torch.sin, torch.ones(n)))
    assert [row["status"] for row in found.rows()] == ["ok", "ok"]
    found = sweep({"backend": "aot_eager"}, None, lambda: torch.ones(2))
    assert found.rows()[0]["status"] == "failed" and "(function, inputs)" in found.rows()[0]["reason"]


@pytest.mark.nightly
def test_what_fails_says_why() -> None:
    def picky(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 3:
            raise ValueError("three")
        return x + 1

    grid = {"backend": ["aot_eager", "nbcompile"], "n": [2, 3], "options": {"": {}, "odd": {"nonsense": 1}}}
    rows = sweep(grid, picky, lambda n: torch.ones(n)).rows()
    found = {(row["backend"], row["n"], row["options"]): (row["status"], row["reason"]) for row in rows}
    assert found["nbcompile", 2, ""][0] == "ok"
    assert found["nbcompile", 3, ""] == ("failed", "ValueError: three")
    status, reason = found["nbcompile", 2, "odd"]
    assert status == "skipped" and "option 'nonsense' is unknown" in reason


def test_a_point_that_runs_eagerly_has_no_times() -> None:
    @torch._dynamo.disable
    def hidden(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    row = sweep({"backend": "aot_eager"}, hidden, lambda: torch.ones(2)).rows()[0]
    assert row["status"] == "eager" and row["steady"] is None and row["reason"].startswith("ran eager")


# -- keeping and resuming ---------------------------------------------------------------------------


class Counted:
    """Makes inputs, counts them, and is interrupted at one."""

    def __init__(self, interrupt_at: int = 0) -> None:
        self.made: list[int] = []
        self.interrupt_at = interrupt_at

    def __call__(self, n: int) -> tuple[torch.Tensor, ...]:
        if self.interrupt_at and self.interrupt_at == n:
            raise KeyboardInterrupt
        self.made.append(n)
        return make(n)


def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    store = tmp_path / "sweep.jsonl"
    grid = {"backend": "aot_eager", "n": [2, 3, 4]}
    first = Counted(interrupt_at=4)
    cut = sweep(grid, make_inputs=first, store=store)
    assert cut.interrupted and [row["status"] for row in cut.rows()] == ["ok", "ok", "not run"]
    assert "2 of 3 points are done" in cut.notes[0] and first.made == [2, 3]
    for given in ({"store": store}, {"resume": cut}):
        again = Counted()
        whole = sweep(grid, make_inputs=again, **given)
        assert again.made == [4] and not whole.interrupted
        assert whole.rows()[:2] == cut.rows()[:2]
    again = Counted()
    sweep(grid, make_inputs=again, store=store)
    assert again.made == []


@pytest.mark.nightly
def test_a_store_knows_code_and_point_from_others(tmp_path: Path) -> None:
    store = tmp_path / "sweep.jsonl"
    counted = Counted()

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * w * factor

    factor = 2.0
    settings = {"make_inputs": counted, "store": store}
    sweep({"backend": "aot_eager", "n": [2]}, f, **settings)
    sweep({"backend": "aot_eager", "n": [2, 3]}, f, **settings)
    assert counted.made == [2, 3]
    factor = 3.0  # what it closes over is a part of what it is
    sweep({"backend": "aot_eager", "n": [2]}, f, **settings)
    assert counted.made == [2, 3, 2]
    counted.made.clear()
    cut = store.read_bytes()[:-40]
    store.write_bytes(cut)  # the last point's line, cut off
    sweep({"backend": "aot_eager", "n": [2]}, f, **settings)
    assert counted.made == [2] and len(store.read_bytes().splitlines()) == 4
    store.write_text(json.dumps({"schema": "something/1"}) + "\n")
    with pytest.raises(RecordError, match="no store of a sweep"):
        sweep({"backend": "aot_eager", "n": [2]}, f, **settings)


# -- what to use -----------------------------------------------------------------------------------


def outcome(steady: float, eager: float = 100e-6, cold: float = 1.0, spread: float = 0.01) -> Outcome:
    def samples(middle: float) -> tuple[float, ...]:
        return tuple(middle * (1 + spread * step / 2) for step in (-2, -1, 0, 1, 2))

    times = (
        Measurement("forward", "eager", steady=samples(eager), ran_compiled=False),
        Measurement("forward", "other", cold=cold, steady=samples(steady)),
    )
    return Outcome("ok", record=Compilation("x", measurements=times))


def advised(**times: dict[int, Outcome]) -> str:
    found = {
        Point((("backend", name), ("n", size))): made
        for name, sizes in times.items()
        for size, made in sizes.items()
    }
    return advice(found)


def test_advice_names_the_fastest_and_what_it_costs() -> None:
    text = advised(fast={1: outcome(50e-6)}, slow={1: outcome(80e-6)})
    assert text == (
        "Use fast: 2.0× eager (50 µs a call against 100 µs), and its compile of 1 s has paid for itself "
        "after 20,000 calls; next is slow, at 1.2×."
    )


def test_advice_calls_a_tie_a_tie_and_prefers_the_cheaper_compile() -> None:
    text = advised(dear={1: outcome(50e-6, cold=9.0)}, cheap={1: outcome(51e-6, cold=0.5)})
    assert text.startswith("Use cheap: 2.0× eager") and "dear ties within noise, compiling in 9 s" in text
    assert advised(none={1: outcome(99e-6)}).startswith("Stay with eager: nothing is faster beyond noise")


def test_advice_from_few_samples_says_so_before_anything_else() -> None:
    """Of two samples one may be a page fault: a ratio of 24 came of that."""
    few = outcome(4e-6)
    assert few.record is not None
    cut = tuple(dataclasses.replace(each, steady=each.steady[:2]) for each in few.record.measurements)
    two = Outcome("ok", record=dataclasses.replace(few.record, measurements=cut))
    text = advised(fast={1: two})
    assert text.startswith("On too few samples to be sure (2 samples of a call at the fewest; give a larger ")
    assert "use fast: 25× eager" in text
    assert advised(fast={1: two, 2: outcome(50e-6)}).startswith("On too few samples")
    assert advised(fast={1: outcome(4e-6)}).startswith("Use fast")


def test_advice_over_sizes_says_where_it_does_not_hold() -> None:
    text = advised(
        one={1: outcome(50e-6), 2: outcome(25e-6), 4: outcome(90e-6)},
        two={1: outcome(80e-6), 2: outcome(80e-6), 4: outcome(40e-6)},
    )
    assert text.startswith(
        "Use one: fastest, or within noise of it, at 2 of 3 settings, 2.1× eager on average"
    )
    assert "(1.1× to 4.0×)" in text and text.endswith("; else two (1).")
    wrong = Outcome("differs", "output: error 1", outcome(1e-6).record)
    assert advised(wrong={1: wrong}).startswith("No point was measured and found to agree")


# -- how it looks ----------------------------------------------------------------------------------


def test_html_escapes_and_plot_filters() -> None:
    pytest.importorskip("plotly")
    times = {1: outcome(50e-6), 2: Outcome("failed", "<script>alert(1)</script>")}
    points = {
        Point((("backend", name), ("n", size), ("dtype", kind))): made
        for name in ("eager", "<b>")
        for kind in ("float32", "bfloat16")
        for size, made in times.items()
    }
    grid = Grid.parse({"backend": ["eager", "<b>"], "n": [1, 2], "dtype": ["float32", "bfloat16"]})
    found = Sweep(grid, points, {point: str(point) for point in points}, ("a note & more",))
    html = found._repr_html_()
    assert "&lt;script&gt;" in html and "<script" not in html and "a note &amp; more" in html
    assert "<style" not in html and "class=" not in html and html.count("<tr") == 9
    bundle = found._repr_mimebundle_()
    text = bundle["text/plain"]
    assert "eager beside it" in text and "× eager is against the eager that was timed beside" in text and html
    assert "0.000" not in text, "each time with its unit, eager's too"
    assert bundle["text/html"] == html and text.startswith("<Sweep of 8 points: 4 ok, 4 failed>")
    assert text.count("50 µs") == 4 and text.count("failed: <script>") == 4 and "a note & more" in text
    figure = found.plot()
    assert len(figure.data) == 4 and list(figure.data[0].x) == [1]
    labels = [button.label for button in figure.layout.updatemenus[0].buttons]
    assert labels == ["all", "backend = eager", "backend = <b>", "dtype = float32", "dtype = bfloat16"]
    assert figure.layout.updatemenus[0].buttons[3].args[0]["visible"] == [True, False, True, False]
    panels = found.plot(x="n", y="speedup", color="dtype", facet="backend")
    assert len(panels.data) == 4 and {trace.xaxis for trace in panels.data} == {"x", "x2"}
    with pytest.raises(MeasureError, match="'C' cannot be drawn"):
        found.plot(x="C")


def test_a_terminal_has_the_table_and_says_what_was_skipped() -> None:
    points = {
        Point((("backend", name), ("mode", mode))): made
        for name, mode, made in (
            ("eager", "default", outcome(20e-6)),
            ("nbcompile", "default", outcome(40e-6)),
            ("eager", "max-autotune", Outcome("skipped", "eager has no modes")),
        )
    }
    grid = Grid.parse({"backend": ["eager", "nbcompile"], "mode": ["default", "max-autotune"]})
    text = repr(Sweep(grid, points, {point: str(point) for point in points}))
    assert "20 µs" in text and "40 µs" in text
    assert "Not run: eager max-autotune (eager has no modes)" in " ".join(text.split())
