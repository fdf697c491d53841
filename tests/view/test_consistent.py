"""No two numbers of one screen contradict each other: 60 rendered records are read for it.

What is read is what a person reads: the words of the HTML, the lines of the text, and the scene that the
explorer draws. A number that two places say has to be the same number in both.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
from collections.abc import Callable, Iterator

import pytest

from nbcompile import view
from nbcompile.record.compilation import Compilation, Measurement
from nbcompile.units import bytes_text, seconds_text, speed_text
from nbcompile.view.facts import facts as fact
from nbcompile.view.scene import Scene, scene
from tests.view import fixtures, fixtures_gpu, fixtures_real
from tests.view.test_views import read

BASES: dict[str, Callable[[], Compilation]] = {
    "transformer": fixtures.transformer,
    "with a break": fixtures.with_break,
    "failed": fixtures.failed,
    "gpu": fixtures_gpu.gpu,
    "many kernels": lambda: fixtures_gpu.many(9, measured=True),
    "real": fixtures_real.real,
}
# (our median over eager's, spread of both, whether compiled code ran)
TIMES = [
    (0.44, 0.02, True), (0.999, 0.02, True), (1.8, 0.02, True), (0.93, 0.3, True), (0.96, 0.001, True),
    (1.0151, 0.001, True), (0.7, 0.02, False), (0.0831, 0.05, True), (12.4, 0.05, True), (0.8451, 0.4, True),
]  # fmt: skip
WRONG = 4
"""Of TIMES: these records have results that differ from eager's."""
RECORDS = list(itertools.product(BASES, range(len(TIMES))))


def samples(median: float, spread: float, seed: int) -> tuple[float, ...]:
    draw = random.Random(seed)
    return tuple(median * (1 + spread * (draw.random() - 0.5)) for _ in range(60))


def record_of(base: str, times: int) -> Compilation:
    """One of the records with times of its own. Calls take more than the whole now and then, as sampled ones
    do."""
    ratio, spread, ran = TIMES[times]
    made = BASES[base]()
    ran = ran and base != "failed"  # nothing of it is compiled
    ours = made.backend or "nbcompile"
    eager_time = 10 ** -(1 + times % 4) * 1.237
    measurements = (
        Measurement("cell", "eager", steady=samples(eager_time, spread, times), threads=1),
        Measurement(
            "cell", ours, cold=0.31, warm=0.02, first=0.003, threads=1, ran_compiled=ran,
            steady=samples(eager_time * ratio, spread, 100 + times), reason="" if ran else "it said so",
        ),
        Measurement("cell", "inductor", cold=3.1, steady=samples(eager_time * 0.7, spread, 200), threads=1),
    )  # fmt: skip
    kernels = tuple(
        dataclasses.replace(
            kernel, seconds=eager_time * ratio * (1.3 if times % 3 == 0 else 0.6) / (place + 1)
        )
        for place, kernel in enumerate(made.kernels)
    )
    if times % 2:  # all that runs has a time, so that the rest of a call is known
        small = eager_time * ratio * 0.02 / (1 + sum(len(graph.nodes) for graph in made.graphs))
        graphs = tuple(
            dataclasses.replace(
                graph, nodes=tuple(dataclasses.replace(node, seconds=small) for node in graph.nodes)
            )
            for graph in made.graphs
        )
        made = dataclasses.replace(made, graphs=graphs, breaks=made.breaks if times % 4 == 1 else ())
        kernels = tuple(dataclasses.replace(kernel, seconds=small) for kernel in made.kernels)
    if times == WRONG and made.accuracy:
        first, *rest = made.accuracy
        wrong = dataclasses.replace(first, contestant=ours, agrees=False, reason="it is off by 3")
        made = dataclasses.replace(made, accuracy=(wrong, *rest))
    return dataclasses.replace(made, measurements=measurements, kernels=kernels, execution="compiled")


@pytest.fixture(params=RECORDS, ids=lambda which: f"{which[0]} {which[1]}", scope="module")
def shown(request: pytest.FixtureRequest) -> Iterator[tuple[Compilation, Scene, tuple[str, str]]]:
    record = record_of(*request.param)
    words = " ".join(" ".join(read(view.to_html(record)).words).split())
    yield record, scene(record), (words, view.to_text(record))


PART = re.compile(r"([\d.]+ (?:s|ms|µs|ns)) of ([\d.]+ (?:s|ms|µs|ns)) (?:a call|go to)")
Shown = tuple[Compilation, Scene, tuple[str, str]]


def test_there_are_sixty_and_what_is_asked_of_them_is_there() -> None:
    """Else a test below could hold of nothing."""
    assert len(RECORDS) == 60
    said = [(scene(record), view.to_text(record)) for record in (record_of(*which) for which in RECORDS)]
    for words in ("faster than", "slower than", "as fast as", "no clear", "ran eager", "differs from eager"):
        assert any(words in drawn.verdict.text for drawn, _ in said), words
    for words in ("pays off after", "never pays off", "results differ from eager"):
        assert any(words in " ".join(drawn.facts) for drawn, _ in said), words
    assert any(PART.search(text) for _, text in said)


def test_nothing_is_over_a_whole(shown: Shown) -> None:
    _, drawn, texts = shown
    for text in texts:
        over = [
            found
            for found in re.findall(r"(\d[\d,]*(?:\.\d+)?)%", text)
            if float(found.replace(",", "")) > 100
        ]
        assert not over, text
        for part, whole in PART.findall(text):
            assert in_seconds(part) <= in_seconds(whole), text
    assert sum(call.share for call in drawn.calls) <= 1 + 1e-9
    assert sum(line.share for line in drawn.lines) <= 1 + 1e-9
    points = drawn.roofline.points if drawn.roofline else ()
    assert all(point.limit is None or point.limit > 0 for point in points)


def in_seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]


def test_every_place_counts_alike(shown: Shown) -> None:
    record, drawn, texts = shown
    made, fused = len(record.kernels), sum(call.fate == "fused" for call in drawn.calls)
    assert fused == made
    strip = {step.step: step.figure for step in drawn.strip}
    facts = " ".join(drawn.facts)
    for text in (facts, strip.get("codegen", "")):
        assert all(int(found) == made for found in re.findall(r"(\d+) kernels?\b", text)), text
    accepted = sum(decision.accepted for decision in record.decisions)
    if record.decisions:
        assert strip["fuse"] == f"{accepted:,} of {len(record.decisions):,} pairs"
        assert all(
            re.search(rf"Fusion[^:]*: {accepted} of {len(record.decisions)} pair", text) for text in texts
        )
    breaks = re.search(r"(\d+) breaks?\b", facts)
    assert breaks and int(breaks[1]) == len(record.breaks)
    again = {each.graph for each in record.recompiles}  # one call runs one graph of those
    moved = sum(call.bytes for call in drawn.calls if call.graph.split(".")[0] not in again)
    assert (f"{bytes_text(moved)} moved" in facts) == (moved > 0)


def test_every_place_says_the_same_time(shown: Shown) -> None:
    record, drawn, texts = shown
    ours, eager = fact.own_measurement(record)
    assert ours is not None and eager is not None and ours.median and eager.median
    row = next(row for row in drawn.timings[0].rows if row.own)
    base = next(row for row in drawn.timings[0].rows if row.contestant == "eager")
    assert row.median == ours.median and base.median == eager.median
    run = next((step.figure for step in drawn.strip if step.step == "run"), "")
    if not ours.counts:
        assert "ran eager" in drawn.verdict.text and drawn.verdict.tone == "bad"
        assert seconds_text(ours.median) not in run
        assert not any(f"{seconds_text(ours.median)} a call" in text for text in texts)
        return
    assert seconds_text(row.median) in run
    said = re.search(r"([\d.,]+)×", drawn.verdict.text)
    if said:
        assert said[0] == speed_text(eager.median / ours.median)
        assert row.ratio and speed_text(row.ratio) == said[0]
        assert all(said[0] in text for text in texts)


def test_what_pays_off_is_faster(shown: Shown) -> None:
    _, drawn, texts = shown
    row = next(row for row in drawn.timings[0].rows if row.own)
    facts = " ".join(drawn.facts)
    pays = re.search(r"pays off after ([\d,]+) calls?", facts)
    if pays:
        assert "faster" in drawn.verdict.text and row.break_even == int(pays[1].replace(",", ""))
    if "faster" in drawn.verdict.text and row.cold:
        assert pays
    if "differs" in drawn.verdict.text:
        assert "pays off" not in facts and row.break_even is None and not row.never
    if "never pays off" in facts:
        assert "slower" in drawn.verdict.text and row.never
    if "clear difference" in drawn.verdict.text or "as fast" in drawn.verdict.text:
        assert "pays off" not in facts and row.break_even is None
        assert not any("pays off after 1" in text for text in texts)


def test_right_and_wrong_are_said_once(shown: Shown) -> None:
    record, drawn, texts = shown
    wrong = [each for each in record.accuracy if not each.agrees and each.contestant == record.backend]
    facts = " ".join(drawn.facts)
    ours, _ = fact.own_measurement(record)
    if wrong and ours is not None and ours.counts:
        assert "differs from eager" in drawn.verdict.text and "results differ from eager" in facts
    if not wrong:
        assert "differ" not in facts and "differs from eager" not in drawn.verdict.text
    assert all(
        ("differs from eager" in text) == ("differs from eager" in drawn.verdict.text) for text in texts
    )
