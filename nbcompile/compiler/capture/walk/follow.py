"""Dynamo's walk through a function's bytecode: one value of the record an attempt."""

from __future__ import annotations

import dis
import linecache
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from nbcompile.compiler.capture.graph_breaks import explain
from nbcompile.compiler.capture.graph_record import span_file
from nbcompile.compiler.capture.walk import dynamo
from nbcompile.compiler.capture.walk.rewritten import rewritten
from nbcompile.compiler.capture.walk.words import word_of
from nbcompile.record.compilation import Graph
from nbcompile.record.recorder import Recorder
from nbcompile.record.watched.walk import DynamoWalk, Ended, Rewritten, WalkCode, WalkInstruction, WalkStep
from nbcompile.units import clip

MOST_STEPS = 20_000
"""Of a record; further instructions are counted."""
MOST_WORDS = 8_000
"""Different words of a walk: with more, its stack is no longer kept."""
STACK, LOCALS = 12, 24
"""Values of a frame that are kept of each step: the top of the stack, the first locals."""
_CODE_LINES = 200
_ALL_LINES = 4_000
GONE = -1
_RESUMED = "torch_dynamo_resume_in_"
_OPERATORS: list[tuple[str, str]] = getattr(dis, "_nb_ops", [])


@dataclass
class _Step:
    """A step while it may still get nodes."""

    at: int
    depth: int
    kept: int = 0
    pushed: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()
    nodes: list[Any] = field(default_factory=list)
    said: str = ""
    broke: bool = False

    def add(self, said: str) -> None:
        """Say that the graph ends here, or the walk."""
        self.said = f"{self.said}; {said}" if self.said else said
        self.broke = True


class _Table:
    """Values in the order of their first use, and the place of each."""

    def __init__(self) -> None:
        self.places: dict[Any, int] = {}

    def place(self, value: Any) -> int:
        return self.places.setdefault(value, len(self.places))


class _Attempt:
    """One attempt at one function, while Dynamo makes it."""

    def __init__(self, root: Any, frame: str, number: int, cell_file: str) -> None:
        self.root = root
        self.frame = frame
        self.number = number
        self.cell_file = cell_file
        self.steps: list[_Step] = []
        self.running: list[_Step | None] = []
        self.instructions = _Table()
        self.codes = _Table()
        self.words = _Table()
        self.loose: list[Any] = []  # nodes made before the first step
        self.names: dict[int, str] = {}  # of nodes, as they were when the graph was done
        self.graph = ""
        self.ended: Ended = "stopped"
        self.reason = ""
        self.left_out = 0
        self.wordless = False
        self.lost = ""
        self.broken: BaseException | None = None  # the break that was told at its own step
        self.rewritten: Rewritten | None = None
        self._known: dict[tuple[int, int], int] = {}
        self._held: list[tuple[tuple[int, ...], dict[int, int]]] = []  # stack and locals by depth

    def begin(self, translator: Any, full: bool) -> None:
        instruction = dynamo.instruction_of(translator)
        depth = int(getattr(translator, "inline_depth", 0) or 0)
        del self._held[depth + 1 :]
        if instruction is None or full:
            self.left_out += instruction is not None
            self.running.append(None)
            return
        step = _Step(self._place(translator.f_code, instruction), depth)
        step.nodes, self.loose = self.loose, []
        caller = self.running[-1] if self.running else None
        if caller is not None and caller.depth < depth and not caller.said:
            caller.said = f"inlines {clip(translator.f_code.co_name, 60)}"
        self.steps.append(step)
        self.running.append(step)

    def end(self, translator: Any, error: BaseException | None, goes_on: bool) -> None:
        step = self.running.pop() if self.running else None
        if step is not None:
            self._difference(translator, step)
            if error is not None and (said := self._of_error(error)):
                step.add(said)
        if translator is self.root and (error is not None or not goes_on):
            self._over(error, step, getattr(translator, "current_instruction", None))

    def made(self, node: Any) -> None:
        if self.running and all(each is None for each in self.running):
            return  # of an instruction that is left out
        step = next((each for each in reversed(self.running) if each is not None), None)
        (step.nodes if step is not None else self.steps[-1].nodes if self.steps else self.loose).append(node)

    def graph_made(self, graph: str) -> None:
        self.graph = graph
        self.names = {id(node): str(node.name) for step in self.steps for node in step.nodes}

    # -- the parts ---------------------------------------------------------------------------------

    def _place(self, code: CodeType, instruction: Any) -> int:
        key = (id(code), instruction.offset if instruction.offset is not None else -id(instruction))
        found = self._known.get(key)
        if found is None:
            made = _instruction(self.codes.place(code), code, instruction)
            found = self._known[key] = self.instructions.place(made)
        return found

    def _difference(self, translator: Any, step: _Step) -> None:
        """What the step changed of its frame's stack and locals."""
        while len(self._held) <= step.depth:
            self._held.append(((), {}))
        stack, held = self._held[step.depth]
        self.wordless = self.wordless or len(self.words.places) > MOST_WORDS
        if self.wordless:
            return
        now = tuple(self.words.place(word_of(each)) for each in translator.stack[-STACK:])
        kept = 0
        while kept < min(len(stack), len(now)) and stack[kept] == now[kept]:
            kept += 1
        step.kept, step.pushed = kept, now[kept:]
        values = {
            self.words.place(clip(str(name), 48)): self.words.place(word_of(value))
            for name, value in list(translator.symbolic_locals.items())[:LOCALS]
        }
        changed = [(name, value) for name, value in values.items() if held.get(name) != value]
        changed += [(name, GONE) for name in held if name not in values]
        step.stored = tuple(number for pair in changed for number in pair)
        self._held[step.depth] = (now, values)

    def _of_error(self, error: BaseException) -> str:
        found = dynamo.break_in(error)
        if found is not None and found is not self.broken:
            self.broken = found
            return f"graph break: {_reason(found)}"
        return ""

    def _over(self, error: BaseException | None, step: _Step | None, instruction: Any) -> None:
        said = ""
        if error is None:
            returned = str(getattr(instruction, "opname", "")).startswith("RETURN")
            self.ended = "returned" if returned else "break"
            self.reason = "" if self.ended == "returned" else self.reason
            said = self.reason and f"the graph ends here: {self.reason}; Dynamo writes what Python runs next"
        elif dynamo.is_restart(error):
            self.ended = "restart"
            self.reason, broke = _of_restart(error)
            said = (
                f"graph break: {self.reason}; "
                if broke and not any(each.broke for each in self.steps)
                else ""
            )
            said += f"Dynamo begins again from the top{', to end the graph here' if broke else ''}"
        elif dynamo.is_of_dynamo(error):
            self.ended = "stopped"
            self.reason = _reason(error)
        else:
            self.ended = "raised"
            self.reason = clip(f"{type(error).__name__}: {error}", 200)
            said = self.reason
        if step is not None and said:
            step.add(said)

    # -- the value ---------------------------------------------------------------------------------

    def walk(self, ids: dict[str, str]) -> DynamoWalk:
        """The attempt as a part of the record; ``ids``: of the nodes of its graph, by name."""
        cut = [self.lost] if self.lost else []
        if self.left_out:
            cut.append(
                f"{self.left_out:,} instructions more were followed than a record keeps ({MOST_STEPS:,})"
            )
        if self.wordless:
            cut.append(f"after {MOST_WORDS:,} different values the stack and the locals are no longer kept")
        return DynamoWalk(
            frame=self.frame,
            attempt=self.number,
            ended=self.ended,
            codes=tuple(_codes(self.codes.places, self.cell_file)),
            instructions=tuple(self.instructions.places),
            words=tuple(self.words.places),
            steps=tuple(self._step(step, ids) for step in self.steps),
            graph=self.graph,
            reason=self.reason,
            rewritten=self.rewritten,
            cut="; ".join(cut),
        )

    def _step(self, step: _Step, ids: dict[str, str]) -> WalkStep:
        names = [self.names.get(id(node)) or str(node.name) for node in step.nodes]
        made = tuple(ids[name] for name in names if name in ids)
        dropped = tuple(name for name in names if name not in ids)
        return WalkStep(
            step.at, step.depth, step.kept, step.pushed, step.stored, made, dropped, step.said, step.broke
        )


class Walker:
    """Follows Dynamo for one compiled callable, and puts its walks into the record."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._cell_file = recorder.cell.filename if recorder.cell is not None else ""
        self._attempts: list[_Attempt] = []
        self._numbers: dict[str, int] = {}
        self._reasons: dict[str, str] = {}  # by frame: why its last attempt was given up
        self.lost = ""  # why it could not be followed any further
        self._count = sum(len(walk.steps) for walk in recorder.parts(DynamoWalk))
        if why := dynamo.missing():
            recorder.add(f"The walk could not be watched: {why}.")

    def begins(self, translator: Any) -> None:
        """As :class:`~nbcompile.compiler.capture.walk.dynamo.Follower` has them."""
        root = not getattr(translator, "inline_depth", 0)
        if root and (not self._attempts or self._attempts[-1].root is not translator):
            frame = dynamo.compile_id()
            self._numbers[frame] = self._numbers.get(frame, 0) + 1
            made = _Attempt(translator, frame, self._numbers[frame], self._cell_file)
            made.reason = self._reasons.get(frame, "")
            self._attempts.append(made)
        if self._attempts:
            self._attempts[-1].begin(translator, self._count >= MOST_STEPS)
            self._count += 1

    def ends(self, translator: Any, error: BaseException | None, goes_on: bool) -> None:
        if self._attempts:
            attempt = self._attempts[-1]
            attempt.end(translator, error, goes_on)
            if attempt.ended == "restart":
                self._reasons[attempt.frame] = attempt.reason

    def made(self, node: Any) -> None:
        if self._attempts:
            self._attempts[-1].made(node)

    def wrote(self, code: CodeType) -> None:
        if self._attempts:
            self._attempts[-1].rewritten = rewritten(code, self._attempts[-1].graph)

    def fails(self, error: Exception) -> None:
        self.lost = f"the walk could not be followed any further: {type(error).__name__}: {error}"
        self._recorder.add(f"Dynamo's walk: {clip(self.lost, 200)}.")
        if self._attempts:
            self._attempts[-1].lost = clip(self.lost, 200)

    def graph_made(self, graph: str) -> None:
        """The backend was called with the graph of the walk under way."""
        if self._attempts:
            self._attempts[-1].graph_made(graph)

    def finish(self) -> None:
        """The call is over: its walks become parts of the record."""
        nodes = {graph.id: graph.nodes for graph in self._recorder.parts(Graph) if graph.stage == "fx"}
        for attempt in self._attempts:
            of_graph = nodes.get(f"{attempt.graph}.fx", ())
            self._recorder.add(attempt.walk({node.name: node.id for node in of_graph}))
        self._attempts.clear()


def _reason(error: BaseException) -> str:
    if dynamo.break_in(error) is None:
        return clip(str(error), 200) or "Dynamo leaves the function to Python"
    kind = str(getattr(error, "gb_type", None) or type(error).__name__)
    return explain(kind, str(getattr(error, "msg", None) or error))[0]


def _of_restart(error: BaseException) -> tuple[str, bool]:
    """Why Dynamo begins again, and whether a graph break is why."""
    found, told = dynamo.break_in(error), str(getattr(error, "restart_reason", None) or error)
    if found is not None:
        return _reason(found), True
    kind = (told.strip() or type(error).__name__).splitlines()[0]
    return explain(kind, told)[0], dynamo.is_of_a_break(error)


def _instruction(place: int, code: CodeType, instruction: Any) -> WalkInstruction:
    positions = instruction.positions
    line = (positions and positions.lineno) or 0
    end = (positions and positions.end_lineno) or line
    first, last = (positions.col_offset, positions.end_col_offset) if positions else (None, None)
    value = instruction.argval
    return WalkInstruction(
        place,
        instruction.offset or 0,
        instruction.opname,
        _argument(instruction, value),
        line,
        _column(code.co_filename, line, first),
        end,
        _column(code.co_filename, end, last),
    )


def _argument(instruction: Any, value: Any) -> str:
    """As ``dis`` says it: Dynamo's own instructions have no text."""
    target = getattr(instruction, "target", None)
    if target is not None:
        return f"to {target.offset}"
    if instruction.arg is None and value is None:
        return ""
    if isinstance(value, CodeType):
        return f"code {value.co_name}"
    if type(value) is str and not instruction.opname.endswith("CONST"):
        return clip(value, 48)
    if instruction.opname == "BINARY_OP" and 0 <= instruction.arg < len(_OPERATORS):
        return str(_OPERATORS[instruction.arg][1])
    plain = type(value) in (int, float, bool, str, bytes, tuple, type(None))
    return clip(repr(value) if plain else type(value).__name__, 48)


def _column(file: str, line: int, offset: int | None) -> int | None:
    """Python counts bytes of UTF-8."""
    if offset is None:
        return None
    return len(linecache.getline(file, line).encode()[:offset].decode(errors="ignore")) if line else offset


def _codes(codes: Iterable[CodeType], cell_file: str) -> Iterable[WalkCode]:
    budget = _ALL_LINES
    for code in codes:
        file = span_file(code.co_filename, cell_file)
        lines = [line for _, _, line in code.co_lines() if line]
        first, last = min(lines, default=code.co_firstlineno), max(lines, default=code.co_firstlineno)
        first = min(first, code.co_firstlineno or first)
        shown = range(first, min(last + 1, first + _CODE_LINES))
        budget -= len(shown)
        text = "".join(linecache.getline(code.co_filename, n) for n in shown) if file and budget > 0 else ""
        yield WalkCode(_name(code.co_name, cell_file and not file, first), file, first, text)


def _name(name: str, of_cell: object, line: int) -> str:
    """What a person calls it: Dynamo and the cell's parts have names of their own making."""
    function, _, rest = name.removeprefix(_RESUMED).rpartition("_at_")
    if name.startswith(_RESUMED) and rest.isdigit():
        return f"{_name(function, of_cell, 0)}, from line {rest} on"
    if of_cell and name.startswith("cell_") and name.removeprefix("cell_").replace("_", "").isdigit():
        return f"cell, line {line}" if line else "cell"
    return "call" if of_cell and name == "compiled_call" else name
