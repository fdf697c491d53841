"""What it costs that something is not fused: each refused pair, library call and fallback."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from nbcompile.record.advice.coach import Price
from nbcompile.record.compilation import Ceilings, Compilation, Decision
from nbcompile.record.roofline import main_ceilings
from nbcompile.units import bytes_text, percent_text, seconds_text
from nbcompile.view.facts.coaching import price_text, spent_text
from nbcompile.view.facts.facts import Call
from nbcompile.view.facts.kernels import runs_text

_LEAST = 1e-6
"""Seconds of memory traffic below which a launch more is what counts, of which nothing is known here."""


def prices(compilation: Compilation, calls: Sequence[Call]) -> dict[str, Price]:
    """By the ids of refused pairs and of calls that are not fused kernels, where anything is known.

    A pair that was compiled both ways has what was measured. Of another the memory traffic that fusing it
    would spare is known, and so, at the rate of memory, what it costs at most: data that a cache holds
    is faster. A library call or fallback costs its own time, and what its refused pairs cost."""
    ceilings = main_ceilings(compilation)
    seconds = _seconds_of_ends(compilation, calls)
    found: dict[str, Price] = {}
    edges: dict[str, list[Decision]] = defaultdict(list)
    for decision in compilation.decisions:
        if decision.accepted:
            continue
        ends = decision.producer, decision.consumer
        for end in ends:
            edges[end].append(decision)
        spent = [seconds.get(end) for end in ends]
        most = None if None in spent else sum(filter(None, spent))
        if price := decision.price or _traffic([decision], ceilings, compilation.runs, most):
            found[decision.id] = price
    for call in calls:
        if call.fate in ("library", "fallback") and call.seconds is not None:
            others = {end for each in edges[call.id] for end in (each.producer, each.consumer)}
            spent = [seconds.get(end) for end in others]
            most = None if None in spent else sum(filter(None, spent))
            lost = _traffic(edges[call.id], ceilings, compilation.runs, most)
            beside = ""
            if lost is not None and lost.milliseconds:
                beside = f"; fusing it with its neighbours would spare {_at_most(lost.milliseconds)}"
            part = f", {percent_text(call.share)} of all calls" if len(calls) > 1 else ""
            found[call.id] = Price(call.seconds * 1e3, how=f"timed by itself{runs_text(call)}{part}{beside}")
    return found


def not_fused(
    compilation: Compilation, calls: Sequence[Call], known: dict[str, Price]
) -> list[tuple[Call, str]]:
    """Library calls and fallbacks of the record's fused graphs whose time is known, the dearest first, with
    what each costs and why it is one."""
    notes = {node.id: node.note for graph in compilation.of_stage("fused") for node in graph.nodes}
    own = [call for call in calls if call.fate != "fused" and call.id in known and call.id in notes]
    own.sort(key=lambda call: -(call.seconds or 0.0))
    return [(call, ": ".join(filter(None, (price_text(known[call.id]), notes.get(call.id))))) for call in own]


def price_words(found: dict[str, Price]) -> dict[str, str]:
    """The same in words."""
    return {id: price_text(price) for id, price in found.items()}


def briefly(price: Price | None) -> str:
    """``at most 0.21 ms``, or the measured ``0.31 ms``; empty where it is not known."""
    if price is None or price.milliseconds is None:
        return ""
    if price.measured:
        return f"{'costs' if price.milliseconds >= 0 else 'spares'} {spent_text(abs(price.milliseconds))}"
    return _at_most(price.milliseconds)


def forced(price: Price | None, pair: Sequence[str]) -> str:
    """Of a pair that is faster fused by force, as was timed: what it costs apart, and the option."""
    if price is None or not price.measured or not price.milliseconds or price.milliseconds <= 0:
        return ""
    return f"{briefly(price)} (-o force_fuse={':'.join(pair)})"


def _seconds_of_ends(compilation: Compilation, calls: Sequence[Call]) -> dict[str, float]:
    """By the ids of loops and library calls, the time of the call that each is in."""
    known = {call.id: call.seconds for call in calls if call.seconds is not None}
    timed = [kernel for kernel in compilation.kernels if kernel.id in known]
    return {loop: known[kernel.id] for kernel in timed for loop in kernel.loops} | known


def _traffic(
    decisions: Iterable[Decision], ceilings: Ceilings | None, runs: Mapping[str, int], most: float | None
) -> Price | None:
    """``runs`` of fused graphs in a call; ``most``: the seconds of all that moves it."""
    moved = sum(decision.bytes_saved * runs.get(decision.graph, 1) for decision in decisions)
    if not moved or ceilings is None or not ceilings.bandwidth:
        return None
    seconds = moved / ceilings.bandwidth
    if seconds < _LEAST:
        return None
    if most is not None and most < seconds:
        return Price(most * 1e3, how=f"all the time of both, for {bytes_text(moved)}", most=True)
    how = f"{bytes_text(moved)} at {bytes_text(ceilings.bandwidth)}/s of memory"
    return Price(seconds * 1e3, how=how, most=True)


def _at_most(milliseconds: float) -> str:
    return f"at most {seconds_text(milliseconds / 1e3)}"
