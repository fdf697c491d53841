"""On a rank: what became of the lines of its cell, of which only calls are compiled.

Elsewhere a cell's own lines are compiled; on ranks they run in Python, and the modules that they call are
compiled (where there are none, the functions). What runs inside of a compound statement is not followed: of
it only calls are told.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from nbcompile.bench.ranks.parallel import CellCall
from nbcompile.compiler.capture.python_reasons import (
    CALLS_BACKWARD,
    EAGER_BACKWARD,
    head_reason,
    python_reason,
    quiet_reason,
)
from nbcompile.record.compilation import Compilation, Graph, LineFate, Node, Span

NOT_CALLED = "on ranks only the modules and functions that the cell calls are compiled, not its own lines"
_INSIDE = "of what is in it only calls of what is compiled are told on ranks"
_Compound = ast.For | ast.AsyncFor | ast.While | ast.If | ast.With | ast.AsyncWith | ast.Try | ast.Match
_PLACELESS = ("input", "output", "constant")


def with_lines(compilation: Compilation, tree: ast.Module, calls: Iterable[CellCall]) -> Compilation:
    """The record with what became of each line, and with the line of the cell whose call had a graph compiled
    as the outermost place of what is in the graph."""
    made = list(calls)
    called = {line: call for call in made for line in call.called}
    graphs = {graph: line for call in made for graph, line in call.lines.items()}
    backward = bool(compilation.of_stage("backward"))
    fates = tuple(_fates(tree, called, graphs, backward))
    placed = tuple(_placed(graph, graphs) for graph in compilation.graphs)
    notes = compilation.notes if called else (*compilation.notes, NOT_CALLED)
    return dataclasses.replace(compilation, graphs=placed, lines=fates, notes=notes)


def _fates(
    tree: ast.Module, called: Mapping[int, CellCall], graphs: Mapping[str, int], backward: bool
) -> Iterator[LineFate]:
    for node in tree.body:
        compound = isinstance(node, _Compound)
        end = _head_end(node) if isinstance(node, _Compound) else node.end_lineno or node.lineno
        here = next((line for line in range(node.lineno, end + 1) if line in called), None)
        inside = [line for line in called if end < line <= (node.end_lineno or end)] if compound else []
        if here is not None:
            yield _call(LineFate(node.lineno, end, "compiled"), called[here], here, graphs)
        elif compound:
            reason = head_reason(node) or quiet_reason(node)
            yield LineFate(node.lineno, end, "python", f"{reason}; {_INSIDE}")
        else:
            yield _uncalled(node, backward)
        for line in sorted(inside):
            yield _call(LineFate(line, line, "compiled"), called[line], line, graphs)


def _call(fate: LineFate, call: CellCall, line: int, graphs: Mapping[str, int]) -> LineFate:
    if call.compiled.eager_reason:
        return dataclasses.replace(fate, fate="eager", reason=call.compiled.eager_reason)
    own = [graph for graph, at in graphs.items() if at == line]
    known = f"calls {call.name}, which is compiled"
    return dataclasses.replace(fate, reason=f"{known} here: {', '.join(own)}" if own else known)


def _uncalled(node: ast.stmt, backward: bool) -> LineFate:
    line, end = node.lineno, node.end_lineno or node.lineno
    reason = python_reason(node)
    if reason is None:
        return LineFate(line, end, "eager", NOT_CALLED)
    if CALLS_BACKWARD in reason:
        return LineFate(line, end, "python" if backward else "eager", reason if backward else EAGER_BACKWARD)
    return LineFate(line, end, "eager" if reason else "python", reason or quiet_reason(node))


def _head_end(node: _Compound) -> int:
    """The last line of what a compound statement begins with."""
    first = node.cases[0].pattern if isinstance(node, ast.Match) else node.body[0]
    return max(node.lineno, first.lineno - 1)


def _placed(graph: Graph, lines: Mapping[str, int]) -> Graph:
    """A graph whose operations have the line of the call, those that no line of the cell holds already."""
    line = lines.get(graph.id.partition(".")[0])
    if line is None:
        return graph
    return dataclasses.replace(graph, nodes=tuple(_at_line(node, line) for node in graph.nodes))


def _at_line(node: Node, line: int) -> Node:
    if node.kind in _PLACELESS or any(not span.file for span in node.spans):
        return node
    return dataclasses.replace(node, spans=(Span(line), *node.spans))
