"""The time of each kernel and library call, taken inside a run."""

from __future__ import annotations

import dataclasses
import math
import time
from functools import partial

import torch

import nbcompile
from nbcompile.bench.measure.call_times import CallTimes, call_times, same_calls, with_call_times
from nbcompile.bench.measure.compare import compare
from nbcompile.record.provenance import Links
from nbcompile.view.facts.facts import facts

X = torch.randn(256, 512)
W = torch.randn(512, 512)


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ w, -1) * 2


def calls_of(record: nbcompile.Compilation) -> dict[str, float | None]:
    kinds = ("kernel", "library", "fallback")
    return {
        node.id: node.seconds
        for graph in record.graphs
        if graph.stage == "fused"
        for node in graph.nodes
        if node.kind in kinds
    }


def test_every_kernel_and_call_is_timed_and_their_sum_is_no_more_than_the_run() -> None:
    compiled = nbcompile.compile(program)
    want = compiled(X, W)
    runs: list[float] = []

    def run() -> None:
        start = time.perf_counter()
        assert torch.equal(compiled(X, W), want)
        runs.append(time.perf_counter() - start)

    found = call_times(run, compiled.stopwatches, budget=0.05)
    seconds = found.seconds
    assert seconds.keys() == calls_of(compiled.compilation).keys()
    assert len(seconds) >= 2 and all(0 < value < math.inf for value in seconds.values())
    assert sum(seconds.values()) <= 2 * max(runs)  # medians of parts, against the slowest of the wholes
    record = with_call_times(compiled.compilation, found)
    assert calls_of(record) == seconds
    assert all(kernel.seconds == seconds[kernel.id] for kernel in record.kernels)
    assert nbcompile.Compilation.from_json(record.to_json()) == record


def test_the_watch_is_off_afterwards_and_a_warm_compile_has_steps_too() -> None:
    for _ in range(2):  # the second one's code comes from the cache
        compiled = nbcompile.compile(program)
        compiled(X, W)
        assert call_times(partial(compiled, X, W), compiled.stopwatches, budget=0.01).seconds
        assert not any(watch.running or watch.laps for watch in compiled.stopwatches.values())


def test_forward_and_backward_are_timed_in_a_comparison() -> None:
    layer = torch.nn.Linear(64, 64)
    record = compare(lambda x: torch.relu(layer(x)).sum(), (X[:, :64],), ("eager", "nbcompile"), train=True,
                     cold=False, budget=0.2)  # fmt: skip
    found = calls_of(record)
    assert {id.split(".")[1] for id in found} == {"fw", "bw"}
    assert all(value is not None and value > 0 for value in found.values())
    assert all(kernel.seconds for kernel in record.kernels)


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() + 1
    torch._dynamo.graph_break()
    return y.exp() * 2


def test_what_a_call_runs_several_times_is_counted_and_its_time_is_of_one_run() -> None:
    def three_times(x: torch.Tensor) -> torch.Tensor:
        return breaks(breaks(breaks(x)))

    record = compare(three_times, (X,), ("eager", "nbcompile"), cold=False, budget=0.2)
    assert set(record.runs.values()) == {3}, record.runs
    calls = facts(record, Links(record)).calls
    spent = {id: seconds for id, seconds in calls_of(record).items() if seconds is not None}
    assert {call.id: call.seconds for call in calls} == {id: 3 * each for id, each in spent.items()}
    assert facts(record, Links(record)).moved == 3 * sum(
        k.bytes_read + k.bytes_written for k in record.kernels
    )
    assert nbcompile.Compilation.from_json(record.to_json()) == record


def test_what_several_graphs_share_is_each_ones_as_often_as_it_runs() -> None:
    """A function that breaks the graph is compiled anew for each part of a cell, and once for its times."""
    once = _record(breaks, X)
    fused = once.of_stage("fused")
    spent = CallTimes(dict.fromkeys(calls_of(once), 1.0), {"g0.fw": 3, "g1.fw": 3})
    timed = with_call_times(once, spent)
    copies = [
        dataclasses.replace(
            graph,
            id=graph.id.replace(f"g{number}", f"g{number + 2}"),
            nodes=tuple(
                dataclasses.replace(
                    node,
                    id=node.id.replace(f"g{number}", f"g{number + 2}"),
                    inputs=tuple(each.replace(f"g{number}", f"g{number + 2}") for each in node.inputs),
                )
                for node in graph.nodes
            ),
        )
        for number, graph in enumerate(fused)
    ]
    cell = dataclasses.replace(once, graphs=(*fused, *copies))
    found = same_calls(cell, timed, ["g0", "g1", "g2", "g3", "g2", "g3"])
    assert found.runs == {"g0.fw": 1, "g1.fw": 1, "g2.fw": 2, "g3.fw": 2}
    assert found.seconds == dict.fromkeys(calls_of(cell), 1.0)
    assert same_calls(cell, timed, ["g0", "g1", "g2", "g3"]) == CallTimes(), "which ran twice is not known"


def test_times_go_to_the_same_calls_only() -> None:
    timed = with_call_times(first := _record(program), CallTimes(dict.fromkeys(calls_of(first), 1.0)))
    assert same_calls(first, timed).seconds == calls_of(timed)
    other = _record(lambda x, w: torch.sigmoid(x @ w).sum(-1))
    kept = same_calls(other, timed).seconds
    names = {node.id: node.name for graph in other.graphs for node in graph.nodes}
    assert all(names[id] == {n.id: n.name for g in timed.graphs for n in g.nodes}[id] for id in kept)
    assert not any(kernel.id in kept for kernel in other.kernels)


def _record(fn: object, *inputs: torch.Tensor) -> nbcompile.Compilation:
    compiled = nbcompile.compile(fn)  # type: ignore[arg-type]
    compiled(*(inputs or (X, W)))
    return compiled.compilation
