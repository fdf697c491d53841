"""Which node of a captured graph is wrong: all values at once, then one node alone, then fewer of many."""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from nbcompile.bench.bisect.graphs import Cut, TakenGraph, cut_out, every_value, take_aten
from nbcompile.bench.bisect.judging import CompileFunction, Judged, Symptom, judge
from nbcompile.record.compilation import Accuracy

Nodes = Sequence[fx.Node]
_ROOTS = 6  # nodes tried alone, of those that are wrong though nothing that they read is
_PLACE = re.compile(r"output\[(\d+)\]")


@dataclass(frozen=True)
class Culprit:
    """``cut`` is the smallest program found that shows it, of which ``nodes`` are at fault; ``train`` if only
    its gradients do. ``errors``: each node's, by name, where all values were compared."""

    graph: TakenGraph
    cut: Cut
    nodes: tuple[fx.Node, ...]
    train: bool = False
    errors: Mapping[str, Accuracy] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        """Whether it is one operator."""
        return len(self.nodes) == 1


class Bisection:
    """The search in one graph for what shows ``symptom`` when ``compile`` compiles it. It stops making the
    program smaller at ``deadline``, a time of :func:`time.monotonic`."""

    def __init__(
        self, graph: TakenGraph, compile: CompileFunction, symptom: Symptom, deadline: float
    ) -> None:
        self.graph, self.compile, self.symptom, self.deadline = graph, compile, symptom, deadline
        self.errors: dict[str, Accuracy] = {}
        self.late = False

    def judged(self, cut: Cut | None, train: bool) -> Judged:
        """How a part of the graph goes."""
        if cut is None:
            return Judged("not run", sound=False)
        return judge(cut.module, cut.inputs, self.compile, train=train)

    def shows(self, cut: Cut | None, train: bool) -> bool:
        """Whether a part of the graph shows the symptom."""
        return self.symptom.shown_by(self.judged(cut, train))

    def run(self, train: bool) -> Culprit | None:
        """The culprit; ``train``: gradients are looked at too, if the values are right. None where the graph,
        cut out and run by itself, does not show it."""
        if self.symptom.like is not None:
            found = self._first_prefix(False) or (self._first_prefix(True) if train else None)
        else:
            found = self._first_value() or self._first_prefix(False)
            if found is None and train:
                found = self._last_suffix()
        return found

    # -- forward -----------------------------------------------------------------------------------

    def _first_value(self) -> Culprit | None:
        """All values in one compile: the first wrong one whose operator is wrong by itself."""
        probe = every_value(self.graph)
        judged = self.judged(probe, False)
        if probe is None or judged.went not in ("agrees", "differs"):
            return None
        self.errors = _by_node(judged.found, probe)
        wrong = {name for name, item in self.errors.items() if not item.agrees}
        roots = [n for n in self.graph.nodes if n.name in wrong and not wrong & _read_by(n)]
        for node in roots[:_ROOTS]:
            if self.shows(cut := cut_out(self.graph, [node]), False):
                return self._found(cut, [node], False)
        if not roots:
            return None
        prefix = self.graph.nodes[: self.graph.nodes.index(roots[0]) + 1]
        return self._smallest(prefix, False) if self.shows(cut_out(self.graph, prefix), False) else None

    def _first_prefix(self, train: bool) -> Culprit | None:
        """The shortest part from the start that shows it, made smaller."""
        nodes = self.graph.nodes

        def shows(count: int) -> bool:
            return self.shows(cut_out(self.graph, nodes[:count]), train)

        if not nodes or not shows(len(nodes)):
            return None
        low, high = 0, len(nodes)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if shows(middle) else (middle, high)
        if self.shows(cut := cut_out(self.graph, [nodes[high - 1]]), train):
            return self._found(cut, [nodes[high - 1]], train)
        return self._smallest(nodes[:high], train)

    # -- backward ----------------------------------------------------------------------------------

    def _last_suffix(self) -> Culprit | None:
        """The shortest part up to the end whose gradients are wrong: gradients go from the end, so what is
        before the first wrong one was right until there."""
        nodes = self.graph.nodes

        def shows(start: int) -> bool:
            outputs = [node for node in self.graph.outputs if node in nodes[start:]]
            return self.shows(cut_out(self.graph, nodes[start:], outputs), True)

        if not nodes or not shows(0):
            return None
        low, high = 0, len(nodes)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if shows(middle) else (low, middle)
        if self.shows(cut := cut_out(self.graph, [nodes[low]]), True):
            return self._found(cut, [nodes[low]], True)
        return self._smallest(nodes[low:], True)

    # -- smaller -----------------------------------------------------------------------------------

    def _smallest(self, nodes: Nodes, train: bool) -> Culprit | None:
        """As few of ``nodes`` as still show it (delta debugging, Zeller and Hildebrandt, 2002); what is left
        out comes in as values."""
        kept, parts = list(nodes), 2
        while len(kept) > 1:
            if time.monotonic() > self.deadline:
                self.late = True
                break
            size = -(-len(kept) // parts)
            pieces = [kept[start : start + size] for start in range(0, len(kept), size)]
            rests = [[n for n in kept if n not in piece] for piece in pieces]
            smaller = next((each for each in (*pieces, *rests) if self._still(each, kept, train)), None)
            if smaller is not None:
                parts = 2 if smaller in pieces else max(2, parts - 1)
                kept = smaller
            elif size == 1:
                break
            else:
                parts = min(len(kept), 2 * parts)
        return self._found(cut_out(self.graph, kept), kept, train)

    def _still(self, nodes: Nodes, before: Nodes, train: bool) -> bool:
        if not nodes or len(nodes) == len(before) or time.monotonic() > self.deadline:
            return False
        return self.shows(cut_out(self.graph, nodes), train)

    def _found(self, cut: Cut | None, nodes: Nodes, train: bool) -> Culprit | None:
        if cut is None:
            return None
        at_fault = dict.fromkeys(_maker(node) for node in nodes)
        return Culprit(self.graph, cut, tuple(at_fault), train, self.errors)


def within_aten(
    culprit: Culprit, compile: CompileFunction, symptom: Symptom, deadline: float, decompositions: Any = None
) -> tuple[Culprit, str] | None:
    """The ATen operator within the culprit that shows the symptom by itself, and whether it is one of
    ``forward`` or ``backward``; None where no single one does."""
    try:
        graphs = take_aten(culprit.cut, decompositions=decompositions, train=culprit.train)
    except Exception:  # it cannot be traced by itself: then the program's own operator is named
        return None
    for place, graph in enumerate(graphs):
        if time.monotonic() > deadline:
            return None
        found = Bisection(graph, compile, symptom, deadline).run(False)
        if found is not None and found.alone:
            return found, "backward" if place else "forward"
    return None


def _by_node(found: Sequence[Accuracy], probe: Cut) -> dict[str, Accuracy]:
    """The comparison of each value that was returned; of a tuple's parts, the one that is most wrong."""
    out: dict[str, Accuracy] = {}
    for item in found:
        place = _PLACE.match(item.output)
        if place is None:
            continue
        name = probe.returned[int(place[1])].name
        known = out.get(name)
        if known is None or (known.agrees, -(known.error or 0)) > (item.agrees, -(item.error or 0)):
            out[name] = item
    return out


def _read_by(node: fx.Node) -> set[str]:
    return {each.name for each in node.all_input_nodes}


def _maker(node: fx.Node) -> fx.Node:
    """The operator whose result a ``getitem`` takes apart."""
    while node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        if not node.args[0].op.startswith("call_") or _is_tensor(node.args[0]):
            break
        node = node.args[0]
    return node


def _is_tensor(node: fx.Node) -> bool:
    value = node.meta.get("example_value", node.meta.get("val"))
    return not isinstance(value, tuple | list)
