"""What is not fused has a price: measured, or bounded by the memory that it moves; else none is claimed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import nbcompile
from nbcompile.record.advice.coach import Price
from nbcompile.record.compilation import Ceilings, Compilation
from nbcompile.record.provenance import Links
from nbcompile.view.facts import facts as fact
from nbcompile.view.facts.coaching import price_text
from nbcompile.view.facts.prices import briefly, forced, not_fused, prices
from nbcompile.view.scene import scene
from nbcompile.view.text import to_text

CEILINGS = Ceilings("cpu", bandwidth=1e9, float32_rate=1e12, matrix_rate=1e12, source="measured")


@pytest.fixture(scope="module")
def record() -> Compilation:
    """``softmax(x @ w)`` of 1 MB: a library call beside a kernel, of which no time was taken."""
    torch._dynamo.reset()
    x, w = torch.ones(1000, 256), torch.ones(256, 256)
    function = nbcompile.compile(lambda x, w: torch.softmax(x @ w, 1), options={"cache": False})
    function(x, w)
    return function.compilation


def timed(record: Compilation, seconds: dict[str, float]) -> Compilation:
    """The record with these times of calls, by their kind."""
    graphs = tuple(
        replace(graph, nodes=tuple(replace(node, seconds=seconds.get(node.kind)) for node in graph.nodes))
        if graph.stage == "fused"
        else graph
        for graph in record.graphs
    )
    return replace(record, graphs=graphs, ceilings=(CEILINGS,))


def of(record: Compilation) -> dict[str, Price]:
    return prices(record, fact.calls_of(record, Links(record)))


def test_nothing_is_known_without_times_and_rates(record: Compilation) -> None:
    assert of(replace(record, ceilings=())) == {}
    assert "Not fused\n" not in to_text(record)


def test_a_refused_pair_costs_at_most_its_memory_traffic(record: Compilation) -> None:
    slow = timed(record, {"library": 0.5, "kernel": 0.25})
    found = of(slow)
    refused = [each for each in slow.decisions if not each.accepted and each.bytes_saved >= 1e6]
    assert refused
    for each in refused:  # 1 MB of 1 GB a second
        assert found[each.id].milliseconds == pytest.approx(each.bytes_saved / 1e6)
        assert not found[each.id].measured
        assert briefly(found[each.id]).startswith("at most 1.02 ms")
        assert price_text(found[each.id]).startswith("costs at most 1.02 ms a call (1.02 MB at 1 GB/s")


def test_nothing_costs_more_than_the_calls_that_move_it(record: Compilation) -> None:
    quick = timed(record, {"library": 3e-5, "kernel": 2e-5})
    found = of(quick)
    refused = [each for each in quick.decisions if not each.accepted and each.bytes_saved >= 1e6]
    assert {round(found[each.id].milliseconds or 0.0, 9) for each in refused} == {0.05}
    assert "at most 50 µs" in to_text(quick)


def test_a_library_call_costs_its_time_and_the_text_says_why_it_is_one(record: Compilation) -> None:
    slow = timed(record, {"library": 0.5, "kernel": 0.25})
    calls = fact.calls_of(slow, Links(slow))
    ((call, told),) = not_fused(slow, calls, prices(slow, calls))
    assert call.name == "mm"
    assert told.startswith("costs 0.5 s a call (timed by itself, 67% of all calls; fusing it")
    assert "at most 2.05 ms" in told and told.endswith("matrix product: the BLAS does it best")
    text = to_text(slow)
    assert "Not fused\n  = mm costs 0.5 s a call" in text
    assert call.id in scene(slow).prices
    assert "Not fused" not in to_text(slow, show=("times",))


@pytest.mark.parametrize(
    ("milliseconds", "brief", "option", "whole"),
    [
        (2.0, "costs 2 ms", "costs 2 ms (-o force_fuse=a:b)", "costs 2 ms, 1 kernel a call"),
        (-2.0, "spares 2 ms", "", "spares 2 ms a call beside 1 kernel more"),
        (
            0.0,
            "costs no time that could be measured",
            "",
            "costs 1 kernel, no time that could be measured a call",
        ),
    ],
)
def test_what_was_timed_both_ways_is_told_as_measured(
    milliseconds: float, brief: str, option: str, whole: str
) -> None:
    price = Price(milliseconds, 1, measured=True)
    assert briefly(price) == brief
    assert price_text(price) == f"{whole} (measured with and without it)"
    assert forced(price, ("a", "b")) == option


def test_a_measured_price_goes_before_an_estimate(record: Compilation) -> None:
    slow = timed(record, {"library": 0.5, "kernel": 0.25})
    first = next(each for each in slow.decisions if not each.accepted)
    known = Price(0.125, 1, measured=True)
    decisions = tuple(replace(each, price=known) if each == first else each for each in slow.decisions)
    assert of(replace(slow, decisions=decisions))[first.id] == known
