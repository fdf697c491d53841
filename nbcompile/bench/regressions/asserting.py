"""What ``assert_compiles`` (:mod:`nbcompile.testing`) checks, and how it says what is not so."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nbcompile.api import Compiled
from nbcompile.bench.measure.accuracy import check
from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import Step
from nbcompile.errors import OptionError
from nbcompile.record.compilation import Accuracy, Compilation, Span
from nbcompile.record.diff import counts_kernels, innermost
from nbcompile.record.matching import RecordedProgram
from nbcompile.record.provenance import Links
from nbcompile.settings import CompileSettings
from nbcompile.units import bytes_text, count_text, error_text

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<=": operator.le, ">=": operator.ge, "==": operator.eq,
    "<": operator.lt, ">": operator.gt, "": operator.eq,
}  # fmt: skip
_SHOWN = 8  # kernels, refusals, recompiles listed


def problems(
    fn: Callable[..., Any],
    inputs: tuple[Any, ...],
    *,
    counts: Mapping[str, int | str | None],
    settings: CompileSettings,
    train: bool,
    tolerance: float | None,
    also: Sequence[tuple[Any, ...]],
) -> tuple[list[str], Compilation]:
    """What is not as asked, a paragraph each, and the record. Parameters as for ``AssertCompiles``."""
    wanted = [Wanted.parse(name, value) for name, value in counts.items() if value is not None]
    compiled = Compiled(fn, settings)
    snapshot = Snapshot({"fn": fn, "inputs": inputs, "also": also})
    leaves = tuple(t for t in snapshot.tensors.values() if t.is_leaf and t.requires_grad)
    eager = Step(fn, inputs, train=train, leaves=leaves)
    step = eager.with_function(compiled)
    reasons: list[str] = []
    try:
        with torch.inference_mode(False), torch.enable_grad():
            eager()  # what the function itself raises is raised
            snapshot.restore()
            accuracy = check(eager, {"compiled": step}, snapshot)
            reasons.append(compiled.eager_reason)
            for more in also:
                Step(compiled, more, train=train, leaves=leaves)()
                reasons.append(compiled.eager_reason)
    finally:
        snapshot.restore()
    told = _Told(compiled)
    found = [f"it ran eagerly: {reason}" for reason in dict.fromkeys(reasons) if reason]
    broken = [each for each in wanted if not each.holds(told.count(each.name))]
    # Graphs are what breaks make: these are listed once.
    listed = [each.name for each in broken]
    found += [told.paragraph(each, each.name != "graphs" or "breaks" not in listed) for each in broken]
    found += [text for item in accuracy if (text := _inaccurate(item, tolerance))]
    return [f"{told.name}: {text}" for text in found], told.record


@dataclass(frozen=True)
class Wanted:
    """What a count of the record is to be: ``text`` is ``"3"`` or ``"<=3"``."""

    name: str
    text: str
    compare: Callable[[int, int], bool]
    number: int

    @classmethod
    def parse(cls, name: str, value: int | str) -> Wanted:
        match = re.fullmatch(r"\s*(<=|>=|==|<|>|)\s*(\d+)\s*", str(value))
        if match is None or isinstance(value, bool):
            raise OptionError(
                f"{name}={value!r} is no count.", advice='Write a number, or a text such as "<=3".'
            )
        return cls(name, f"{match[1]}{match[2]}", _COMPARE[match[1]], int(match[2]))

    def holds(self, count: int) -> bool:
        return self.compare(count, self.number)


def _inaccurate(item: Accuracy, tolerance: float | None) -> str:
    """What is wrong with one output; empty if nothing is."""
    if tolerance is None or item.error is None:
        return "" if item.agrees else f"{item.output} is not what eager gives: {item.reason}"
    if item.error <= tolerance:
        return ""
    own = f", eager's own is {error_text(item.eager_error)}" if item.eager_error is not None else ""
    return f"the error of {item.output} is {error_text(item.error)}, over {tolerance:g}{own}"


class _Told:
    """A record, and what is said of it where it is not as asked."""

    def __init__(self, compiled: Compiled) -> None:
        self.record = compiled.compilation
        self.name = str(getattr(compiled, "__qualname__", "") or type(compiled.__wrapped__).__qualname__)
        self._program = RecordedProgram(self.record, os.getcwd())
        self._links = Links(self.record)

    def count(self, name: str) -> int:
        record = self.record
        if name == "kernels":
            if not counts_kernels(record):
                raise OptionError(
                    f"backend {record.backend!r} does not tell how many kernels it made.",
                    advice="Leave kernels= out, or use another backend.",
                )
            return len(record.kernels)
        if name == "graphs":
            return len(record.of_stage("fx"))
        return len(record.breaks) if name == "breaks" else len(record.recompiles)

    def paragraph(self, wanted: Wanted, detailed: bool) -> str:
        """The sentence of one count, and below it what it counts, with lines and reasons."""
        lists = {"breaks": self._breaks, "graphs": self._breaks, "recompiles": self._recompiles}
        lines = lists.get(wanted.name, self._kernels)() if detailed else []
        said = f"{count_text(self.count(wanted.name), wanted.name[:-1])}, {wanted.text} asked for"
        return "\n".join([said, *(f"  {line}" for line in lines)])

    def _breaks(self) -> list[str]:
        return [
            f"{self._at(item.spans)}{item.reason.rstrip('.')}." + (f" {item.hint}" if item.hint else "")
            for item in self.record.breaks[:_SHOWN]
        ]

    def _recompiles(self) -> list[str]:
        return [
            f"{self._at(item.spans)}recompiled: {item.reason}" for item in self.record.recompiles[:_SHOWN]
        ]

    def _kernels(self) -> list[str]:
        kernels = [f"kernel {k.name}{self._of(k.id)}" for k in self.record.kernels[:_SHOWN]]
        holders: dict[str, set[str]] = {}
        for kernel in self.record.kernels:
            for loop in kernel.loops:
                holders.setdefault(loop, set()).add(kernel.id)
        refused = [
            d
            for d in self.record.decisions
            if not d.accepted and not holders.get(d.producer, set()) & holders.get(d.consumer, set())
        ]
        refused.sort(key=lambda d: -d.bytes_saved)
        return kernels + [
            f"{self._node(d.producer)} → {self._node(d.consumer)} not fused{self._of(d.consumer)}: {d.reason}"
            f" (it would save {bytes_text(d.bytes_saved)})"
            for d in refused[:_SHOWN]
        ]

    def _node(self, id: str) -> str:
        return self._links.nodes[id].name if id in self._links.nodes else id

    def _of(self, id: str) -> str:
        for each in (id, *self._links.up(id)):
            node = self._links.nodes.get(each)
            place = self._place(node.spans) if node is not None else ""
            if place:
                return f" ({place})"
        return ""

    def _at(self, spans: tuple[Span, ...]) -> str:
        place = self._place(spans)
        return f"{place}: " if place else ""

    def _place(self, spans: tuple[Span, ...]) -> str:
        file, line = innermost(self._program, spans)
        return f"{file}:{line}" if file and line else f"line {line}" if line else ""
