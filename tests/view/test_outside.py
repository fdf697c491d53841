"""What a cell's times leave out is said wherever a time, a share or a gain is, in every form."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nbcompile import view
from nbcompile.record.compilation import Compilation, LineFate, Measurement, TimedCellPart
from nbcompile.record.measured import TimedLoop
from nbcompile.view.scene import scene
from tests.view.fixtures import samples, transformer

PYTHON = TimedCellPart(python=(9, 11), python_seconds=0.0103)
LOOP = TimedCellPart(loops=(TimedLoop(3, 1000),), single=True)
MIXED = TimedCellPart(python=(11,), kept=(5,), loops=(TimedLoop(3, 1000),))


def timed(part: TimedCellPart | None, eager: float = 2e-3, ours: float = 1e-3, what: str = "") -> Compilation:
    what = what or ("cell" if part is None else part.name)
    return transformer(
        timed_part=part,
        compile_seconds=1.0,
        lines=(LineFate(9, 9, "eager", "random.random runs in Python"),),
        measurements=(
            Measurement(what, "eager", steady=samples(1, eager)),
            Measurement(what, "nbcompile", steady=samples(2, ours)),
        ),
    )


SAID = {
    "shared": (
        TimedCellPart(python=(2, 4, 9)), "compiled lines: 2.0× faster than eager; "
        "line 9 runs in Python and is not timed; part of lines 2, 4 runs in Python and is not timed",
    ),
    "python": (PYTHON, "compiled lines: 2.0× faster than eager; lines 9, 11 run in Python and are not timed"),
    "loop": (LOOP, "one pass of the loop in line 3 (of 1,000): 2.0× faster than eager"),
    "mixed": (
        MIXED, "compiled lines: 2.0× faster than eager; one pass of the loop in line 3 (of 1,000) is timed; "
        "line 11 runs in Python and is not timed; line 5 cannot be run again and is not timed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_the_headline_says_what_its_times_are_of(name: str) -> None:
    part, said = SAID[name]
    record = timed(part)
    drawn = scene(record)
    assert drawn.verdict.text == said
    assert said in view.to_text(record).replace("\n", " ")
    assert said in view.to_html(record)
    assert "cell:" not in drawn.verdict.detail and "cell" not in {each.what for each in drawn.timings}


def test_what_python_took_is_said_beside_it() -> None:
    assert "Python took 10.3 ms for the rest when the cell ran" in scene(timed(PYTHON)).verdict.detail
    assert "Python took" not in scene(timed(LOOP)).verdict.detail


def test_nothing_is_said_to_pay_off_for_the_cell() -> None:
    assert any("runs of the compiled lines" in fact for fact in scene(timed(PYTHON)).facts)
    assert any("pays off after" in fact and fact.endswith(" passes") for fact in scene(timed(LOOP)).facts)
    whole = scene(timed(None))
    assert any("pays off after" in fact and "calls" in fact for fact in whole.facts)
    assert whole.verdict.text == "2.0× faster than eager" and whole.verdict.detail.startswith("cell: ")


def test_the_table_the_shares_and_the_reason_say_it_too() -> None:
    record = timed(PYTHON)
    drawn, text = scene(record), view.to_text(record)
    (timing,) = drawn.timings
    assert timing.what == "compiled lines" and "lines 9, 11 run in Python and are not timed" in timing.about
    outside = timed(TimedCellPart(python=(2, 9)))
    why = {line.number: line.why for line in scene(outside).lines}
    assert why[2] == "part of it is not timed"
    assert why[9] == "random.random runs in Python; not timed"
    assert "random.random runs in Python; not timed" in view.to_text(outside)
    assert "random.random runs in Python; not timed" in view.to_html(outside)
    assert "of the compiled lines)" in text.replace("\n", " ") and "moved in the compiled lines" in text
    seconds = dataclasses.replace(
        record,
        graphs=tuple(
            dataclasses.replace(
                graph, nodes=tuple(dataclasses.replace(node, seconds=1e-4) for node in graph.nodes)
            )
            for graph in record.graphs
        ),
        kernels=tuple(dataclasses.replace(kernel, seconds=1e-4) for kernel in record.kernels),
    )
    assert scene(seconds).why.startswith("Of the compiled lines: ")
    (timing,) = scene(timed(LOOP)).timings
    assert timing.what == "one pass" and timing.about.startswith("one pass of the loop in line 3 (of 1,000)")
    of_loop = timed(TimedCellPart(loops=(TimedLoop(9, 1000),), single=True))
    loop = dataclasses.replace(of_loop, lines=(LineFate(9, 9, "python", "a loop, run step by step"),))
    (last,) = [line.why for line in scene(loop).lines if line.number == 9]
    assert last == "one pass of 1,000 is timed; a loop, run step by step"


def test_backward_keeps_its_name() -> None:
    record = timed(LOOP, what="forward+backward")
    assert scene(record).verdict.text.startswith("one pass of the loop in line 3")
    assert scene(record).verdict.detail.startswith("forward+backward: ")


@pytest.mark.parametrize(
    "strange", [{"single": True}, {"loops": (TimedLoop(-1, 0),) * 3}, {"kept": (1,) * 99}]
)
def test_a_strange_record_is_shown(strange: dict[str, Any]) -> None:
    record = Compilation.from_json(timed(TimedCellPart(**strange)).to_json())
    assert view.to_text(record) and view.to_html(record) and scene(record)
