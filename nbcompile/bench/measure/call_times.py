"""Which kernel the time goes to: each kernel and library call of a program timed where it stands.

Times of steps inside a run, not of kernels alone in a loop: the caches are as the step before left them. On
the CPU a step's time includes its launch from Python (about a microsecond); the steps of a run add up to the
run, but for what AOTAutograd and torch's autograd do around the graphs.
"""

from __future__ import annotations

import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nbcompile.record.compilation import Compilation, Graph
from nbcompile.record.recorder import KernelStopwatch

MIN_RUNS, MAX_RUNS = 5, 50


@dataclass(frozen=True)
class CallTimes:
    """``seconds`` of one run of each kernel and library call, by its id; ``runs``: how often one call runs
    each graph (``g0.fw``). The seconds of a kernel times the runs of its graph are its part of the call."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)


def call_times(
    call: Callable[[], object],
    stopwatches: Mapping[str, KernelStopwatch],
    *,
    budget: float,
    reset: Callable[[], object] | None = None,
) -> CallTimes:
    """Median times of each kernel and library call that ``call()`` runs, and how often it runs them.

    Runs for about ``budget`` seconds, 5 to 50 times; ``reset`` goes before each run. A graph that one run
    goes through several times counts with the mean of these. Call within
    :func:`nbcompile.bench.measure.timing.quiet`.
    """
    for watch in stopwatches.values():
        watch.laps.clear()
        watch.running = True
    begun, calls = time.perf_counter(), 0
    means: dict[str, list[float]] = {}
    counts: dict[str, list[int]] = {graph: [] for graph in stopwatches}
    try:
        while calls < MIN_RUNS or (calls < MAX_RUNS and time.perf_counter() - begun < budget):
            if reset is not None:
                reset()
            call()
            calls += 1
            for graph, watch in stopwatches.items():
                counts[graph].append(len(watch.laps))
                for id in watch.laps[0] if watch.laps else ():
                    means.setdefault(id, []).append(statistics.fmean(lap[id] for lap in watch.laps))
                watch.laps.clear()
            if time.perf_counter() - begun > 4 * budget:
                break
    finally:
        for watch in stopwatches.values():
            watch.running = False
            watch.laps.clear()
    return CallTimes(
        {id: float(f"{statistics.median(seconds):.3g}") for id, seconds in means.items()},
        {graph: int(statistics.median_high(each)) for graph, each in counts.items() if any(each)},
    )


def with_call_times(compilation: Compilation, times: CallTimes) -> Compilation:
    """The record with these times at its kernels and at the nodes of its fused graphs, and at these how often
    each runs."""
    if not times.seconds:
        return compilation
    seconds = times.seconds

    def timed(graph: Graph) -> Graph:
        if graph.stage != "fused":
            return graph
        nodes = (replace(node, seconds=seconds.get(node.id, node.seconds)) for node in graph.nodes)
        return replace(graph, nodes=tuple(nodes), runs=times.runs.get(_program(graph), 0) or graph.runs)

    return replace(
        compilation,
        graphs=tuple(map(timed, compilation.graphs)),
        kernels=tuple(replace(k, seconds=seconds.get(k.id, k.seconds)) for k in compilation.kernels),
    )


def with_runs(compilation: Compilation, ran: Sequence[str]) -> Compilation:
    """The record with how often each of its graphs is among those that ``ran`` (``g0``); a backward graph
    runs as often as its forward one."""
    counts = Counter(ran)
    graphs = (
        replace(graph, runs=counts[_captured(graph)] or 1) if graph.stage == "fused" else graph
        for graph in compilation.graphs
    )
    return replace(compilation, graphs=tuple(graphs))


def same_calls(compilation: Compilation, timed: Compilation, ran: Sequence[str] = ()) -> CallTimes:
    """Times of ``timed``'s kernels and calls that ``compilation`` has too, and how often its graphs run: of
    the same program compiled again. ``ran``: the graphs of ``compilation`` that it is of (``g0``), as often
    as they run; by default all, once each.

    A function that breaks the graph, and that several parts of a cell call, is compiled for each of them in
    the cell and once in ``timed``. So graphs are paired by what is in them; where one stands for several, all
    their runs have to be accounted for, or it is not known which runs how often.
    """
    counts = Counter(ran or {_captured(graph) for graph in compilation.of_stage("fused")})
    own = _by_content(graph for graph in compilation.of_stage("fused") if _captured(graph) in counts)
    seconds: dict[str, float] = {}
    runs: dict[str, int] = {}
    for content, others in _by_content(timed.of_stage("fused")).items():
        with_times = [graph for graph in others if any(node.seconds is not None for node in graph.nodes)]
        for graph, same, count in _paired(own.get(content, []), with_times, counts):
            runs[_program(graph)] = count
            for place, node in enumerate(graph.nodes):
                taken = [(each.nodes[place].seconds, each.runs) for each in same]
                told = [(spent, often) for spent, often in taken if spent is not None]
                if told:
                    mean = sum(spent * often for spent, often in told) / sum(often for _, often in told)
                    seconds[node.id] = float(f"{mean:.3g}")
    return CallTimes(seconds, runs)


def _paired(
    own: Sequence[Graph], timed: Sequence[Graph], counts: Mapping[str, int]
) -> Iterator[tuple[Graph, Sequence[Graph], int]]:
    """Of graphs with the same content, each of ours with those whose times are its, and how often it runs."""
    by_id = {graph.id: graph for graph in timed}
    if {graph.id for graph in own} == by_id.keys():
        yield from ((graph, [by_id[graph.id]], by_id[graph.id].runs) for graph in own)
        return
    in_all = sum(graph.runs for graph in timed)
    shares = [counts[_captured(graph)] for graph in own] if len(own) > 1 else [in_all]
    if timed and sum(shares) == in_all:
        yield from ((graph, timed, share) for graph, share in zip(own, shares, strict=False))


def _by_content(graphs: Iterable[Graph]) -> dict[Hashable, list[Graph]]:
    """Fused graphs by what they run, whatever they are called: forward and backward apart."""
    found: dict[Hashable, list[Graph]] = {}
    for graph in graphs:
        found.setdefault(_content(graph), []).append(graph)
    return found


def _content(graph: Graph) -> Hashable:
    """The name of a symbolic size is not part of it: Dynamo has it from the name of an argument."""
    symbols: dict[str, int] = {}

    def size(extent: int | str) -> int | str:
        if isinstance(extent, int):
            return extent
        return _SYMBOL.sub(lambda found: f"s{symbols.setdefault(found[0], len(symbols))}", extent)

    place = {node.id: number for number, node in enumerate(graph.nodes)}
    return _program(graph).partition(".")[2], tuple(
        (
            node.kind, node.op if node.kind in ("kernel", "library", "fallback") else "", node.dtype,
            tuple(map(size, node.shape)) if node.shape is not None else None,
            tuple(place.get(each) for each in node.inputs),
        )
        for node in graph.nodes
    )  # fmt: skip


_SYMBOL = re.compile(r"\b[su]\d+\b")


def _program(graph: Graph) -> str:
    """``g0.fw`` of its fused graph."""
    return graph.id.removesuffix(".fused")


def _captured(graph: Graph) -> str:
    """``g0``, of what was made of it."""
    return graph.id.partition(".")[0]


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
