"""A record is on screen as soon as its cell has run, and grows while it is measured."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from typing import Any

import pytest

from nbcompile.bench.measure import compare
from nbcompile.notebook import display, magics, progress
from nbcompile.record.compilation import Compilation
from nbcompile.record.packed import unpack
from nbcompile.view import MIME, pending
from tests.notebook.conftest import Notebook

CELL = "y = torch.softmax(x, -1)\nz = y.sum()"


@pytest.fixture
def shown(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What is put in the place of the record, one after the other; progress lines are left out."""
    found: list[dict[str, Any]] = []

    def put(bundle: dict[str, Any], **_: Any) -> None:
        if MIME in bundle:
            found.append(bundle)

    monkeypatch.setattr(magics, "show", display.show)
    monkeypatch.setattr(notebook.shell, "kernel", types.SimpleNamespace(), raising=False)
    monkeypatch.setattr(progress, "_display", put)
    monkeypatch.setattr(progress, "_update", put)
    notebook.fresh("x = torch.randn(64, 64)")
    notebook.run("%config NbCompile.bench_seconds = 0.3")
    yield found


def names(bundle: dict[str, Any]) -> list[str]:
    return [item.contestant for item in Compilation.from_dict(bundle[MIME]).measurements if item.median]


def test_it_is_there_at_once_then_with_our_times_then_with_all(
    notebook: Notebook, shown: list[dict[str, Any]]
) -> None:
    notebook.run(f"%%compile --compare eager,nbcompile,aot_eager\n{CELL}")
    first, *_, last = shown
    assert names(first) == [] and "about to be timed…" in first["text/plain"]
    assert "not timed" not in first["text/plain"] and "…" not in last["text/plain"].splitlines()[1]
    assert names(last) == ["eager", "nbcompile", "aot_eager"]
    assert ["eager", "nbcompile"] in [names(each) for each in shown], "before others have compiled"
    assert len({each[MIME]["id"] for each in shown}) == 1, "one record, so that what is chosen in it stays"


def test_a_large_one_is_there_without_some_of_its_graphs_first(
    notebook: Notebook, shown: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "LARGE", 3)
    notebook.run(f"%%compile --compare eager,nbcompile\n{CELL}")
    first, second, *_, last = shown
    stages = [[graph.stage for graph in Compilation.from_dict(each[MIME]).graphs] for each in shown]
    assert set(stages[0]) == {"loops", "fused"}
    assert stages[1] == stages[-1] and {"fx", "forward"} < set(stages[1])
    views = [json.loads(unpack(each[MIME]))["view"] for each in (first, second, last)]
    assert [view.get("pending", {}).get("sketch", False) for view in views] == [True, False, False]
    for part in ("facts", "strip", "lines", "calls", "kernels", "verdict"):
        assert views[0][part] == views[1][part], "figures are those of the whole"
    assert [each["graph"] for each in views[0]["drawings"]] == [
        graph.id for graph in Compilation.from_dict(first[MIME]).graphs
    ]
    assert len(first["text/html"]) < len(second["text/html"])


@pytest.mark.nightly
def test_the_same_cell_again_compiles_nothing_for_its_peers(
    notebook: Notebook, shown: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"%%compile --compare eager,nbcompile,aot_eager\n{CELL}"
    notebook.run(line)
    del shown[:]
    made: list[str] = []
    compiled = compare._Comparison._compiled_step

    def counted(self: Any, entry: Any) -> Any:
        made.append(entry.contestant.name)
        return compiled(self, entry)

    monkeypatch.setattr(compare._Comparison, "_compiled_step", counted)
    notebook.run(line)
    assert made == [] and names(shown[-1]) == ["eager", "nbcompile", "aot_eager"]
    times = Compilation.from_dict(shown[-1][MIME]).measurements
    assert all(item.cold for item in times[1:]), "the times of its first compile are kept"
    notebook.run(line.replace("z = y.sum()", "z = y.mean()"))
    assert set(made) == {"nbcompile", "aot_eager"}, "another cell"
    del made[:]
    notebook.run("x = torch.randn(8, 8)")
    notebook.run(line)
    assert set(made) == {"nbcompile", "aot_eager"}, "other shapes"


def test_what_was_timed_before_an_interrupt_stays(
    notebook: Notebook, shown: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    enter = compare._Comparison._enter

    def interrupted(self: Any, entry: Any, slow: bool) -> None:
        if entry.contestant.name == "aot_eager":
            raise KeyboardInterrupt
        enter(self, entry, slow)

    monkeypatch.setattr(compare._Comparison, "_enter", interrupted)
    outcome = notebook.run(f"%%compile --compare eager,nbcompile,aot_eager\n{CELL}")
    assert "interrupted while measuring" in outcome.stdout
    assert names(shown[-1]) == ["eager", "nbcompile"]
    assert "Timing was stopped: what had been timed" in shown[-1]["text/plain"]
    assert not outcome.error


def test_an_interrupt_before_any_time_says_that_there_is_none(
    notebook: Notebook, shown: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Any, entry: Any, slow: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compare._Comparison, "_enter", interrupted)
    outcome = notebook.run(f"%%compile --compare eager,nbcompile\n{CELL}")
    assert "interrupted while measuring" in outcome.stdout and not outcome.error
    assert "Timing was stopped before it had a time." in shown[-1]["text/plain"]
    assert "stands here" not in shown[-1]["text/plain"]


@pytest.mark.nightly
def test_what_a_cell_calls_is_part_of_what_it_is(notebook: Notebook, shown: list[dict[str, Any]]) -> None:
    """A function that is defined anew often lies where the old one did."""
    line = "%%compile --compare eager,nbcompile,aot_eager\ny = g(x).sin()"
    for change in ("x * 2", "x * 3 + 1", "x * 5 - 2", "x.exp()"):
        notebook.run(f"def g(x):\n    return {change}")
        notebook.run(line)
        found = Compilation.from_dict(shown[-1][MIME]).accuracy
        assert {item.contestant for item in found if item.agrees} == {"nbcompile", "aot_eager"}, change


@pytest.mark.nightly
def test_what_those_call_may_change_too(notebook: Notebook, shown: list[dict[str, Any]]) -> None:
    notebook.run("scale = 2.0\ndef h(x):\n    return x * scale\ndef g(x):\n    return h(x) + 1")
    line = "%%compile --compare eager,nbcompile,aot_eager\ny = g(x).sin()"
    for change in ("", "scale = 3.0", "def h(x):\n    return x.cos() * scale", "x = x * 7"):
        notebook.run(change)
        notebook.run(line)
        found = Compilation.from_dict(shown[-1][MIME]).accuracy
        assert {item.contestant for item in found if item.agrees} == {"nbcompile", "aot_eager"}, change


def test_while_mends_are_tried_the_record_stays(
    notebook: Notebook, shown: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    every: list[dict[str, Any]] = []
    monkeypatch.setattr(progress, "_update", lambda bundle, **_: every.append(bundle))
    notebook.run("%%compile --compare eager,nbcompile\ny = x.sin() * 2\nprint(y.mean())\nz = y.sum()")
    first = next(place for place, bundle in enumerate(every) if MIME in bundle)
    assert all(MIME in bundle for bundle in every[first:]), "no line in its place"
    assert any("try mends…" in bundle["text/plain"] for bundle in every[first:])
    (item,) = Compilation.from_dict(every[-1][MIME]).breaks
    assert item.mend is not None and item.mend.after and item.price is not None
