"""What of a cell its times are of: the parts that were compiled, once each. What is outside is named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

import torch

from nbcompile.compiler.capture.cell_to_function import CellStatement
from nbcompile.compiler.capture.python_reasons import CALLS_BACKWARD, is_step
from nbcompile.notebook.cell.cell_run import CellPart, CellRun
from nbcompile.record.compilation import OWN_COMPILE
from nbcompile.record.measured import TimedCellPart, TimedLoop

_Loop = ast.For | ast.AsyncFor | ast.While


def timed_part(run: CellRun, parts: Sequence[CellPart], *, train: bool) -> TimedCellPart | None:
    """What of a cell that has run is timed where ``parts`` are, one after the other; None where that is all
    that the cell does. ``train``: backward is timed with them."""
    timed = {line for part in parts for member in part.members for line in _lines(member)}
    repeated = [(_loop_of(run, part), part) for part in parts]
    passes: dict[int, int] = {}
    for loop, part in repeated:
        if loop is not None and part.passes > 1:
            passes[loop.lineno] = max(passes.get(loop.lineno, 0), part.passes)
    python = {*_in_python(run, train), *_idle_loops(run, timed)} - timed - passes.keys()
    others = [part for part in run.parts.values() if part not in parts]
    kept = {member.line for part in others for member in part.members} - timed
    if not (python or kept or passes):
        return None
    # Gradients are computed from Python, and are timed: then what Python took says nothing of its own lines.
    seconds = None if train or not python - kept else run.python_seconds
    inside = {loop.lineno if loop is not None else 0 for loop, _ in repeated}
    return TimedCellPart(
        tuple(sorted(python - kept)),
        tuple(sorted(kept)),
        tuple(TimedLoop(line, count) for line, count in sorted(passes.items())),
        single=len(inside) == 1 and inside == passes.keys(),
        python_seconds=seconds,
    )


def part_name(part: TimedCellPart | None) -> str:
    """What is timed, of a cell."""
    return "cell" if part is None else part.name


def reads_gradients(members: Iterable[CellStatement]) -> bool:
    """Whether these statements read what a backward pass has left in a tensor's ``.grad``, as an optimizer's
    step does."""
    return any(_gradients_in(member.node) for member in members)


def which_read(parts: Iterable[CellPart]) -> str:
    """``line 4 reads gradients``, of parts that do."""
    members = [member for part in parts for member in part.members if _gradients_in(member.node)]
    lines = sorted({member.line for member in members})
    if len(lines) == 1:
        return f"line {lines[0]} reads gradients"
    return f"lines {', '.join(map(str, lines))} read gradients"


def _gradients_in(node: ast.stmt) -> bool:
    if is_step(node):
        return True
    called = {id(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
    for part in ast.walk(node):
        name = getattr(part, "attr", getattr(part, "id", ""))
        if name.startswith("clip_grad_"):
            return True
        if isinstance(part, ast.Attribute) and name == "grad" and id(part) not in called:
            if isinstance(part.ctx, ast.Load):
                return True
        elif isinstance(part, ast.AugAssign) and getattr(part.target, "attr", "") == "grad":
            return True
    return False


def why_not_again(parts: Sequence[CellPart], error: str) -> str:
    """A sentence on parts that ran in the cell and raise ``error`` where they are run once more, without what
    stands before them. It says nothing of the cell: that makes those values anew when it is run again."""
    first, last = parts[0].function.first_line, parts[-1].function.last_line
    lines = f"line {first}" if first == last else f"lines {first} to {last}"
    if not _TWICE_THROUGH.search(error):
        return f"{lines} cannot be run again alone, on the values that the cell has left: {error}"
    made = [
        name
        for part in parts
        for name, value in zip(part.function.parameters, part.arguments, strict=False)
        if isinstance(value, torch.Tensor) and value.grad_fn is not None
    ]
    through = f"what made {', '.join(dict.fromkeys(made))}" if made else "a graph that was made before"
    return (
        f"{lines} cannot be run again alone: backward would go through {through} a second time, "
        "and PyTorch frees that graph after the first"
    )


_TWICE_THROUGH = re.compile(r"backward through the graph a second time")


def _lines(member: CellStatement) -> range:
    return range(member.line, member.end_line + 1)


def _in_python(run: CellRun, train: bool) -> Iterable[int]:
    """Lines that Python ran and that do more than name things. A function that torch.compile has made does
    its work there too."""
    for left in run.prepared.python:
        inside = left.block < 0  # of a function: that is timed where it is called
        backward = train and left.reason == CALLS_BACKWARD
        if not inside and not backward and (not left.quiet or left.reason.startswith(OWN_COMPILE)):
            yield left.line
    for number in run.left:
        if number in run.prepared.runs:
            yield run.prepared.runs[number][0].line


def _idle_loops(run: CellRun, timed: set[int]) -> Iterable[int]:
    """Loops that Python ran step by step, with nothing in them that is timed."""
    left = {each.line for each in run.prepared.python if each.block >= 0}
    for loop in _loops(run):
        if loop.lineno in left and not timed & set(range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)):
            yield loop.lineno


def _loop_of(run: CellRun, part: CellPart) -> _Loop | None:
    """The innermost loop of the cell that this part stands in."""
    first = part.members[0]
    if not first.in_loop:
        return None
    place = (first.line, first.node.col_offset)
    around = [
        loop
        for loop in _loops(run)
        if (loop.lineno, loop.col_offset) < place and first.line <= (loop.end_lineno or loop.lineno)
    ]
    return max(around, key=lambda loop: (loop.lineno, loop.col_offset), default=None)


def _loops(run: CellRun) -> list[_Loop]:
    """The loops of the cell itself, not those of functions that it defines."""
    found: list[_Loop] = []
    waiting: list[ast.AST] = list(run.prepared.tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, _Loop):
            found.append(node)
        waiting += ast.iter_child_nodes(node)
    return found
