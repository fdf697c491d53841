"""Inductor's fusion decisions: each pair that its scheduler considered, what became of it, and its reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nbcompile.backends.inductor.schedule import InductorSchedule, ScheduledNode
from nbcompile.record.compilation import Decision

# How Inductor's own words begin → a short name that stays where they are reworded.
_CODES = (
    ("node1 is extern", "library-call"),
    ("node2 is extern", "library-call"),
    ("node1 is nop", "nothing-to-do"),
    ("no shared data", "no-shared-data"),
    ("score_fusion_memory", "no-shared-data"),
    ("numel/rnumel", "sizes-differ"),
    ("nodes numel", "sizes-differ"),
    ("not horizontally fusible", "sizes-differ"),
    ("memory deps did not match", "accesses-differ"),
    ("intermediate nodes", "nodes-between"),
    ("will create cycle", "cycle"),
    ("device mismatch", "devices-differ"),
    ("Fusion will increase peak memory", "peak-memory"),
    ("Nodes are too far away", "too-far"),
    ("exceeds max fusion", "too-large"),
    ("fusion_prevent_too_many", "too-large"),
    ("template", "template"),
    ("prologue", "template"),
    ("epilogue", "template"),
    ("foreach", "foreach"),
    ("fusion for buffer explicit disabled", "switched-off"),
    ("register spilling", "register-spills"),
    ("invalid tiling", "tiling"),
    ("tiling mismatch", "tiling"),
)
_SILENT = ""
_BACKWARDS = "node1 must go before node2"  # the pair in the other order is the candidate

Pair = tuple[str, str]


@dataclass
class _Offer:
    """The last that was heard of a pair of scheduler nodes, single ones."""

    kind: Literal["producer-consumer", "siblings"]
    shared: tuple[str, ...]  # buffers
    allowed: bool
    names: Pair  # of the (by then perhaps fused) nodes that were tried
    reason: str
    bytes_saved: int


@dataclass
class Offers:
    """What the scheduler says of pairs while it fuses; ``schedule`` knows its nodes."""

    schedule: InductorSchedule
    pairs: dict[Pair, _Offer] = field(default_factory=dict)
    reasons: dict[Pair, str] = field(default_factory=dict)
    scores: dict[Pair, int] = field(default_factory=dict)

    def refused(self, first: str, second: str, reason: str) -> None:
        self.reasons[first, second] = reason

    def scored(self, first: Any, second: Any, bytes_saved: int) -> None:
        self.scores[first.get_name(), second.get_name()] = bytes_saved

    def offered(self, first: Any, second: Any, allowed: bool) -> None:
        names = (first.get_name(), second.get_name())
        reason = "" if allowed else self.reasons.pop(names, _SILENT)
        if reason.startswith(_BACKWARDS):
            return
        steps = self.schedule.steps
        found = _meeting(
            [(name, steps[name]) for node in first.get_nodes() if (name := node.get_name()) in steps],
            [(name, steps[name]) for node in second.get_nodes() if (name := node.get_name()) in steps],
        )
        if found is None:
            return
        pair, kind, shared = found
        saved = self.scores.get(names, self.scores.get((names[1], names[0])))
        if saved is None:
            saved = sum(_size(steps[pair[0]], steps[pair[1]], name) for name in shared)
        self.pairs[pair] = _Offer(kind, shared, allowed, names, reason, max(0, saved))

    def decisions(self) -> list[Decision]:
        """In the order of the program. A pair that was refused and then came into one group all the same, by
        way of others, was fused."""
        order = {name: place for place, name in enumerate(self.schedule.steps)}
        offers = {**dict(self._calls()), **self.pairs}
        out: list[Decision] = []
        for pair in sorted(offers, key=lambda pair: (order[pair[1]], order[pair[0]])):
            offer = offers[pair]
            together = self._together(pair)
            if together and not offer.allowed:
                continue
            code, reason = self._said(offer, together)
            out.append(
                Decision(
                    id=f"{self.schedule.prefix}.d{len(out)}",
                    graph=f"{self.schedule.prefix}.fused",
                    producer=self.schedule.steps[pair[0]].node.id,
                    consumer=self.schedule.steps[pair[1]].node.id,
                    kind=offer.kind,
                    accepted=together,
                    code=code,
                    reason=reason,
                    bytes_saved=offer.bytes_saved,
                )
            )
        return out

    def _together(self, pair: Pair) -> bool:
        groups = self.schedule.groups
        return pair[0] in groups and groups[pair[0]] == groups.get(pair[1])

    def _said(self, offer: _Offer, together: bool) -> tuple[str, str]:
        if together:
            what = "one makes, the other reads" if offer.kind == "producer-consumer" else "both read"
            return f"inductor-{offer.kind}", f"Inductor fused them: {what} {', '.join(offer.shared)}"
        reason = offer.reason
        if offer.allowed:  # it could be done, and was not
            first, second = offer.names
            reason = self.reasons.get((first, second)) or self.reasons.get((second, first)) or ""
            if not reason:
                return "others-first", "Inductor could have fused them, and fused others first"
        if reason == _SILENT:
            return "no-reason", "Inductor's printer for this device declines, and gives no reason"
        return _code(reason), f"Inductor: {reason}"

    def _calls(self) -> Iterable[tuple[Pair, _Offer]]:
        """Its scheduler never offers a library call to anything."""
        steps = self.schedule.steps
        for reader, step in steps.items():
            for buffer in step.reads:
                for maker in self.schedule.makers.get(buffer, ()):
                    if maker in steps and maker != reader and steps[maker].is_call != step.is_call:
                        call = steps[maker] if steps[maker].is_call else step
                        reason = f"{call.node.op} is library code, which its scheduler leaves alone"
                        pair, saved = (maker, reader), _size(steps[maker], step, buffer)
                        yield pair, _Offer("producer-consumer", (buffer,), False, pair, reason, saved)


def _meeting(
    first: list[tuple[str, ScheduledNode]], second: list[tuple[str, ScheduledNode]]
) -> tuple[Pair, Literal["producer-consumer", "siblings"], tuple[str, ...]] | None:
    """The scheduler nodes, one of each side, that make the two sides a candidate, and the buffers they meet
    in. A fused side is many nodes: the last one that the other reads, else the first that read the same."""
    for a, maker in reversed(first):
        for b, reader in second:
            if shared := tuple(name for name in maker.writes if name in reader.reads):
                return (a, b), "producer-consumer", shared
    for a, one in first:
        for b, other in second:
            if shared := tuple(name for name in one.reads if name in other.reads):
                return (a, b), "siblings", shared
    return None


def _size(first: ScheduledNode, second: ScheduledNode, buffer: str) -> int:
    sizes: list[Mapping[str, int]] = [first.writes, first.reads, second.reads]
    return max(each.get(buffer, 0) for each in sizes)


def _code(reason: str) -> str:
    if "is library code" in reason:
        return "library-call"
    return next((code for words, code in _CODES if reason.startswith(words)), "inductor")
