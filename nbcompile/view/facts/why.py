"""One sentence on why a call takes the time that it takes: from what was measured of its parts.

The first of these that holds is said, so that nothing small hides what matters: Python between graphs,
compiles that are repeated, library calls, the call itself (guards and launches), and at last the heaviest
kernel against what bounds it. Of times that cannot be trusted only a cause is told that holds however long a
call took, or, where the difference from eager is far beyond what is in doubt, of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nbcompile.record.compilation import Compilation, Measurement
from nbcompile.record.measured import difference
from nbcompile.record.roofline import RooflinePoint, main_ceilings, points
from nbcompile.units import bytes_text, clip, count_text, percent_text, seconds_text
from nbcompile.view.facts.cell_lines import break_line
from nbcompile.view.facts.coaching import most_typical
from nbcompile.view.facts.facts import Call, Facts, own_measurement
from nbcompile.view.facts.outside import is_left_out, measured_name

Cause = Literal[
    "busy", "breaks", "recompiles", "library", "overhead", "outside", "cache", "memory", "compute",
    "kernel", "",
]  # fmt: skip
LARGE = 0.4
"""Part of a call's time that is worth a sentence."""
ALL = 0.98
"""From which part on the rest is not worth a word."""
OUTSIDE: tuple[Cause, ...] = ("breaks", "overhead")
"""Causes outside of the kernels: one that takes a large part at both quartiles of the call's time is the
cause, on a machine however busy."""
A_GRAPH, A_CALL, AN_INPUT = 100e-6, 20e-6, 2e-6
"""Seconds that guards, Python and launching take at most, on a slow machine: of a graph, of each kernel or
call in it, and of each input, which has guards of its own. What is beyond has a cause that is not known."""
FAR = 3.0
"""Times as fast or slow as eager: what explains that is said on a busy machine too."""
NEAR = 0.6
"""Of a limit, from which on it is what bounds a kernel."""
CACHED = 1.1
"""Times the memory's rate: faster than that is a cache, and no error of measuring..."""
LARGEST_CACHE = 1 << 26
"""...where one is that large: in bytes, where its size is not known."""


@dataclass(frozen=True)
class Why:
    """A cause, and the sentence that says so; both are empty where nothing was measured that tells."""

    cause: Cause = ""
    text: str = ""


def why(compilation: Compilation, facts: Facts) -> Why:
    """Why a call of what was compiled takes the time that it does. Where that is not the whole cell, what the
    sentence is of comes first."""
    found, name = _of_call(compilation, facts), measured_name(compilation)
    return Why(found.cause, f"Of {name}: {found.text}") if found.text and name else found


def _of_call(compilation: Compilation, facts: Facts) -> Why:
    ours, eager = own_measurement(compilation)
    if ours is None and compilation.breaks and compilation.kernels and timed_graphs(compilation) > 1:
        return Why("breaks", _breaks(compilation, None, 0.0))
    if ours is None or not ours.counts or not ours.median:
        return Why()
    found = _cause(compilation, facts, ours.median)
    shaky = next((each for each in (ours, eager) if each is not None and each.shaky), None)
    if shaky is None or found.cause == "recompiles":
        return found
    ends = [quantile for q in (0.25, 0.75) if (quantile := ours.quantile(q))]
    if found.cause in OUTSIDE and all(_cause(compilation, facts, end).cause == found.cause for end in ends):
        return Why(found.cause, f"{found.text}. That is the cause, how long is unsure: {_busy(shaky)}")
    if found.text and eager is not None and _is_far(ours, eager):
        return Why(found.cause, f"{found.text}. Times are rough, the difference is not: {_busy(shaky)}")
    return Why("busy", f"Do not trust these times: {_busy(shaky)}")


def _is_far(ours: Measurement, eager: Measurement) -> bool:
    """Whether one is faster by so much that noise explains none of it, and a cause is asked for."""
    if difference(ours, eager) not in ("faster", "slower"):
        return False
    ratio = (eager.median or 1.0) / (ours.median or 1.0)
    return max(ratio, 1 / ratio) >= FAR


def _cause(compilation: Compilation, facts: Facts, spent: float) -> Why:
    """Of a call that takes ``spent`` seconds."""
    known = [call for call in facts.calls if call.seconds is not None]
    inside = sum(call.seconds or 0.0 for call in known)
    rest = max(0.0, spent - inside) if known and len(known) == len(facts.calls) else None
    spent = max(spent, inside)  # timed each by itself they may take longer: shares are of their sum then
    # Where one graph is timed, no break is in that time: what is beside its kernels is there without one.
    broken = compilation.breaks and timed_graphs(compilation) > 1
    if broken and (rest is None or rest > LARGE * spent):
        return Why("breaks", _breaks(compilation, rest, spent))
    if compilation.recompiles:
        count = count_text(len(compilation.recompiles), "time")
        reason = clip(most_typical(compilation.recompiles).reason, 90)
        return Why("recompiles", f"It was compiled again {count}: {reason}")
    if rest is None:
        return Why()
    library = [call for call in known if call.fate != "fused"]
    others = sum(call.seconds or 0.0 for call in library)
    if others > LARGE * spent and others >= rest and others >= inside - others:
        return Why("library", _library(library, others, spent))
    if rest > spent / 2:
        return _overhead(compilation, known, rest, spent)
    heaviest = _heaviest(compilation, known, spent, facts)
    if rest > LARGE * spent:
        cause = f"{_unknown_backward(compilation)}{_OVERHEAD}"
        cause = cause if _is_overhead(compilation, known, rest) else _OUTSIDE_OF_KERNELS
        beside = f"; {seconds_text(rest)} of {seconds_text(spent)} are {cause}"
        return Why(heaviest.cause, heaviest.text + beside)
    return heaviest


def _busy(measurement: Measurement) -> str:
    low, high = measurement.quantile(0.25), measurement.quantile(0.75)
    return (
        f"the machine is busy (half of the calls of {measurement.contestant} took less than "
        f"{seconds_text(low)} or more than {seconds_text(high)})"
    )


def _breaks(compilation: Compilation, rest: float | None, spent: float) -> str:
    count = count_text(len(compilation.breaks), "graph break")
    first = compilation.breaks[0]
    where = break_line(first.spans)
    told = f"{count} ({f'{where}: ' if where else ''}{clip(first.reason, 70)})"
    if rest is None:
        return f"{told}: Python runs between the graphs, and nothing is fused across"
    graphs = count_text(timed_graphs(compilation), "graph")
    outside = f"{_unknown_backward(compilation)}guards and launching of {graphs}"
    if any(is_left_out(compilation, span.line) for span in first.spans if not span.file):
        told += ", not timed"
    else:
        outside += ", and Python between them"
    return (
        f"{told}: {seconds_text(rest)} of {seconds_text(spent)} a call are {_OUTSIDE_OF_KERNELS} ({outside})"
    )


def _library(library: Sequence[Call], others: float, spent: float) -> str:
    names = list(dict.fromkeys(call.name for call in sorted(library, key=lambda call: -(call.seconds or 0))))
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    count = count_text(_count(library), "library call")
    share = others / spent
    if share > ALL:
        return f"Nearly all of the time is {count} ({shown}), which fusion does not touch"
    return f"{percent_text(share)} of the time is {count} ({shown}); fusion touches the rest"


def timed_graphs(compilation: Compilation) -> int:
    """How many graphs one call of what was timed runs, each as often as it does: of those that a recompile
    made it runs one."""
    ours, _ = own_measurement(compilation)
    fused = [graph for graph in compilation.of_stage("fused") if not graph.id.endswith(".bw.fused")]
    counted = [graph.runs for graph in fused if any(node.seconds is not None for node in graph.nodes)]
    if ours is not None and ours.graphs:
        return max(1, ours.graphs - ours.recompiles, sum(counted))
    return max(1, len(compilation.of_stage("fx")) - len(compilation.recompiles), sum(counted))


_OVERHEAD = "guards, Python and launching"
_OUTSIDE_OF_KERNELS = "outside of the kernels"


def _is_overhead(compilation: Compilation, known: Sequence[Call], rest: float) -> bool:
    """Whether the time that kernels do not take may be what a call costs by itself."""
    captured = compilation.of_stage("fx")
    runs = {graph.partition(".")[0]: count for graph, count in compilation.runs.items()}
    inputs = sum(
        runs.get(graph.id.partition(".")[0], 1)
        for graph in captured for node in graph.nodes if node.kind == "input"
    )  # fmt: skip
    most = A_GRAPH * timed_graphs(compilation) + A_CALL * _count(known) + AN_INPUT * inputs
    return rest <= most or bool(_unknown_backward(compilation))


def _count(calls: Sequence[Call]) -> int:
    """How many are run, each as often as it is."""
    return sum(call.runs for call in calls)


def _overhead(compilation: Compilation, known: Sequence[Call], rest: float, spent: float) -> Why:
    if not _is_overhead(compilation, known, rest):
        told = f"{seconds_text(rest)} of {seconds_text(spent)} are {_OUTSIDE_OF_KERNELS}"
        return Why("outside", f"{told}, more than guards and launching take: each kernel was timed by itself")
    count = count_text(_count(known), "kernel or call", "kernels and calls")
    backward = _unknown_backward(compilation)
    told = f"{seconds_text(rest)} of {seconds_text(spent)} go to {backward}{_OVERHEAD} {count}"
    return Why("overhead", told if backward else f"{told}: the tensors are too small for kernels to matter")


def _unknown_backward(compilation: Compilation) -> str:
    """Of a record whose times have a backward pass in them that it has no graph of: then this is in what its
    kernels do not take."""
    ours, _ = own_measurement(compilation)
    if ours is None or ours.what != "forward+backward" or compilation.of_stage("backward"):
        return ""
    return "the backward pass (which is not shared out), "


def _heaviest(compilation: Compilation, known: Sequence[Call], spent: float, facts: Facts) -> Why:
    call = max(known, key=lambda call: call.seconds or 0.0)
    share = percent_text(min(1.0, (call.seconds or 0.0) / spent))
    point = _point_of(compilation, call.id)
    head = f"{call.label} takes {share} of the time"
    fusion = ""
    if facts.unfused > 1.5 * facts.moved > 0:
        fusion = f"; without fusion {bytes_text(facts.unfused)} would be moved, not {bytes_text(facts.moved)}"
    if point is None or point.share is None:
        return Why("kernel", head + fusion)
    ceilings = main_ceilings(compilation)
    cache = (ceilings.cache if ceilings else 0) or LARGEST_CACHE
    if point.bound == "memory" and point.share > CACHED and point.bytes <= cache:
        return Why(
            "cache", f"{head}; its {bytes_text(point.bytes)} come from a cache, not from memory{fusion}"
        )
    if point.share >= NEAR:
        limit = "memory" if point.bound == "memory" else "arithmetic"
        near = percent_text(min(1.0, point.share))
        kind: Cause = "memory" if point.bound == "memory" else "compute"
        what = f" for its {bytes_text(point.bytes)}" if point.bound == "memory" else ""
        return Why(kind, f"{head}, at {near} of what {limit} allows{what}{fusion}")
    return Why("kernel", f"{head}, at {percent_text(point.share)} of what bounds it ({point.bound}){fusion}")


def _point_of(compilation: Compilation, kernel: str) -> RooflinePoint | None:
    ceilings = main_ceilings(compilation)
    found = points(compilation, ceilings) if ceilings is not None else ()
    return next((point for point in found if point.kernel == kernel), None)
