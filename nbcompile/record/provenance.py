"""Links between everything in a record: from a cell line down to a generated line, and back.

Pure record code: needs neither torch nor a kernel, so that a saved notebook can be explored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from nbcompile.record.compilation import Compilation, Graph, Kernel, Node

MAX_LINES = 2_000
"""Lines of one span that are followed: a record may come from anyone, and say that a node spans billions."""


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
        self._lines: dict[str, tuple[int, ...]] = {}

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
        if file:
            return self._gather(id, file)
        known = self._lines.get(id)
        if known is None:
            known = self._lines[id] = self._gather(id, "")
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
                    if span.file == file:
                        end = min(span.end_line or span.line, span.line + MAX_LINES)
                        found.update(range(span.line, end + 1))
        return tuple(sorted(found))

    def _walk(self, id: str, edges: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
        if id not in self._up:
            raise KeyError(id)
        seen = {id}
        order: list[str] = []
        queue = deque(edges.get(id, ()))
        while queue:
            each = queue.popleft()
            if each in seen:
                continue
            seen.add(each)
            order.append(each)
            queue.extend(edges.get(each, ()))
        return tuple(order)


def _merged(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))
