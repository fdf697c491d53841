"""Which kernel the time goes to: each kernel and library call of a program timed where it stands.

Times of steps inside a run, not of kernels alone in a loop: the caches are as the step before left them. On
the CPU a step's time includes its launch from Python (about a microsecond); the steps of a run add up to the
run, but for what AOTAutograd and torch's autograd do around the graphs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from nbcompile.record.compilation import Compilation, Graph
from nbcompile.record.recorder import KernelStopwatch

MIN_RUNS, MAX_RUNS = 5, 50


def call_times(
    call: Callable[[], object],
    stopwatches: Mapping[str, KernelStopwatch],
    *,
    budget: float,
    reset: Callable[[], object] | None = None,
) -> dict[str, float]:
    """Median seconds of each kernel and library call that ``call()`` runs, by its id.

    Runs for about ``budget`` seconds, 5 to 50 times; ``reset`` goes before each run. A graph that several
    parts of one run go through counts each time it runs. Call within
    :func:`nbcompile.bench.measure.timing.quiet`.
    """
    for watch in stopwatches.values():
        watch.laps.clear()
        watch.running = True
    begun, runs = time.perf_counter(), 0
    try:
        while runs < MIN_RUNS or (runs < MAX_RUNS and time.perf_counter() - begun < budget):
            if reset is not None:
                reset()
            call()
            runs += 1
            if time.perf_counter() - begun > 4 * budget:
                break
    finally:
        for watch in stopwatches.values():
            watch.running = False
    found: dict[str, list[float]] = {}
    for watch in stopwatches.values():
        for lap in watch.laps:
            for id, seconds in lap.items():
                found.setdefault(id, []).append(seconds)
        watch.laps.clear()
    return {id: float(f"{statistics.median(seconds):.3g}") for id, seconds in found.items()}


def with_call_times(compilation: Compilation, seconds: Mapping[str, float]) -> Compilation:
    """The record with these times at its kernels and at the nodes of its fused graphs."""
    if not seconds:
        return compilation

    def timed(graph: Graph) -> Graph:
        if graph.stage != "fused":
            return graph
        nodes = (replace(node, seconds=seconds.get(node.id, node.seconds)) for node in graph.nodes)
        return replace(graph, nodes=tuple(nodes))

    return replace(
        compilation,
        graphs=tuple(map(timed, compilation.graphs)),
        kernels=tuple(replace(k, seconds=seconds.get(k.id, k.seconds)) for k in compilation.kernels),
    )


def same_calls(compilation: Compilation, timed: Compilation) -> dict[str, float]:
    """Times of ``timed``'s kernels and calls that ``compilation`` has too: the same program compiled again
    has the same ids, and what is called the same and moves as much is the same call."""
    known = {node.id: (node.name, node.op, node.shape) for node in compilation.fused_nodes}
    return {
        node.id: node.seconds
        for node in timed.fused_nodes
        if node.seconds is not None and known.get(node.id) == (node.name, node.op, node.shape)
    }


def with_backward(compilation: Compilation, timed: Compilation) -> Compilation:
    """The record with the backward graphs of ``timed`` where it has none: AOTAutograd compiles these at the
    first backward, which a cell may leave to a later one, and timing it does not. Of the same forward graphs
    only."""
    if compilation.of_stage("backward") or timed.backend != compilation.backend:
        return compilation
    texts = {graph.id: graph.text for graph in compilation.graphs}
    same = {
        graph.id.removesuffix(".joint")
        for graph in timed.of_stage("joint")
        if texts.get(graph.id) == graph.text
    }

    def is_new(id: str) -> bool:
        return any(id.startswith(f"{name}.bw.") or id == f"{name}.bw" for name in same)

    return replace(
        compilation,
        graphs=(*compilation.graphs, *(graph for graph in timed.graphs if is_new(graph.id))),
        kernels=(*compilation.kernels, *(kernel for kernel in timed.kernels if is_new(kernel.graph))),
        decisions=(*compilation.decisions, *(each for each in timed.decisions if is_new(each.graph))),
        passes=(*compilation.passes, *(each for each in timed.passes if is_new(each.after))),
    )
