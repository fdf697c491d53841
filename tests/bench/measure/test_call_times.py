"""The time of each kernel and library call, taken inside a run."""

from __future__ import annotations

import math
import time
from functools import partial

import torch

import nbcompile
from nbcompile.bench.measure.call_times import call_times, same_calls, with_call_times
from nbcompile.bench.measure.compare import compare

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

    seconds = call_times(run, compiled.stopwatches, budget=0.05)
    assert seconds.keys() == calls_of(compiled.compilation).keys()
    assert len(seconds) >= 2 and all(0 < value < math.inf for value in seconds.values())
    assert sum(seconds.values()) <= 2 * max(runs)  # medians of parts, against the slowest of the wholes
    record = with_call_times(compiled.compilation, seconds)
    assert calls_of(record) == seconds
    assert all(kernel.seconds == seconds[kernel.id] for kernel in record.kernels)
    assert nbcompile.Compilation.from_json(record.to_json()) == record


def test_the_watch_is_off_afterwards_and_a_warm_compile_has_steps_too() -> None:
    for _ in range(2):  # the second one's code comes from the cache
        compiled = nbcompile.compile(program)
        compiled(X, W)
        assert call_times(partial(compiled, X, W), compiled.stopwatches, budget=0.01)
        assert not any(watch.running or watch.laps for watch in compiled.stopwatches.values())


def test_forward_and_backward_are_timed_in_a_comparison() -> None:
    layer = torch.nn.Linear(64, 64)
    record = compare(lambda x: torch.relu(layer(x)).sum(), (X[:, :64],), ("eager", "nbcompile"), train=True,
                     cold=False, budget=0.2)  # fmt: skip
    found = calls_of(record)
    assert {id.split(".")[1] for id in found} == {"fw", "bw"}
    assert all(value is not None and value > 0 for value in found.values())
    assert all(kernel.seconds for kernel in record.kernels)


def test_times_go_to_the_same_calls_only() -> None:
    timed = with_call_times(first := _record(program), dict.fromkeys(calls_of(first), 1.0))
    assert same_calls(first, timed) == calls_of(timed)
    other = _record(lambda x, w: torch.sigmoid(x @ w).sum(-1))
    kept = same_calls(other, timed)
    names = {node.id: node.name for graph in other.graphs for node in graph.nodes}
    assert all(names[id] == {n.id: n.name for g in timed.graphs for n in g.nodes}[id] for id in kept)
    assert not any(kernel.id in kept for kernel in other.kernels)


def _record(fn: object) -> nbcompile.Compilation:
    compiled = nbcompile.compile(fn)  # type: ignore[arg-type]
    compiled(X, W)
    return compiled.compilation
