"""Autotuning as it went: for each kernel the candidates, the fastest first, and which was chosen."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from nbcompile.record.compilation import AutotuneChoice, Compilation
from nbcompile.units import clip, count_text, ratio_text, seconds_text
from nbcompile.view.html.rows import Excerpt, take

FEW = 8
"""Candidates of one kernel that are shown without unfolding."""


@dataclass(frozen=True)
class TriedCandidate:
    """One candidate in words; ``ratio`` is its time as a multiple of the fastest's."""

    text: str
    time: str
    ratio: str
    chosen: bool
    note: str


@dataclass(frozen=True)
class Search:
    """All that was tried for one kernel: the first few of ``candidates``, then the ``rest``."""

    kernel: str
    summary: str
    candidates: tuple[TriedCandidate, ...]
    rest: Excerpt


def searches(compilation: Compilation, name: Callable[[str], str], limit: int) -> list[Search]:
    """One search a kernel, in the order of the record. ``limit`` is how many candidates of one are kept."""
    groups: dict[str, list[AutotuneChoice]] = {}
    for choice in compilation.autotune:
        groups.setdefault(choice.kernel, []).append(choice)
    return [_search(clip(name(kernel), 60), group, limit) for kernel, group in groups.items()]


def _search(kernel: str, group: list[AutotuneChoice], limit: int) -> Search:
    ordered = sorted(group, key=_seconds)
    best = _seconds(ordered[0])
    shown = [_candidate(choice, best) for choice in ordered]
    # The one chosen is always among those that need no unfolding.
    first = shown[:FEW] if len(shown) > FEW + 2 else shown
    first += [candidate for candidate in shown[len(first) :] if candidate.chosen]
    left = (
        [candidate for candidate in shown[FEW:] if candidate not in first] if len(first) < len(shown) else []
    )
    timed = [choice for choice in ordered if math.isfinite(_seconds(choice))]
    words = [count_text(len(group), "candidate")]
    if len(timed) > 1:
        words.append(f"{seconds_text(best)} to {seconds_text(_seconds(timed[-1]))}")
    if len(group) > len(timed):
        words.append(f"{len(group) - len(timed)} without a time")
    return Search(kernel, ", ".join(words), tuple(first), take(left, limit))


def _seconds(choice: AutotuneChoice) -> float:
    return choice.seconds if choice.seconds is not None and choice.seconds > 0 else math.inf


def _candidate(choice: AutotuneChoice, best: float) -> TriedCandidate:
    seconds = _seconds(choice)
    ratio = ratio_text(seconds / best) if math.isfinite(seconds) and seconds > best else ""
    return TriedCandidate(clip(choice.candidate, 120), seconds_text(choice.seconds), ratio, choice.chosen,
                     clip(choice.note, 120))  # fmt: skip
