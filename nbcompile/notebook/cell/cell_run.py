"""Running one ``%%compile`` cell: the switchboard its statements ask, and what answers.

See :mod:`nbcompile.compiler.capture.cell_to_function` for the rewritten cell. A statement whose number is not
in the switchboard is looked up here: :meth:`CellRun.ask` compiles and runs it, together with as many of the
statements after it as make one graph, and the answer tells Python what is left for it to do. A compiled
part has no visible effect before all of it has succeeded, so if it raises, random state is rewound and
Python runs the same statements: their effects, and the error, are Python's own.
"""

from __future__ import annotations

import ast
import builtins
import time
import types
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.exc import TorchDynamoException

from nbcompile.bench.measure.code_objects import names_in
from nbcompile.bench.measure.interrupts import FinishFirst
from nbcompile.compiler.capture.cell_to_function import (
    CellFunction,
    CellStatement,
    PreparedCell,
    PythonStatement,
    head_end,
    make_function,
)
from nbcompile.compiler.capture.graph_breaks import LOOP_BY_VALUES
from nbcompile.compiler.capture.listening import kept_from_compiling
from nbcompile.compiler.capture.lost.in_dynamo import capturable_kept
from nbcompile.compiler.capture.python_reasons import FILLS_CONTAINER, TAKEN_BY_PYTHON, is_step
from nbcompile.errors import CellError
from nbcompile.notebook.cell.fullgraph import (
    break_at,
    explained,
    first_line,
    how_to_join,
    is_the_programs,
    parted_by,
    place_of,
    refusal,
    what_it_did,
    why_left,
)
from nbcompile.notebook.cell.hooks import Switchboard
from nbcompile.notebook.cell.planning import (
    CHANGED_GLOBAL,
    is_quiet,
    may_part,
    of_ones_own,
    plan,
    stays_global,
    told_of_functions,
)
from nbcompile.notebook.cell.surroundings import DYNAMO, HeldKeys, RandomState, changing, quiet_compile
from nbcompile.notebook.part_compiler import CompiledPart, Compiler
from nbcompile.record.compilation import OWN_COMPILE, GraphBreak, Span
from nbcompile.syntax import names_read, names_stored

_MAX_FAILURES = 3


class _Unbound:
    """What a parameter holds for a name that is not bound (it can only be handed through)."""


UNBOUND = _Unbound()


@dataclass
class CellPart:
    """A compiled part of a cell. ``arguments`` are those of its first call, for measuring."""

    members: tuple[CellStatement, ...]
    function: CellFunction
    call: CompiledPart
    bound: types.FunctionType
    whole: bool
    code_names: tuple[str, ...]  # the globals it reads: functions, modules, classes
    arguments: tuple[Any, ...] = ()
    grad_enabled: bool = True
    calls: int = 0
    passes: int = 1  # how often it was met, compiled or not
    failures: int = 0
    left: bool = False  # to Python, from some step on
    seconds: float = 0.0  # of the first call, compile included
    numbers: tuple[str, ...] = ()
    current: tuple[Any, ...] = ()  # arguments of the latest call
    versions: list[int] = field(default_factory=list)  # of their tensors, before it
    draws_python: bool = False  # random numbers from Python's own generator
    committed: bool = False  # whether the latest call's results are bound
    graphs: tuple[str, ...] = ()  # that the first call ran
    filled: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)  # see HeldKeys
    changed: str | None = None  # why it would be another program by now; None: nobody has looked


@dataclass
class CellRun:
    """One run of one cell. ``parts`` are what was compiled, ``notes`` and ``breaks`` what was not; ``left``
    says why of each statement that was asked about and left to Python, ``failed`` are parts that raised."""

    prepared: PreparedCell
    number: int
    board: Switchboard
    compiler: Compiler
    namespace: dict[str, Any] = field(default_factory=dict)
    filename: str = ""  # both are known when the cell asks its first question
    fullgraph: bool = False
    unroll: int = 16
    own_file: str = ""  # the cell's: where it ends before it has asked
    parts: dict[int, CellPart] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    breaks: list[GraphBreak] = field(default_factory=list)
    disabled: str = ""
    left: dict[int, str] = field(default_factory=dict)
    failed: dict[int, CellPart] = field(default_factory=dict)
    reached: set[int] = field(default_factory=set)  # questions that were asked
    raised: tuple[int, str] | None = None  # the line where the cell ended, and by what
    raised_in: int = 0  # the line of the cell where that came from: of a function of it, one within
    python_seconds: float | None = None  # of the run, what went by outside of compiled parts and compilers
    begun: float | None = None  # when Python was given the cell
    _asked: float = 0.0  # seconds that compiling and compiled parts took
    _breaking: set[int] = field(default_factory=set)  # break the graph: alone, or
    _pythons: dict[int, GraphBreak] = field(default_factory=dict)  # for which of those Python runs them
    _doubts: list[tuple[int, str]] = field(default_factory=list)
    _made: int = 0
    called: str = ""  # the part under way, where it is one statement on one line

    def ask(self, number: int) -> bool:
        """Should Python run statement ``number``? If not, it has been run, maybe with those after it."""
        part = self.parts.get(number)
        gate = self.prepared.gates.get(number)
        self.reached.add(number)
        started = time.perf_counter()
        try:
            if self.disabled or number not in self.prepared.runs:
                if gate is not None and not self.disabled:
                    self._pass(*gate)
                answer = True
                self.board[number] = True
            elif part is not None:
                answer = not self._again(part)
            else:
                answer = not self._first(self.prepared.runs[number])
        finally:
            self._asked += time.perf_counter() - started
        return answer

    # -- the first time a statement is met ----------------------------------------------------------

    def _first(self, run: tuple[CellStatement, ...]) -> bool:
        """Compile and run as many of ``run`` as possible; False if Python must run the first one."""
        start = run[0]
        members, why = plan(run, self.namespace, self.unroll)
        if not members:
            return self._left_out(start, why)
        step = is_step(start.node)  # torch itself breaks the graph around it
        if self.fullgraph and not step:
            self._refuse_what_parts(start)
        for place, member in enumerate(members):
            if member.id in self._breaking:
                members = members[: max(place, 1)]
                break
        if why := kept_from_compiling():
            return self._python(members, why, only_now=True)  # a setting may be another at the next step
        while True:
            breaks = start.id in self._breaking
            if start.id in self._pythons:
                found = self._pythons[start.id]
                if self.fullgraph:
                    raise self._refused(start, found)
                at = found.spans[0].line
                inside = f"left to Python, for the break at line {at}: " if at > head_end(start.node) else ""
                self.left[start.id] = f"{inside}{found.reason}"
                self.board[start.id] = True  # statements inside it are still asked about
                return False
            try:
                part = self._make(members, whole=not step and (self.fullgraph or not breaks))
            except CellError as error:
                return self._python(members, error.message)
            self.parts[start.id] = part
            try:
                self._call(part, first=True)
            except BaseException as error:
                del self.parts[start.id]
                if not isinstance(error, Exception):
                    raise
                if self._has_acted(part):
                    raise
                broken = self._broken(error, members)
                if broken is None:
                    self.failed[start.id] = part
                    return self._python(members, why_left(error, [member.node for member in members]))
                if self.fullgraph and broken == 0:
                    reason, hint = explained(error)
                    found = self._break(start, reason, hint, place_of(error, self.filename))
                    raise self._refused(start, found) from None
                self._breaking.add(members[broken].id)
                members = members[: max(broken, 1)]
                continue
            self._tell_of_functions(members)
            return True

    def _tell_of_functions(self, members: Sequence[CellStatement]) -> None:
        for member in members:
            for told in told_of_functions(member.node, self.namespace):
                self._note(f"line {member.line} {told}")

    def _left_out(self, start: CellStatement, why: str) -> bool:
        """Leave a statement to Python that was not planned to be compiled."""
        if why == CHANGED_GLOBAL:
            self.notes.append(f"line {start.line} ran eagerly: {why}")
            self.left[start.id] = why
        else:
            left = PythonStatement.of(start.node, why, start.block, quiet=is_quiet(why))
            if self.fullgraph and why.startswith(FILLS_CONTAINER):
                raise self._parting(left)
            if self.fullgraph and may_part(why):
                self._pass(left, start.node)
            self.prepared.python.append(left)
            if why.startswith(OWN_COMPILE):
                self._note(f"line {start.line}: {why}")
        self.board[start.id] = True
        return False

    def _make(self, members: list[CellStatement], *, whole: bool) -> CellPart:
        keep = [name for name, value in self.namespace.items() if stays_global(value)]
        self._made += 1
        function = make_function(
            members,
            name=f"cell_{self.number}_{self._made}",
            filename=self.filename,
            bound=self.namespace,
            keep=keep,
        )
        # Globals of its own: Dynamo writes names of its own into a function's globals.
        known = names_in(function.code)
        code_names = tuple(name for name in keep if name in known)
        scope = {"__name__": self.namespace.get("__name__", "__main__"), "__builtins__": builtins}
        bound = function.bind({**scope, **{name: self.namespace[name] for name in code_names}})
        numbers: tuple[str, ...] = ()
        if members[0].in_loop:
            numbers = tuple(n for n in function.parameters if type(self.namespace.get(n)) in (int, float))
        call = self.compiler(bound, whole=whole, numbers=numbers)
        part = CellPart(tuple(members), function, call, bound, whole, code_names, numbers=numbers)
        part.arguments = self._arguments(part)
        part.grad_enabled = torch.is_grad_enabled()
        return part

    # -- running ------------------------------------------------------------------------------------

    def _has_acted(self, part: CellPart) -> bool:
        """Whether the failed call may have changed something that cannot be taken back."""
        return not part.whole or part.versions != self._versions(part)

    def _versions(self, part: CellPart) -> list[int]:
        """How often each tensor the part may reach was changed in place; empty where it cannot matter."""
        if self.compiler.functional:
            return []
        tensors = [value for value in part.current if isinstance(value, torch.Tensor)]
        for value in part.current:
            if isinstance(value, torch.nn.Module):
                tensors += [*value.parameters(), *value.buffers()]
        return [tensor._version for tensor in tensors if not tensor.is_inference()]

    def _again(self, part: CellPart) -> bool:
        part.passes += 1
        if part.left:
            return False
        try:
            self._call(part, first=False)
        except Exception as error:
            if self._has_acted(part):
                raise
            part.failures += 1
            part.left = part.failures >= _MAX_FAILURES or isinstance(error, TorchDynamoException)
            why = why_left(error, [member.node for member in part.members])
            return self._python(part.members, why, only_now=True)  # asked again, to be counted
        return True

    @capturable_kept()
    def _call(self, part: CellPart, *, first: bool) -> None:
        """Run a part and bind its results. If it raises, a whole part has done nothing."""
        self.called = part.function.name if part.function.first_line == part.function.last_line else ""
        part.committed = False
        arguments = part.current = part.arguments if first else self._arguments(part)
        part.versions = self._versions(part)
        scope = part.bound.__globals__
        for name in part.code_names:
            scope[name] = self.namespace.get(name, UNBOUND)
        started = time.perf_counter()
        before = RandomState(python=first or part.draws_python)
        roots = {**scope, **dict(zip(part.function.parameters, arguments, strict=True))} if first else {}
        held = HeldKeys(roots)
        try:
            if not part.whole:
                with quiet_compile() if first else DYNAMO:
                    result = part.call(*arguments)
                self._commit(part, result)
            elif first:
                # Compiling can be interrupted; from the graph's first kernel on it runs to its end.
                with FinishFirst(lambda: bool(part.call.graphs_run)):
                    with quiet_compile(), changing(part.numbers):
                        result = part.call(*arguments)
                    self._commit(part, result)
            else:
                with FinishFirst():
                    self._commit(part, part.call(*arguments))
        except BaseException:
            if part.whole and not part.committed:
                before.restore()
            raise
        if first:
            part.seconds = time.perf_counter() - started
            part.draws_python = before.python_moved()
            part.filled = held.filled(zip(part.function.results, result, strict=True))
            part.graphs = part.call.graphs_run
        part.calls += 1
        part.current = ()

    def _arguments(self, part: CellPart) -> tuple[Any, ...]:
        return tuple(self.namespace.get(name, UNBOUND) for name in part.function.parameters)

    def _commit(self, part: CellPart, result: Sequence[Any]) -> None:
        """Bind the results; from here on Python skips what the part has done."""
        for name, value in zip(part.function.results, result, strict=True):
            if value is UNBOUND:
                continue
            if name.startswith("__value__"):
                self.board.values[int(name[len("__value__") :])] = value
            else:
                self.namespace[name] = value
        for member in part.members[1:]:
            self.board[member.id] = False
        part.committed = True

    def _python(self, members: Sequence[CellStatement], reason: str, only_now: bool = False) -> bool:
        """Leave ``members`` to Python."""
        self._doubt(members[0].line, reason)
        self.left.update((member.id, reason) for member in members)
        for member in members[1:] if only_now else members:
            self.board[member.id] = True
        return False

    # -- what went wrong ----------------------------------------------------------------------------

    def _broken(self, error: Exception, members: list[CellStatement]) -> int | None:
        """Which member Dynamo could not take into the graph, if that is what ``error`` says."""
        if not isinstance(error, torch._dynamo.exc.Unsupported | torch._dynamo.exc.UserError):
            return None
        reason = first_line(error)
        coached, hint = explained(error)
        if is_the_programs(error):
            return None  # Python will raise it
        stack = list(getattr(error, "real_stack", None) or ())
        for depth, frame in enumerate(stack):
            if frame.filename == self.filename and frame.name.startswith(f"cell_{self.number}_"):
                for place, member in enumerate(members):
                    if member.line <= frame.lineno <= member.end_line:
                        if member.is_compound or depth == len(stack) - 1:
                            # What broke is in the statement itself: Python runs that. Elsewhere it is in
                            # a function it calls, and compiling that with breaks still gains something.
                            at = place_of(error, self.filename)
                            self._pythons[member.id] = self._break(member, coached or reason, hint, at)
                        return place
        return None

    def _refused(self, member: CellStatement, found: GraphBreak) -> CellError:
        """What ``--fullgraph`` raises at the statement that breaks the graph."""
        self.left[member.id] = f"the graph breaks here: {found.reason}"
        return refusal(found.reason, found.hint, found.spans, member.line)

    def _pass(self, left: PythonStatement, node: ast.stmt) -> None:
        """Refuse a statement of Python's, before it runs, that would part two graphs (``--fullgraph``): one
        is before it, and what follows would be compiled as far as can be said now."""
        if not any(members[-1].place < left.place for members in self._compiled_in(left.block)):
            return
        for first, *_ in self.prepared.runs.values():
            unknown = names_stored(node) & names_read(first.node)
            if (
                first.block == left.block
                and first.place > left.place
                and not (unknown or is_step(first.node))
            ):
                if plan((first,), self.namespace, self.unroll)[0]:
                    raise self._parting(left)

    def _refuse_what_parts(self, start: CellStatement) -> None:
        """The same once ``start`` is known to be compiled, of what Python has run before it."""
        for left in self.prepared.effects:
            if left.block == start.block and left.place < start.place:
                if any(members[-1].place <= left.place for members in self._compiled_in(left.block)):
                    raise self._parting(left, start.line)

    def _compiled_in(self, block: int, *, with_graphs: bool = False) -> list[tuple[CellStatement, ...]]:
        return [
            part.members
            for part in self.parts.values()
            if part.members[0].block == block and (part.call.graphs_run or not with_graphs)
        ]

    def loops_by_values(self, number: int) -> None:
        """A ``while`` that Python runs has asked a tensor: it breaks the graph, as an ``if`` does."""
        told = self.prepared.conditions[number]
        left = replace(told, reason=LOOP_BY_VALUES[0], quiet=False)
        self.prepared.python[self.prepared.python.index(told)] = left
        refused = self._parting(left)
        if self.fullgraph:
            raise refused

    def _parting(self, left: PythonStatement, line: int | None = None) -> CellError:
        """The error of ``--fullgraph`` for a statement of Python's between two graphs, met at ``line``."""
        compiled = {each.line for members in self._compiled_in(left.block) for each in members}
        hint = how_to_join(left, self.prepared.tree, compiled)
        found = GraphBreak(left.reason, hint, "cell", spans=(Span(left.line),))
        if found not in self.breaks:
            self.breaks.append(found)
        return refusal(found.reason, found.hint, found.spans, line or left.line)

    def _break(self, statement: CellStatement, reason: str, hint: str, spans: tuple[Span, ...]) -> GraphBreak:
        """The break at a statement, once. ``spans``: where in it, or in what it calls, as far as is known. Of
        one within a block it is told when Python comes to that."""
        found, inside = break_at(statement.node, reason, hint, spans)
        if found not in self.breaks and (self.fullgraph or not inside):
            self.breaks.append(found)
        return found

    def _parted(self) -> None:
        """Record what Python ran between two compiled parts of one block: as a break, or in a note where
        there was nothing in it to compile."""
        quiet: dict[tuple[Any, Any], list[PythonStatement]] = {}
        broken = set()
        for left in dict.fromkeys(self.prepared.python):
            parts = self._compiled_in(left.block, with_graphs=left.quiet)
            after = [members[0].place for members in parts if members[0].place > left.place]
            before = [members[-1].place for members in parts if members[-1].place <= left.place]
            if not (before and after):
                continue
            gap = max(before), min(after)
            if left.quiet:
                quiet.setdefault(gap, []).append(left)
            else:
                broken.add(gap)
                self._parting(left)
        for gap, lines in quiet.items():
            taken = [left for left in lines if left.reason.startswith(TAKEN_BY_PYTHON)]
            if told := parted_by(taken if gap in broken else lines):
                self._note(told)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _doubt(self, line: int, reason: str) -> None:
        if (line, reason) not in self._doubts:
            self._doubts.append((line, reason))

    def finish(self, error: BaseException | None = None) -> None:
        """The cell is over. A failure that Python then met too was the program's own, not ours."""
        if self.begun is not None:
            self.python_seconds = max(0.0, time.perf_counter() - self.begun - self._asked)
        doubts = self._doubts if error is None else self._doubts[:-1]
        trace = error.__traceback__ if error is not None else None
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == (self.filename or self.own_file):
                self.raised = self.raised or (trace.tb_lineno, what_it_did(error, trace.tb_lineno))
                self.raised_in = trace.tb_lineno
            trace = trace.tb_next
        for line, reason in doubts:
            self.notes.append(f"line {line} ran eagerly: {reason}")
        self._doubts = []
        python, tree = self.prepared.python, self.prepared.tree
        python[:] = [of_ones_own(left, tree, self.namespace) for left in python]
        self._parted()
