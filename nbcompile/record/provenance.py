"""Links between everything in a record: from a cell line down to a generated line, and back.

Pure record code: needs neither torch nor a kernel, so that a saved notebook can be explored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, islice

from nbcompile.record.compilation import Compilation, Graph, Kernel, Node

MAX_LINES = 2_000
"""Lines of one span that are followed: a record may come from anyone, and say that a node spans billions."""
MAX_DEPTH = 24
"""Steps that are followed from a node: it is a few stages, and half a dozen more for each graph in a graph. A
record may hold a chain of any length, or a circle."""
MAX_STEPS = 20_000
"""Links that are followed from one id, all together: everything may be made from everything."""
MAX_ALL = 5_000_000
"""Links that are followed for all ids, beyond which each is told its nearest :data:`FEW` only."""
FEW = 8


class Links:
    """An index over the ids of one Compilation.

    Ids are those of nodes of any stage (FX, joint, forward, backward, loops, fused), of graphs,
    kernels, fusion decisions, and of generated lines (:meth:`generated`, ``"<kernel id>:<line>"``).
    Methods raise KeyError for an id that the record does not have.
    """

    def __init__(self, compilation: Compilation) -> None:
        self.nodes: dict[str, Node] = {}
        self.graphs: dict[str, Graph] = {}
        self.kernels: dict[str, Kernel] = {}
        self._up: dict[str, tuple[str, ...]] = {}
        for graph in compilation.graphs:
            self.graphs[graph.id] = graph
            self._up.setdefault(graph.id, (graph.parent,) if graph.parent else ())
            for node in graph.nodes:
                self.nodes[node.id] = node
                self._up[node.id] = node.origins
        for kernel in compilation.kernels:
            self.kernels[kernel.id] = kernel
            # The kernel and its node in the fused graph share an id: its loops are its origins.
            self._up[kernel.id] = _merged(self._up.get(kernel.id, ()), kernel.loops)
            for link in kernel.line_map:
                self._up[self.generated(kernel.id, link.line)] = link.origins
        for decision in compilation.decisions:
            self._up[decision.id] = (decision.producer, decision.consumer)
        self._down: dict[str, list[str]] = {}
        for below, parents in self._up.items():
            for above in parents:
                self._down.setdefault(above, []).append(below)
        self._lines: dict[tuple[str, str], tuple[int, ...]] = {}
        self._left = MAX_ALL

    @staticmethod
    def generated(kernel: str, line: int) -> str:
        """Id of line ``line`` (1-based) of a kernel's first source."""
        return f"{kernel}:{line}"

    def __contains__(self, id: object) -> bool:
        return id in self._up

    def up(self, id: str) -> tuple[str, ...]:
        """All ancestors of ``id``, nearest first: what it was made from."""
        return self._walk(id, self._up)

    def down(self, id: str) -> tuple[str, ...]:
        """All descendants of ``id``, nearest first: what was made from it."""
        return self._walk(id, self._down)

    def lines(self, id: str, file: str = "") -> tuple[int, ...]:
        """Lines of the cell (or of ``file``) that ``id`` comes from, sorted."""
        known = self._lines.get((id, file))
        if known is None:
            known = self._lines[id, file] = self._gather(id, file)
        return known

    def at_line(self, line: int, file: str = "") -> tuple[str, ...]:
        """Ids of everything that came from this line of the cell (or of ``file``), in the order of
        the record: nodes, then kernels, decisions and generated lines."""
        return tuple(id for id in self._up if id not in self.graphs and line in self.lines(id, file))

    def _gather(self, id: str, file: str) -> tuple[int, ...]:
        found: set[int] = set()
        for each in (id, *self.up(id)):
            node = self.nodes.get(each)
            # A graph stands for all of its nodes only if asked for itself.
            nodes: Iterable[Node] = (node,) if node is not None else ()
            if each == id and each in self.graphs:
                nodes = self.graphs[each].nodes
            for one in nodes:
                for span in one.spans:
                    if span.file == file and len(found) <= MAX_STEPS:
                        end = min(span.end_line or span.line, span.line + MAX_LINES)
                        found.update(range(span.line, end + 1))
        return tuple(sorted(found))

    def _walk(self, id: str, edges: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
        if id not in self._up:
            raise KeyError(id)
        room = MAX_STEPS if self._left > 0 else FEW
        seen: dict[str, None] = {id: None}
        level: Iterable[str] = (id,)
        for _ in range(MAX_DEPTH):
            found = list(islice(chain.from_iterable(edges.get(each, ()) for each in level), room))
            room -= len(found)
            self._left -= len(found)
            level = [each for each in dict.fromkeys(found) if each not in seen]
            seen.update(dict.fromkeys(level))
            if not level or room <= 0:
                break
        return tuple(seen)[1:]


def _merged(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))
