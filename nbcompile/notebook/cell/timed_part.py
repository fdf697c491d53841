"""What of a cell its times are of: the parts that were compiled, once each. What is outside is named."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import unheard
from nbcompile.compiler.capture.cell_to_function import VALUE, CellStatement, is_shown
from nbcompile.compiler.capture.losses import Place
from nbcompile.compiler.capture.python_reasons import CALLS_BACKWARD, is_step
from nbcompile.errors import MeasureError
from nbcompile.notebook.cell.cell_run import CellPart, CellRun
from nbcompile.notebook.cell.surroundings import Filled, quiet_compile
from nbcompile.record.compilation import OWN_COMPILE, Compilation
from nbcompile.record.measured import NOT_COMPARED, Accuracy, TimedCellPart, TimedLoop

_Loop = ast.For | ast.AsyncFor | ast.While


def timed_part(run: CellRun, parts: Sequence[CellPart], *, train: bool) -> TimedCellPart | None:
    """What of a cell that has run is timed where ``parts`` are, one after the other; None where that is all
    that the cell does. ``train``: backward is timed with them."""
    timed = [member for part in parts for member in part.members]
    repeated = [(_loop_of(run, part), part) for part in parts]
    passes: dict[int, int] = {}
    for loop, part in repeated:
        if loop is not None and part.passes > 1:
            passes[loop.lineno] = max(passes.get(loop.lineno, 0), part.passes)
    repeats = {(loop.lineno, loop.col_offset) for loop, part in repeated if loop and part.passes > 1}
    idle = {*_in_python(run, train), *_idle_loops(run, timed)} - repeats
    python = {place[0] for place in idle if not any(_is_in(place, member) for member in timed)}
    others = [part for part in run.parts.values() if part not in parts]
    again = {line for member in timed for line in range(member.line, member.end_line + 1)}
    kept = {member.line for part in others for member in part.members} - again
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


def in_names(timed: Compilation, parts: Sequence[Any]) -> Compilation:
    """The record with each result called as the cell calls it: ``output[1]`` is a place in our function, and
    ``inputs[0].grad`` is of its first argument."""
    functions = [part.function if isinstance(part, CellPart) else None for part in parts]
    known: dict[str, str] = {}
    for place, function in enumerate(functions):
        before = "output" if len(parts) == 1 and parts[0].grad_enabled else f"output[{place}]"
        results = function.results if function is not None else ()
        shown = {f"{before}[{at}]": name for at, name in enumerate(results)}
        known |= {key: "the value shown" if is_shown(name) else name for key, name in shown.items()}
    if all(functions):
        given = [name for function in functions if function is not None for name in function.parameters]
        known |= {f"inputs[{at}]": name for at, name in enumerate(given)}

    def named(output: str) -> str:
        key = next((each for each in known if re.match(rf"{re.escape(each)}($|[\[.])", output)), "")
        return known[key] + output[len(key) :] if key else output

    found = tuple(dataclasses.replace(each, output=named(each.output)) for each in timed.accuracy)
    filled: Filled = {}
    for part in parts:
        filled |= part.filled if isinstance(part, CellPart) else {}
    return _without_filled(dataclasses.replace(timed, accuracy=found), filled)


def _without_filled(timed: Compilation, filled: Filled) -> Compilation:
    """The record, where it does not say of what the cell's run has put into a dict or an object, and a second
    run finds there, that it is right: nothing was computed for it."""
    outputs = [re.split(r"(?=[.\[])", each.output) for each in timed.accuracy]
    known = {"".join(parts[:count]) for parts in outputs for count in range(1, len(parts) + 1)}
    found = {paths: names for paths, names in filled.items() if known.isdisjoint(paths)}
    if not found or not timed.accuracy:
        return timed
    same = {
        "the value shown" if is_shown(name) else name: f"{_LEFT} {paths[0]}"
        for paths, names in found.items() for name in names
    }  # fmt: skip
    accuracy = [
        dataclasses.replace(each, error=None, eager_error=None, max_difference=None, reason=same[each.output])
        if each.output in same and each.agrees and each.error == each.eager_error and not each.max_difference
        else each
        for each in timed.accuracy
    ]
    accuracy += [
        Accuracy(contestant, paths[0], None, None, reason=_THERE)
        for contestant in dict.fromkeys(each.contestant for each in timed.accuracy)
        for paths in found
    ]
    it = "it" if len(found) == 1 else "them"
    note = (
        f"{_UNSEEN}{', '.join(paths[0] for paths in found)}: the cell's run put {it} there, and a second "
        f"one, by which results are compared, finds {it}."
    )
    return dataclasses.replace(timed, accuracy=tuple(accuracy), notes=(*timed.notes, note))


_THERE = f"{NOT_COMPARED}: it is there when the cell is run again"
_LEFT = f"{NOT_COMPARED}: it may be what the cell's run has left in"
_UNSEEN = "Not compared with eager: "


def is_of_filled(note: str) -> bool:
    """Whether a note says what was not compared for being there already."""
    return note.startswith(_UNSEEN)


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


def unchanged(run: CellRun, parts: Sequence[CellPart]) -> list[CellPart]:
    """Those of the parts that are the same programs if they are run by now: no later line has changed what
    they read (``model.eval()``, a hook that was taken off). Each is run once for that, with all state put
    back, unless nothing but it has run in the cell; it then knows what has ``changed``."""
    alone = len(run.parts) == 1 and not run.prepared.effects and not run.left
    for part in parts:
        if part.changed is None:
            part.changed = "" if alone or not part.graphs else _changed(part)
            # what it counts or fills itself is its own program
            if part.changed and not _SETTING.search(part.changed):
                if _touched(run).isdisjoint(_NAME.findall(part.changed)):
                    part.changed = ""
    return [part for part in parts if not part.changed]


def _touched(run: CellRun) -> set[str]:
    """The names of what Python's lines write into, or call methods of."""
    lines = {left.line for left in run.prepared.python if left.block >= 0}
    found: set[str] = set()
    for node in ast.walk(run.prepared.tree):
        if isinstance(node, ast.stmt) and node.lineno in lines and not hasattr(node, "body"):
            for part in ast.walk(node):
                stores = isinstance(getattr(part, "ctx", None), ast.Store | ast.Del)
                within = part if stores else part.func if isinstance(part, ast.Call) else None
                while isinstance(within, ast.Attribute | ast.Subscript):
                    within = within.value
                    if isinstance(within, ast.Name):
                        found.add(within.id)
    return found


def _changed(part: CellPart) -> str:
    """What is otherwise than when a part ran, as ``drop.training == True``: another graph would be compiled
    for it. Empty where it goes through the same ones again."""
    given = dict(zip(part.function.parameters, part.arguments, strict=False))
    try:
        before = Snapshot({"the function": part.bound, **given})
    except MeasureError:
        return ""  # who measures says so
    try:
        with (
            quiet_compile(),
            unheard(),
            torch.compiler.set_stance("fail_on_recompile"),
            torch.set_grad_enabled(part.grad_enabled),
        ):
            part.call(*part.arguments)
    except (Exception, KeyboardInterrupt) as error:  # who stops it here is shown what there is
        guards = _GUARD.search(str(error)) if "fail_on_recompile" in str(error) else None
        return _STATE.sub(r"torch's \1", guards[1]) if guards is not None else ""
    finally:
        before.restore()
    return ""


def _named_lines(parts: Iterable[CellPart]) -> str:
    """``line 4``, ``lines 2 and 4``: where parts begin."""
    lines = sorted({part.function.first_line for part in parts})
    return f"line{'s' * (len(lines) > 1)} {' and '.join(map(str, lines))}"


def told_of_changes(parts: Iterable[CellPart], done: str = "timed") -> list[str]:
    """A sentence for each thing that parts read and that was changed since: why they are not ``done``."""
    changed: dict[str, list[CellPart]] = {}
    for part in parts:
        if part.changed:
            changed.setdefault(part.changed, []).append(part)
    return [
        f"Not {done}: {_named_lines(each)}, for a later line has changed what that ran with ({what}): "
        "now it would be another program."
        for what, each in changed.items()
    ]


def without_backward(run: CellRun, compilation: Compilation, parts: Iterable[CellPart]) -> list[str]:
    """Why there is no backward pass in the record of a cell with ``--train`` of which nothing is timed."""
    if compilation.of_stage("backward") or any(left.reason == CALLS_BACKWARD for left in run.prepared.python):
        return []
    made = {name: value for name, value in run.namespace.items() if isinstance(value, torch.Tensor)}
    made |= {VALUE.format(number): value for number, value in run.board.values.items()}
    results = [made.get(name) for part in parts for name in part.function.results]
    if any(getattr(each, "requires_grad", False) for each in results):
        return [
            "There is no backward pass here: the cell calls none, and --train runs it for the times alone."
        ]
    return ["There is no backward pass here: nothing needs a gradient."]


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


_GUARD = re.compile(r"^\s*- \d+/\d+: (.+?)(?: {2,}#.*)?$", re.MULTILINE)
_SETTING = re.compile(r"\.training\b|_hooks\b|^torch's ")
_NAME = re.compile(r"[^\W\d]\w*")
_STATE = re.compile(r"^GLOBAL_STATE changed: (.*?)\s*$")
_TWICE_THROUGH = re.compile(r"backward through the graph a second time")


def _is_in(place: Place, member: CellStatement) -> bool:
    return member.place <= place < (member.end_line, member.node.end_col_offset or 0)


def _in_python(run: CellRun, train: bool) -> Iterable[Place]:
    """Where statements begin that Python ran and that do more than name things. A function that
    torch.compile has made does its work there too."""
    for left in run.prepared.python:
        inside = left.block < 0  # of a function: that is timed where it is called
        backward = train and left.reason == CALLS_BACKWARD
        if not inside and not backward and (not left.quiet or left.reason.startswith(OWN_COMPILE)):
            yield left.place
    for number in run.left:
        if number in run.prepared.runs:
            yield run.prepared.runs[number][0].place


def _idle_loops(run: CellRun, timed: Sequence[CellStatement]) -> Iterable[Place]:
    """Loops that Python ran step by step, with nothing in them that is timed."""
    left = {each.place for each in run.prepared.python if each.block >= 0}
    for loop in _loops(run):
        place, end = (loop.lineno, loop.col_offset), loop.end_lineno or loop.lineno
        if place in left and not any(loop.lineno <= member.line <= end for member in timed):
            yield place


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
