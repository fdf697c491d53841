"""What got worse, and what better, from one record of a program to a later one.

Each finding is a :class:`Change` with the line it is about. :mod:`nbcompile.bench.regressions` adds the
times, which take more than one record to judge.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from nbcompile.record.compilation import Accuracy, Compilation, Decision, Kernel, Measurement, Node, Span
from nbcompile.record.matching import RecordedProgram, RecordMatching, Token
from nbcompile.record.provenance import Links
from nbcompile.units import bytes_text, clip, count_text, error_text

Kind = Literal[
    "error", "eager", "breaks", "recompiles", "kernels", "fusions", "fallbacks", "calls", "accuracy", "time",
    "compile-time", "cases",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)
Verdict = Literal["regression", "improvement", "note"]

GROWTH = 2.0
"""An error has grown if it is more than so many times what it was, and larger than eager's own."""

T = TypeVar("T")


@dataclass(frozen=True)
class Change:
    """One finding. ``message`` is one sentence without the place; ``file`` and ``line`` (0: none) are of the
    later source, or of the earlier one for what is gone."""

    kind: Kind
    verdict: Verdict
    message: str
    file: str = ""
    line: int = 0

    @property
    def where(self) -> str:
        """``file:line``, ``line 3`` in a cell; empty where no line is known."""
        if not self.line:
            return self.file
        return f"{self.file}:{self.line}" if self.file else f"line {self.line}"


def changes(before: RecordedProgram, after: RecordedProgram) -> tuple[Change, ...]:
    """Everything but times that differs between two records of one program, regressions first."""
    both = _Both(before, after)
    found = [*both.eager(), *both.breaks(), *both.recompiles()]
    # Compilers cut up work in their own ways: kernels of two backends are not held against each other.
    if before.record.backend == after.record.backend:
        found += [*both.kernels(), *both.fusions(), *both.calls()]
    found += both.accuracy()
    rank = {"regression": 0, "note": 1, "improvement": 2}
    return tuple(sorted(dict.fromkeys(found), key=lambda change: rank[change.verdict]))


def innermost(program: RecordedProgram, spans: Sequence[Span]) -> tuple[str, int]:
    """File and line of the innermost frame outside installed packages; ``("", 0)`` if there is none."""
    own = [span for span in spans if not _installed(span.file)]
    return (program.file(own[-1]), own[-1].line) if own else ("", 0)


def own_measurement(measurements: Sequence[Measurement], backend: str) -> Measurement | None:
    """The times of the compiler that a record is of; where it was not timed, those of the first compiler."""
    compilers = [item for item in measurements if item.contestant != "eager"]
    own = (item for item in compilers if item.contestant.partition(":")[0] == backend)
    return next(own, compilers[0] if compilers else None)


def counts_kernels(record: Compilation) -> bool:
    """Whether its compiler tells which kernels it made, be it none."""
    return bool(record.of_stage("fused"))


class _Both:
    """Two records, with what is asked of them more than once."""

    def __init__(self, before: RecordedProgram, after: RecordedProgram) -> None:
        self.before, self.after = _Side(before), _Side(after)
        matching = RecordMatching(before, after)
        self.matching = matching
        self.before.tokens, self.after.tokens = matching.before, matching.after

    def eager(self) -> Iterator[Change]:
        was, now = self.before.own_measurement(), self.after.own_measurement()
        if was is None or now is None or was.ran_compiled == now.ran_compiled:
            return
        if was.ran_compiled:
            reason = f": {now.reason}" if now.reason else ""
            yield Change("eager", "regression", f"no compiled code runs any more{reason}")
        else:
            yield Change("eager", "improvement", "compiled code runs now")

    def breaks(self) -> Iterator[Change]:
        return self._moved("breaks", "graph break", lambda item: item.kind or item.reason)

    def recompiles(self) -> Iterator[Change]:
        return self._moved("recompiles", "recompile", lambda item: item.function)

    def _moved(self, kind: Kind, what: str, about: Callable[[Any], str]) -> Iterator[Change]:
        """What only one of the records has in this field: it is the same if ``about`` and its place are."""
        items = [getattr(side.record, kind) for side in (self.before, self.after)]
        keys = [
            {x: (about(x), self.matching.place(x.spans, of_before=number == 0)) for x in found}
            for number, found in enumerate(items)
        ]
        for item in _without(items[1], keys[1], items[0], keys[0]):
            yield self.after.change(kind, "regression", f"new {what}: {_flat(item.reason)}", item.spans)
        for item in _without(items[0], keys[0], items[1], keys[1]):
            yield self.before.change(kind, "improvement", f"no {what}: {_flat(item.reason)}", item.spans)

    def kernels(self) -> Iterator[Change]:
        if not (counts_kernels(self.before.record) and counts_kernels(self.after.record)):
            return
        was, now = len(self.before.record.kernels), len(self.after.record.kernels)
        if was == now:
            return
        # The kernels of the side that has more of them, for which the other has no equal.
        more, fewer = (self.after, self.before) if now > was else (self.before, self.after)
        known = Counter(fewer.work(kernel) for kernel in fewer.record.kernels)
        new = []
        for kernel in more.record.kernels:
            if known[more.work(kernel)]:
                known[more.work(kernel)] -= 1
            else:
                new.append(kernel)
        names = ", ".join(_named(kernel.name, more.lines(kernel.id)) for kernel in new[:6])
        text = f"{count_text(now, 'kernel')}, {was} before"
        detail = (
            f" ({'new' if now > was else 'gone'}: {names}{', …' if len(new) > 6 else ''})" if names else ""
        )
        place = more.place(new[0].id) if new else ("", 0)
        yield Change("kernels", "regression" if now > was else "improvement", text + detail, *place)

    def fusions(self) -> Iterator[Change]:
        for verdict, one, two in (
            ("regression", self.before, self.after),
            ("improvement", self.after, self.before),
        ):
            for decision, parted in _lost(one, two):
                yield _fusion(verdict, decision, parted, one, two)

    def calls(self) -> Iterator[Change]:
        for verdict, one, two in (
            ("regression", self.before, self.after),
            ("improvement", self.after, self.before),
        ):
            was = Counter((node.kind, node.op) for node in one.record.library_calls)
            in_kernels = {token for kernel in one.record.kernels for token in one.aten(kernel.id)}
            for node in two.record.library_calls:
                if was[(node.kind, node.op)]:
                    was[(node.kind, node.op)] -= 1
                    continue
                generated = bool(in_kernels.intersection(two.aten(node.id)))
                yield _call(verdict, node, generated, two)

    def accuracy(self) -> Iterator[Change]:
        was, now = ({item.output: item for item in side.own_accuracy()} for side in (self.before, self.after))
        for output in (name for name in was if name in now):
            one, two = was[output], now[output]
            if one.agrees and not two.agrees:
                reason = f": {two.reason}" if two.reason else ""
                yield Change("accuracy", "regression", f"{output} does not agree with eager any more{reason}")
            elif two.agrees and not one.agrees:
                yield Change("accuracy", "improvement", f"{output} agrees with eager now")
            elif _grown(one, two):
                yield Change("accuracy", "regression", f"the error of {output} {_from_to(one, two)}")
            elif _grown(two, one):
                yield Change("accuracy", "improvement", f"the error of {output} {_from_to(one, two)}")


class _Side:
    """One of the two records, indexed."""

    def __init__(self, program: RecordedProgram) -> None:
        self.program, self.record = program, program.record
        self.links = Links(program.record)
        self.tokens: Mapping[str, Token] = {}
        stages = {node.id: graph.stage for graph in self.record.graphs for node in graph.nodes}
        self._aten = {id for id, stage in stages.items() if stage in ("forward", "backward")}
        self.holders: dict[str, set[str]] = defaultdict(set)  # ids of kernels by the loops in them
        for kernel in self.record.kernels:
            for loop in kernel.loops:
                self.holders[loop].add(kernel.id)

    def work(self, kernel: Kernel) -> frozenset[Hashable]:
        """What a kernel computes, as tokens."""
        held = kernel.loops or tuple(self.links.up(kernel.id))
        return frozenset(self.tokens[id] for id in held if id in self.tokens)

    def aten(self, id: str) -> set[Token]:
        """The ATen nodes that a kernel or call was made from."""
        return {self.tokens[each] for each in self.links.up(id) if each in self._aten}

    def lines(self, id: str) -> tuple[str, tuple[int, ...]]:
        """The file, and the lines in it, that ``id`` comes from."""
        file, line = self.place(id)
        spans = [span for each in (id, *self.links.up(id)) for span in self._spans(each)]
        found = {span.line for span in spans if self.program.file(span) == file}
        return file, tuple(sorted(found)) if line else ()

    def place(self, id: str) -> tuple[str, int]:
        for each in (id, *self.links.up(id)):
            found = innermost(self.program, self._spans(each))
            if found[1]:
                return found
        return "", 0

    def _spans(self, id: str) -> tuple[Span, ...]:
        node = self.links.nodes.get(id)
        return node.spans if node is not None else ()

    def change(self, kind: Kind, verdict: Verdict, message: str, spans: tuple[Span, ...]) -> Change:
        return Change(kind, verdict, message, *innermost(self.program, spans))

    def own_measurement(self) -> Measurement | None:
        return own_measurement(self.record.measurements, self.record.backend)

    def own_accuracy(self) -> tuple[Accuracy, ...]:
        first = self.own_measurement()
        name = first.contestant if first is not None else self.record.backend
        return tuple(item for item in self.record.accuracy if item.contestant == name)


def _lost(one: _Side, two: _Side) -> Iterator[tuple[Decision, Decision | None]]:
    """Pairs that shared a kernel in ``one`` and share none in ``two``, with the refusal that parted them; one
    a pair of kernels, that which saved the most."""
    back = {token: id for id, token in two.tokens.items()}
    refused: dict[tuple[str, str], Decision] = {
        (d.producer, d.consumer): d for d in two.record.decisions if not d.accepted
    }
    best: dict[frozenset[str], tuple[Decision, Decision | None]] = {}
    for decision in sorted(one.record.decisions, key=lambda d: -d.bytes_saved):
        pair = [back.get(one.tokens.get(id, -1)) for id in (decision.producer, decision.consumer)]
        producer, consumer = pair
        if not decision.accepted or producer is None or consumer is None:
            continue
        if not one.holders[decision.producer] & one.holders[decision.consumer]:
            continue
        kernels = two.holders[producer], two.holders[consumer]
        if not all(kernels) or kernels[0] & kernels[1]:
            continue
        parted = refused.get((producer, consumer)) or _between(refused.values(), two, *kernels)
        best.setdefault(frozenset(kernels[0] | kernels[1]), (decision, parted))
    yield from best.values()


def _between(refused: Iterable[Decision], side: _Side, one: set[str], two: set[str]) -> Decision | None:
    """The refusal with most at stake between the loops of these kernels."""
    found = [
        d
        for d in refused
        if (side.holders[d.producer] & one and side.holders[d.consumer] & two)
        or (side.holders[d.producer] & two and side.holders[d.consumer] & one)
    ]
    return max(found, key=lambda d: d.bytes_saved, default=None)


def _fusion(verdict: Any, lost: Decision, parted: Decision | None, one: _Side, two: _Side) -> Change:
    names = [_name(one, id) for id in (lost.producer, lost.consumer)]
    pair = f"{names[0]} → {names[1]}"
    saves = f", {bytes_text(lost.bytes_saved)} of memory traffic" if lost.bytes_saved else ""
    if verdict == "improvement":
        return Change("fusions", verdict, f"{pair} are one kernel now{saves} less", *one.place(lost.consumer))
    why = f"refused: {parted.reason}" if parted is not None else "they were no candidates for each other"
    back = {token: id for id, token in two.tokens.items()}
    place = two.place(back[one.tokens[lost.consumer]])
    return Change("fusions", verdict, f"{pair} are no longer one kernel{saves} more ({_flat(why)})", *place)


def _call(verdict: Any, node: Node, generated: bool, side: _Side) -> Change:
    place = side.place(node.id)
    kind: Kind = "fallbacks" if node.kind == "fallback" else "calls"
    note = f" ({_flat(node.note)})" if node.note else ""
    if verdict == "improvement":
        new = "is generated code now" if generated else "is gone"
        return Change(
            kind,
            verdict if generated or kind == "fallbacks" else "note",
            f"the call of {node.op} {new}",
            *place,
        )
    if generated:
        return Change(kind, verdict, f"what was generated code calls {node.op} now{note}", *place)
    return Change(kind, verdict if kind == "fallbacks" else "note", f"new call of {node.op}{note}", *place)


def _name(side: _Side, id: str) -> str:
    node = side.links.nodes.get(id)
    return node.name if node is not None else id


def _named(name: str, lines: tuple[str, tuple[int, ...]]) -> str:
    numbers = ", ".join(str(line) for line in lines[1][:4])
    return f"{name} of line{'s' if len(lines[1]) > 1 else ''} {numbers}" if numbers else name


def _without(
    items: Sequence[T], keys: Mapping[T, Hashable], others: Sequence[T], other_keys: Mapping[T, Hashable]
) -> Iterator[T]:
    """Items whose key the others do not have, each other counting once."""
    left = Counter(other_keys[other] for other in others)
    for item in items:
        if left[keys[item]]:
            left[keys[item]] -= 1
        else:
            yield item


def _grown(one: Accuracy, two: Accuracy) -> bool:
    if one.error is None or two.error is None:
        return False
    return two.error > GROWTH * one.error and two.error > (two.eager_error or 0.0)


def _from_to(one: Accuracy, two: Accuracy) -> str:
    return f"is {error_text(two.error)}, was {error_text(one.error)} (eager's: {error_text(two.eager_error)})"


def _installed(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file


def _flat(text: str) -> str:
    return clip(text, 300).rstrip(".")
