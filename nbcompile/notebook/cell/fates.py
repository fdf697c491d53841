"""What became of every statement of a cell that has run: the ``lines`` of its record."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Mapping

from nbcompile.api import DISABLED, NO_OPERATIONS
from nbcompile.compiler.capture.cell_to_function import TOP, CellStatement, head_end
from nbcompile.compiler.capture.python_reasons import CALLS_BACKWARD, EAGER_BACKWARD
from nbcompile.notebook.cell.cell_run import CellRun
from nbcompile.notebook.cell.fullgraph import RAISES, RAISES_THERE
from nbcompile.record.compilation import OWN_COMPILE, Compilation, LineFate

_TAKEN: dict[type[ast.stmt], str] = {
    ast.For: "its steps are part of the graph",
    ast.If: "the branch taken is part of the graph",
    ast.With: "what is in it is part of the graph",
}
"""Of a compound statement that is compiled whole."""
_BY_DISABLE = "--disable was given"
_GRAVITY = ("eager", "compiled", "python", "unrun")
"""What a line with several statements is said to be: the first of these."""


def line_fates(run: CellRun, compilation: Compilation, eager: Mapping[str, str]) -> tuple[LineFate, ...]:
    """Every statement of the cell in the order of its lines, the most telling one of those that begin on the
    same line. ``eager`` says of graphs that our compiler left to eager why."""
    found: dict[int, LineFate] = {}
    backward = bool(compilation.of_stage("backward"))
    for fate in (*_left(run, backward), *_asked(run, eager), *_in_eager_graphs(compilation, eager)):
        known = found.get(fate.line)
        if known is None or _GRAVITY.index(fate.fate) < _GRAVITY.index(known.fate):
            found[fate.line] = fate
    found |= {fate.line: fate for fate in _in_eager_functions(run, compilation, found)}
    if run.raised is not None:
        found |= {fate.line: fate for fate in _ended(run, *run.raised, found)}
    return tuple(found[line] for line in sorted(found))


def _left(run: CellRun, backward: bool) -> Iterator[LineFate]:
    entries = run.prepared.entries
    whole = [range(m.id, m.inner + 1) for part in run.parts.values() for m in part.members]
    for left in run.prepared.python:
        entry = entries.get(left.block)
        if entry is not None and entry not in run.reached and not any(entry in each for each in whole):
            yield LineFate(left.line, left.end_line or left.line, "unrun", "never reached")
            continue
        quiet = left.quiet or (backward and left.reason == CALLS_BACKWARD)
        reason = left.reason if backward else left.reason.replace(CALLS_BACKWARD, EAGER_BACKWARD)
        yield LineFate(left.line, left.end_line or left.line, "python" if quiet else "eager", reason)


def _ended(run: CellRun, line: int, what: str, found: Mapping[int, LineFate]) -> Iterator[LineFate]:
    """The statement at which the cell raised, and those after it that were never reached."""
    top = {members[0].line for members in run.prepared.runs.values() if members[0].block == TOP}
    top |= {left.line for left in run.prepared.python if left.block == TOP}
    raised = max((each for each in found if each <= line), default=line)
    failed = [part for part in run.failed.values() if raised in {member.line for member in part.members}]
    together = {member.line for part in failed for member in part.members}
    disabled = any(part.call.eager_reason == DISABLED for part in failed)
    for number, fate in found.items():
        if number == raised and fate.reason.startswith("the graph breaks here"):
            continue  # --fullgraph says so itself
        if number == raised:
            yield dataclasses.replace(fate, fate="eager", reason=what)
        elif number < raised and (number in together or fate.reason.startswith((RAISES, RAISES_THERE))):
            told = _BY_DISABLE if disabled else f"was to be compiled with line {raised}, which {what}"
            yield dataclasses.replace(fate, reason=told)
        elif number > line and number in top and fate.fate != "compiled":
            yield dataclasses.replace(fate, fate="unrun", reason=f"never reached: line {line} {what}")
    within = next((each for each in found.values() if each.line <= run.raised_in <= each.end_line), None)
    if within is not None and within.line not in (raised, *top) and what.startswith("raised "):
        yield dataclasses.replace(within, fate="eager", reason=what)  # of a function of the cell


def _asked(run: CellRun, eager: Mapping[str, str]) -> Iterator[LineFate]:
    """Statements that the switchboard knows. Those within a compound one share its fate where it was compiled
    whole."""
    first = {number: members[0] for number, members in run.prepared.runs.items()}
    compiled: dict[int, str] = {}
    for part in run.parts.values():
        # Of a part with several graphs, those left to eager have their own lines.
        known = any(f"{graph}.{way}" in eager for graph in part.call.graphs_run for way in ("fw", "bw"))
        reason = "" if known else part.call.eager_reason
        for member in part.members:
            compiled |= dict.fromkeys(range(member.id, member.inner + 1), reason)
    told = {left.line for left in run.prepared.python}
    for number, statement in first.items():
        if number in compiled:
            reason = _BY_DISABLE if compiled[number] == DISABLED else compiled[number]
            fate = "python" if reason == NO_OPERATIONS else "eager" if reason else "compiled"
            yield _of(statement, fate, reason or _TAKEN.get(type(statement.node), ""))
        elif number in run.left:
            yield _of(statement, "eager", run.left[number])
        elif run.disabled:
            yield _of(statement, "eager", run.disabled)
        elif statement.line not in told:
            yield _of(statement, "unrun", "never reached")


def _in_eager_graphs(compilation: Compilation, eager: Mapping[str, str]) -> Iterator[LineFate]:
    """Lines of the cell whose operations lie in a graph that ran as eager mode would run it."""
    for graph in compilation.of_stage("fx"):
        name = graph.id.removesuffix(".fx")
        reason = eager.get(f"{name}.fw", "")
        if not reason and (why := eager.get(f"{name}.bw")):
            reason = f"its gradient: {why}"
        for node in graph.nodes if reason else ():
            if node.kind in ("input", "output", "constant"):
                continue
            for span in node.spans:
                if not span.file:
                    yield LineFate(span.line, span.end_line or span.line, "eager", reason)


def _in_eager_functions(
    run: CellRun, compilation: Compilation, found: Mapping[int, LineFate]
) -> Iterator[LineFate]:
    """Lines of functions of the cell of which Dynamo made no graph at all: for a break in them, or because
    only Python ever called them (an optimizer's closure, a generator, a thread). Whether it did, nobody has
    seen; what has a compiler of its own is not spoken of."""
    own = [[span.line for span in item.spans if not span.file] for item in compilation.breaks]
    broken = [lines[-1] for lines in own if len(lines) > 1]
    captured = {
        span.line
        for graph in compilation.of_stage("fx")
        for node in graph.nodes
        for span in node.spans
        if not span.file
    }
    own_compilers = compilation.backend == "xla" or any(
        left.reason.startswith(OWN_COMPILE) for left in run.prepared.python
    )
    for part in ast.walk(run.prepared.tree):
        if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        within = range(part.lineno + 1, (part.end_lineno or part.lineno) + 1)
        at = next((line for line in broken if line in within), None)
        if captured & set(within) or (at is None and (own_compilers or part.decorator_list)):
            continue
        for line in within:
            fate = found.get(line)
            if fate is None or not fate.reason.startswith(f"part of {part.name}, which runs"):
                continue
            if at is not None:
                told = f"part of {part.name}, which ran eagerly, for the break at line {at}"
                yield dataclasses.replace(fate, fate="eager", reason=told)
            else:
                yield dataclasses.replace(fate, reason=f"{fate.reason}: nothing of it was compiled")


def _of(statement: CellStatement, fate: str, reason: str) -> LineFate:
    return LineFate(statement.line, head_end(statement.node), fate, reason)  # type: ignore[arg-type]
