"""The few figures and sentences that answer "what happened, was it worth it": shared by text and HTML.

Everything is computed from the record; strings in here are still untrusted and are escaped where shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nbcompile.errors import OptionError
from nbcompile.guard_words import dimensions
from nbcompile.record.compilation import OWN_COMPILE, Compilation, Decision, Graph, Measurement, Node
from nbcompile.record.measured import NARROW, NOT_TIMED, RAISED, Difference, difference
from nbcompile.record.provenance import Links
from nbcompile.record.roofline import main_ceilings, points
from nbcompile.targets import parse
from nbcompile.units import (
    bytes_text,
    clip,
    count_text,
    error_text,
    finite,
    ratio_text,
    seconds_text,
    speed_text,
)
from nbcompile.view.facts.outside import calls_text, measured_name, python_time, told_of
from nbcompile.view.pending import Pending
from nbcompile.view.reports.wrong import wrong_others, wrong_results, wrong_where

Fate = Literal["fused", "library", "fallback", "break", "captured"]
"""What became of an op. ``captured`` where the record says no more than that (other backends)."""

Tone = Literal["good", "even", "bad", "none"]
ShareOf = Literal["time", "bytes"]

PLAIN = ("input", "constant", "output", "view")
"""Node kinds that do no work of their own."""
_PLAIN_NAMES = {"_local_scalar_dense": "item", "_assert_scalar": "check of a size"}
"""What users call these."""


@dataclass(frozen=True)
class Call:
    """One kernel, library call or fallback of a fused graph. ``lines`` are lines of the cell; ``share`` its
    part of the whole, 0 to 1: of the measured time where all calls have one, else of the bytes moved
    (:attr:`Facts.share_of`). Of all its ``runs`` in a call: ``bytes``, its traffic, ``seconds``, its measured
    time, and ``predicted``, that of bytes and operations at its chip's rates, where they are known."""

    id: str
    graph: str
    label: str
    name: str
    fate: Fate
    bytes: int
    share: float
    lines: tuple[int, ...]
    seconds: float | None = None
    predicted: float | None = None
    runs: int = 1


@dataclass(frozen=True)
class Verdict:
    """One sentence on the whole compile, and whether it is good news."""

    text: str
    tone: Tone
    detail: str = ""


@dataclass(frozen=True)
class Facts:
    """What the head of every view says."""

    verdict: Verdict
    subtitle: str
    lines: tuple[str, ...]
    calls: tuple[Call, ...]
    moved: int
    unfused: int
    share_of: ShareOf


def facts(compilation: Compilation, links: Links, pending: Pending | None = None) -> Facts:
    """All figures of the head, from the record alone, which may be ``pending``."""
    calls = calls_of(compilation, links)
    again = {each.graph for each in compilation.recompiles}  # a call runs one graph of those made for it
    if all(call.graph.split(".")[0] in again for call in calls):
        again = set()  # the record has no others
    moved = sum(call.bytes for call in calls if call.graph.split(".")[0] not in again)
    pairs = [each for each in compilation.decisions if each.graph.split(".")[0] not in again]
    unfused = moved + saved_bytes(compilation, pairs)
    lines = [*_count_lines(compilation, calls)]
    if moved:
        before = f", {bytes_text(unfused)} before fusion" if unfused > moved else ""
        of = f" in {name}" if (name := measured_name(compilation)) else ""
        lines.append(f"{bytes_text(moved)} moved{of}{before}")
    lines += _time_lines(compilation)
    return Facts(
        verdict=verdict(compilation, pending),
        subtitle=_subtitle(compilation),
        lines=tuple(lines),
        calls=calls,
        moved=moved,
        unfused=unfused,
        share_of=share_of(calls),
    )


def saved_bytes(compilation: Compilation, pairs: Sequence[Decision]) -> int:
    """What fusing those of these pairs that are fused spares a call."""
    runs = compilation.runs
    return sum(each.bytes_saved * runs.get(each.graph, 1) for each in pairs if each.accepted)


def stage_graphs(compilation: Compilation, *stages: str) -> list[Graph]:
    """The graphs of these stages, in the order of the record."""
    return [graph for graph in compilation.graphs if graph.stage in stages]


def working(graph: Graph) -> list[Node]:
    """The nodes of a graph that do work: no inputs, constants, views or outputs."""
    return [node for node in graph.nodes if node.kind not in PLAIN]


def short_op(op: str) -> str:
    """``aten.add.Tensor`` → ``add``, ``torch.nn.functional.gelu`` → ``gelu``; attention → ``sdpa``."""
    name = op.strip().removeprefix("torch.ops.")
    if "scaled_dot_product" in name:
        return "sdpa_backward" if "backward" in name else "sdpa"
    parts = name.split(".")
    # namespace.op or namespace.op.overload for dispatcher ops, else a Python path.
    known = parts[0] in ("aten", "prims", "prim", "quantized", "torchvision") and len(parts) > 1
    last = parts[1] if known else parts[-1]
    return clip(_PLAIN_NAMES.get(last, last.lstrip("_")) or name or "?", 28)


def short_id(compilation: Compilation, id: str) -> str:
    """``k0``; ``bw.k0`` where there is a backward graph too, ``g1.k0`` where there are several graphs;
    ``true.k0`` of a graph within one."""
    parts = id.split(".")
    if len(parts) < 2:
        return clip(id, 24)
    fused = [graph.id.split(".") for graph in stage_graphs(compilation, "fused")]
    several = len({names[0] for names in fused}) > 1
    shown = [parts[0]] if several else []
    shown += [part for part in parts[1:-1] if part != "fw"]
    return clip(".".join([*shown, parts[-1]]), 24)


def main_file(compilation: Compilation) -> str:
    """The source that lines refer to: the cell (an empty name), or where there is none the file in which
    most captured ops stand."""
    if compilation.cell is not None:
        return ""
    seen = [n.spans[0].file for graph in stage_graphs(compilation, "fx") for n in working(graph) if n.spans]
    return max(sorted(set(seen)), key=seen.count, default="")


def lines_of(links: Links, id: str, file: str = "") -> tuple[int, ...]:
    """Lines of the cell (or of ``file``) that ``id`` comes from; none for an id that is not there."""
    return links.lines(id, file) if id in links else ()


def calls_of(compilation: Compilation, links: Links) -> tuple[Call, ...]:
    """Every kernel, library call and fallback in the order of the record, with its share of traffic."""
    runs = compilation.runs
    kernels = {kernel.id: kernel for kernel in compilation.kernels}
    raw: list[tuple[Node, str, Fate, int]] = []
    seen: set[str] = set()
    for graph in stage_graphs(compilation, "fused"):
        sizes = {node.id: node.bytes for node in graph.nodes}
        for node in working(graph):
            if node.id in seen:
                continue
            seen.add(node.id)
            traffic = max(0, node.bytes) + sum(max(0, sizes.get(i, 0)) for i in set(node.inputs))
            fate: Fate = "fallback" if node.kind == "fallback" else "library"
            if kernel := kernels.get(node.id):
                traffic, fate = kernel.bytes_read + kernel.bytes_written, "fused"
            elif node.kind == "kernel":
                fate = "fused"
            raw.append((node, graph.id, fate, max(0, traffic)))
    for kernel in compilation.kernels:
        if kernel.id not in seen:
            seen.add(kernel.id)
            node = Node(kernel.id, kernel.name, kernel.name, "kernel")
            raw.append((node, kernel.graph, "fused", max(0, kernel.bytes_read + kernel.bytes_written)))
    file = main_file(compilation)
    ceilings = main_ceilings(compilation)
    known = {point.kernel: point for point in points(compilation, ceilings)} if ceilings else {}
    out = []
    for node, graph_id, fate, traffic in raw:
        held, count = kernels.get(node.id), runs.get(graph_id, 1)
        name = held.name if held else short_op(node.op or node.name)
        label = short_id(compilation, node.id) if fate == "fused" else name
        lines = lines_of(links, node.id, file)
        point = known.get(node.id)
        predicted = point.predicted if point else (held.predicted_seconds if held else None)
        seconds = node.seconds if node.seconds is not None else (held.seconds if held else None)
        spent, least = (None if one is None else finite(one * count) for one in (seconds, predicted))
        out.append(
            Call(node.id, graph_id, label, name, fate, traffic * count, 0.0, lines, spent, least, count)
        )
    timed = share_of(out) == "time"
    weights = [max(0.0, call.seconds or 0.0) if timed else float(call.bytes) for call in out]
    total = sum(weights) or 1.0
    return tuple(replace(call, share=weight / total) for call, weight in zip(out, weights, strict=True))


def share_of(calls: Sequence[Call]) -> ShareOf:
    """What shares are parts of: of time only where the time of every call was measured."""
    return "time" if calls and all(call.seconds is not None for call in calls) else "bytes"


def fates_of(calls: tuple[Call, ...], links: Links) -> dict[str, Fate]:
    """What became of every node that turned into a call: the worst news among its calls."""
    rank = {"fallback": 3, "library": 2, "fused": 1}
    fates: dict[str, Fate] = {}
    for call in calls:
        for id in (call.id, *(links.up(call.id) if call.id in links else ())):
            if rank.get(fates.get(id, ""), 0) < rank[call.fate]:
                fates[id] = call.fate
    return fates


def contestant(compilation: Compilation) -> str:
    """The name under which this record's own backend was measured."""
    return compilation.backend or "nbcompile"


_WIDE = ("cell", "compiled lines", "one pass", "jitted functions", "forward+backward", "forward")


def own_measurement(compilation: Compilation) -> tuple[Measurement | None, Measurement | None]:
    """(ours, eager) for the first thing measured for both, preferring the widest of what was measured."""
    ours = [m for m in compilation.measurements if m.contestant == contestant(compilation)]
    eager = {m.what: m for m in compilation.measurements if m.contestant == "eager"}
    both = [m for m in ours if m.what in eager]
    both.sort(key=lambda m: (m.median is None, _WIDE.index(m.what) if m.what in _WIDE else len(_WIDE)))
    if both:
        return both[0], eager[both[0].what]
    return (ours[0] if ours else None), None


def ran_eager(reason: str) -> str:
    """That something ran eager and why; a reason may say the first already, or who else compiled it."""
    if OWN_COMPILE in reason:
        return f"left as it is: {reason}"
    if "--fullgraph" in reason or reason.startswith(NOT_TIMED):
        return reason
    return f"ran eager: {reason.removeprefix('ran eager: ').removeprefix(RAISED)}"


def no_time_of(reason: str) -> str:
    """Why a contestant has no time: what it raised, or why it ran eager."""
    return reason if reason.startswith(RAISED) else ran_eager(reason)


def verdict(compilation: Compilation, pending: Pending | None = None) -> Verdict:
    """Was it worth it? Says "faster" only if the compiled code ran and there is a
    :func:`~nbcompile.record.measured.difference`, and what of the cell that is of. Of other contestants it
    says which are wrong, for the times beside them are then worth nothing."""
    found = _own_verdict(compilation, pending)
    detail = "; ".join(
        filter(None, (found.detail, clip(wrong_others(compilation, contestant(compilation)), 240)))
    )
    return replace(found, detail=detail)


def _own_verdict(compilation: Compilation, pending: Pending | None) -> Verdict:
    bad = wrong_results(compilation, contestant(compilation))
    ours, eager = own_measurement(compilation)
    if ours is not None and not ours.counts:
        text = clip(ran_eager(ours.reason or "no reason was recorded"), 171)
        return Verdict(text, "none" if OWN_COMPILE in text or text.startswith(NOT_TIMED) else "bad")
    if bad:
        where = wrong_where(compilation, contestant(compilation))
        how = "in Triton's interpreter, " if compilation.execution == "interpreted" else ""
        return Verdict(f"{how}differs from eager in {where}", "bad", clip(bad[0].reason, 160))
    if not compilation.kernels and not compilation.graphs:
        left_out = [f"line {line.line}: {line.reason}" for line in compilation.lines if line.fate == "eager"]
        more = f" (and {len(left_out) - 1} more)" if left_out[1:] and not compilation.notes else ""
        told = (*compilation.notes, *left_out, "nothing was captured")[0]
        tone: Tone = "bad" if compilation.notes or left_out else "none"
        return Verdict(clip(ran_eager(told), 171 - len(more)) + more, tone)
    left = _left_to_eager(compilation)
    if left and (compilation.execution == "interpreted" or not compilation.of_stage("fused")):
        return Verdict(clip(ran_eager(left[0]), 171), "bad")
    if compilation.execution != "compiled":
        return _elsewhere(compilation)
    mine, theirs = (ours.median if ours else None), (eager.median if eager else None)
    if ours and eager and mine and theirs and mine > 0 and theirs > 0:
        if contestant(compilation) == "eager":
            return _of_what(compilation, Verdict(f"eager: {seconds_text(mine)} a call", "none"))
        return _of_what(compilation, _compare(ours, eager, theirs / mine))
    if mine:
        return _of_what(compilation, Verdict(f"{seconds_text(mine)} a call; eager was not timed", "none"))
    untimed = ", not timed" if pending is None else ""
    cached = ", kernels from the cache" if compilation.from_cache else ""
    compiled = f"compiled in {seconds_text(compilation.compile_seconds)}{cached}{untimed}"
    if left:
        return Verdict(f"{compiled}; {count_text(len(left), 'graph')} ran eagerly", "bad", clip(left[0], 160))
    return Verdict(compiled, "none")


_RUNS_EAGERLY = re.compile(r"graph g\d+(?:\.\w+)? runs eagerly: (.*)")


def _left_to_eager(compilation: Compilation) -> list[str]:
    """Why graphs that our compiler was given ran in eager mode, a reason each."""
    found = (_RUNS_EAGERLY.search(note) for note in compilation.notes)
    return [match[1] for match in found if match]


def _elsewhere(compilation: Compilation) -> Verdict:
    """The verdict where the kernels did not run as they would on their chip."""
    chip = chip_text(main_target(compilation))
    if compilation.execution == "eager":
        told = (why for why in _left_to_eager(compilation) if why.startswith("it was compiled for "))
        why = next(told, ", which is not here").rpartition(", ")[2]  # its tensors are on the CPU, say
        return Verdict(f"compiled for {chip}, {why}: the cell ran eagerly", "none")
    checked = [entry for entry in compilation.accuracy if _is_ours(compilation, entry.contestant)]
    what = f"kernels for {chip}, run by Triton's interpreter"
    if not compilation.kernels:
        return Verdict(f"no kernels to run by Triton's interpreter for {chip}", "none")
    if not checked:
        return Verdict(f"{what}: not compared with eager", "none")
    return Verdict(f"{what}, agree with eager", "good", count_text(len(checked), "result") + " compared")


def main_target(compilation: Compilation) -> str:
    """The chip that kernels were made for: the one asked for, else that of the first kernel."""
    asked = str(compilation.options.get("target", "auto"))
    made = next((kernel.target for kernel in compilation.kernels), "cpu")
    return made if asked == "auto" else asked


def chip_text(name: str) -> str:
    """``NVIDIA H100 SXM (cuda:90)``; the name alone where the table has no product for it."""
    try:
        part = parse(name).part
    except OptionError:
        part = ""
    return f"{part} ({name})" if part else clip(name, 40)


def _of_what(compilation: Compilation, found: Verdict) -> Verdict:
    """A verdict on times, where these are not of the whole cell."""
    detail = "; ".join(filter(None, (found.detail, python_time(compilation))))
    return replace(found, text=told_of(compilation, found.text), detail=detail)


def _compare(ours: Measurement, eager: Measurement, ratio: float) -> Verdict:
    each = "" if ours.what == "one pass" else " a call"
    detail = f"{ours.what}: {seconds_text(ours.median)}{each}, eager {seconds_text(eager.median)}"
    few = min(len(ours.steady), len(eager.steady))
    noise = f"of {count_text(few, 'sample')} only" if few < NARROW else "within the noise"
    told: dict[Difference, tuple[str, Tone]] = {
        "same": (f"as fast as eager ({speed_text(ratio)})", "even"),
        "unclear": (f"no clear difference from eager ({speed_text(ratio)}, {noise})", "even"),
        "faster": (f"{speed_text(ratio)} faster than eager", "good"),
        "slower": (f"{speed_text(ratio)} — slower than eager", "bad"),
    }
    return Verdict(*told[difference(ours, eager)], detail)


def _is_ours(compilation: Compilation, name: str) -> bool:
    return name == contestant(compilation)


def break_even(cost: float | None, ours: Measurement | None, eager: Measurement | None) -> int | None:
    """Calls until a compile of ``cost`` seconds has paid for itself; None if never, or if it is not clear
    that anything is gained by it."""
    mine, theirs = (ours.median if ours else None), (eager.median if eager else None)
    if cost is None or mine is None or theirs is None or not ours or not ours.counts or theirs <= mine:
        return None
    if eager is None or difference(ours, eager) != "faster":
        return None
    calls = cost / (theirs - mine)
    return max(1, math.ceil(calls)) if math.isfinite(calls) else None


def compile_cost(compilation: Compilation, measurement: Measurement | None) -> float | None:
    """Seconds of the cold compile where it was measured, else of this compile (ours only)."""
    if measurement is not None and measurement.cold is not None:
        return measurement.cold
    own = measurement is None or measurement.contestant == contestant(compilation)
    return compilation.compile_seconds or None if own else None


def _count_lines(compilation: Compilation, calls: tuple[Call, ...]) -> list[str]:
    captured = stage_graphs(compilation, "fx")
    out = [f"{count_text(len(captured), 'graph')}, {count_text(len(compilation.breaks), 'break')}"]
    ops = sum(len(working(graph)) for graph in captured)
    loops = sum(
        1 for graph in stage_graphs(compilation, "loops") for node in working(graph)
        if node.kind not in ("library", "fallback")
    )  # fmt: skip
    count = {fate: sum(1 for call in calls if call.fate == fate) for fate in ("fused", "library", "fallback")}
    steps = [count_text(ops, "op")]
    if loops:
        steps.append(count_text(loops, "loop"))
    made = [count_text(count["fused"], "kernel")] if calls or loops else []
    made += [count_text(count["library"], "library call")] if count["library"] else []
    made += [count_text(count["fallback"], "fallback")] if count["fallback"] else []
    if made:
        steps.append(" + ".join(made))
    if ops or made:
        out.append(" → ".join(steps))
    return out


_AS_LONG = 0.8
"""One compile's time over another's, from where on both are told: the first loads modules too."""


def _time_lines(compilation: Compilation) -> list[str]:
    out = []
    ours, eager = own_measurement(compilation)
    cost = compile_cost(compilation, ours)
    if cost is not None:
        first = compilation.compile_seconds or cost  # its steps' times stand beside it
        text = f"compiled in {seconds_text(first)}"
        if not _AS_LONG < first / cost < 1 / _AS_LONG:
            text += f" (again, from nothing: {seconds_text(cost)})"
        if compilation.from_cache:
            text = f"compiled in {seconds_text(compilation.compile_seconds)}, kernels from the cache"
        wrong = wrong_results(compilation, contestant(compilation))
        calls = None if wrong else break_even(cost, ours, eager)
        if calls is not None:
            text += f" · pays off after {calls_text(compilation, calls)}"
        elif not wrong and ours and eager and ours.median and eager.median and ours.counts:
            text += " · never pays off" if difference(ours, eager) == "slower" else ""
        out.append(text)
    if line := error_line(compilation):
        out.append(line)
    return out


def error_line(compilation: Compilation) -> str:
    """How far the results are from float64, relative to how far eager's own are."""
    ours = [entry for entry in compilation.accuracy if _is_ours(compilation, entry.contestant)]
    if not ours:
        return ""
    if any(not entry.agrees for entry in ours):
        return "results differ from eager"
    if not any(entry.is_compared for entry in ours):
        return "results not compared with eager"
    found = [(e.error, e.eager_error) for e in ours if e.error is not None]
    ratios = [error / eager for error, eager in found if eager and not math.isnan(error / eager)]
    if ratios:
        worst = max(ratios)
        if worst > 2:  # and yet all agree: both errors are next to nothing, and their ratio is chance
            return "error within rounding"
        return "error as eager's" if 0.95 <= worst <= 1.05 else f"error {ratio_text(worst)} eager's"
    exact = [error for error, eager in found if math.isfinite(error) and not eager]
    if exact:
        return "exact, as eager" if max(exact) == 0 else f"error {error_text(max(exact))}"
    apart = [value for e in ours if (value := finite(e.max_difference)) is not None]
    if apart:
        return "same bits as eager" if max(apart) == 0 else f"within {error_text(max(apart))} of eager"
    return "agrees with eager"


def _subtitle(compilation: Compilation) -> str:
    environment = compilation.environment
    parts = [compilation.backend, compilation.mode]
    where = environment.device or "cpu"
    if compilation.execution != "compiled":  # the verdict names the chip that the code is for
        where = f"ran on {where}"
    parts.append(f"{where}, {count_text(environment.threads, 'thread')}" if environment.threads else where)
    if of_jax(compilation):
        parts.append(environment.compiler)
    elif environment.torch:
        parts.append(f"torch {environment.torch.split('+')[0]}")
    given = [n for graph in stage_graphs(compilation, "fx")[:1] for n in graph.nodes if n.kind == "input"]
    inputs = [node for node in given if node.shape and not is_parameter(node)]
    if inputs:
        words = dimensions(node.text for node in given)
        shape = ", ".join(words.get(str(size), str(size)) for size in (inputs[0].shape or ())[:8])
        parts.append(f"{inputs[0].dtype or ''}[{shape}]".removeprefix("torch."))
    return " · ".join(clip(part, 60) for part in parts if part)


def of_jax(compilation: Compilation) -> bool:
    """Whether all that was captured is jax's: then no version of torch says anything of it."""
    captured = stage_graphs(compilation, "fx")
    return bool(captured) and all(graph.id.endswith(".jaxpr") for graph in captured)


def is_parameter(node: Node) -> bool:
    """A graph input that is a module's parameter or buffer, by the name Dynamo gives it."""
    return any(mark in node.name for mark in ("_parameters_", "_buffers_", "parameters__", "buffers__"))
