"""CellSource → CellFunction: which statements of a cell compile, and the function they become.

The cell keeps its own control flow and its own statements. :func:`prepare` rewrites the parsed cell so
that each statement that may hold tensor work first asks a *switchboard* (a mapping of statement numbers
to booleans, see :mod:`nbcompile.notebook.cell.cell_run`) whether Python should run it::

    for step in range(200):                   for step in range(200):
        y = model(x)                              if __nbcompile__[12]: y = model(x)
        loss = y.sum()               →            if __nbcompile__[13]: loss = y.sum()
        loss.backward()                           loss.backward()

Asking about statement 12 may compile and run 12 and 13 as one function and answer "no" for both; if
anything of ours fails, the answer is "yes" and the user's own statement runs, at its own line, in its
own frame. So tracebacks, ``await``, ``break``, ``try`` and ``del`` are Python's own, by construction.

:func:`make_function` turns a run of statements into a function: names read are parameters, names bound
are results. Modules, functions and classes stay globals. (The other design, ``global`` declarations in
the function, was tried first: Dynamo cannot read a global that is first bound in the same frame, and
treats every global number as a constant, so a loop counter recompiles at each step.)
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nbcompile.compiler.capture.losses import Place, leading_to
from nbcompile.compiler.capture.python_reasons import (
    CHANGES_CONTAINER,
    appended,
    expression_reason,
    head_reason,
    is_step,
    python_reason,
    quiet_reason,
    receiver_reads,
)
from nbcompile.errors import CellError
from nbcompile.syntax import copied, flow_of_names, placed, put

SWITCHBOARD = "__nbcompile__"
VALUE = "__value__{}"
TOP = 1  # the number of the block that is the cell itself
Interactivity = Literal["all", "last", "last_expr", "last_expr_or_assign", "none"]


@dataclass(frozen=True)
class CellStatement:
    """One statement that the switchboard is asked about.

    ``id`` is its number, ``inner`` the largest number inside it (its own, if it holds none), ``block``
    which block it stands in, ``in_loop`` whether Python may run it more than once, ``shown`` whether
    its value is displayed. ``leads``: the backward passes of its block that what it makes leads to.
    """

    id: int
    node: ast.stmt
    inner: int
    block: int
    in_loop: bool
    shown: bool
    leads: frozenset[Place] = frozenset()

    @property
    def line(self) -> int:
        return self.node.lineno

    @property
    def place(self) -> Place:
        return self.node.lineno, self.node.col_offset

    @property
    def end_line(self) -> int:
        return self.node.end_lineno or self.node.lineno

    @property
    def is_compound(self) -> bool:
        return isinstance(self.node, ast.For | ast.If | ast.With)


@dataclass(frozen=True)
class PythonStatement:
    """A statement left to Python, and why. ``block`` is the block it stands in; ``quiet``: there is nothing
    in it to compile; ``end_line``: where the statement, or what a compound one begins with, ends; ``place``:
    where it begins, or what of it may be compiled."""

    line: int
    reason: str
    block: int
    quiet: bool = False
    end_line: int = 0
    place: Place = (0, 0)

    @classmethod
    def of(
        cls, node: ast.stmt, reason: str, block: int, *, quiet: bool, begins: ast.expr | None = None
    ) -> PythonStatement:
        first = begins or node
        place = first.lineno, first.col_offset
        return cls(node.lineno, reason, block, quiet, head_end(node), place)


@dataclass
class PreparedCell:
    """A rewritten cell: ``tree`` to run, ``runs`` (statement id → it and the statements after it that
    follow directly in the same block), ``python``, what was left to Python, and ``gates``, what of that asks
    before it runs. ``entries`` are what is asked first in each block within others: where it never is, the
    block was never reached. ``conditions``: of a ``while`` that Python runs, what it is, by the number under
    which its condition is looked at. ``last_id`` is the largest number given."""

    tree: ast.Module
    runs: dict[int, tuple[CellStatement, ...]] = field(default_factory=dict)
    python: list[PythonStatement] = field(default_factory=list)
    gates: dict[int, tuple[PythonStatement, ast.stmt]] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)
    conditions: dict[int, PythonStatement] = field(default_factory=dict)
    last_id: int = 0

    @property
    def questions(self) -> tuple[int, ...]:
        """All that the switchboard may be asked."""
        return (*self.runs, *self.gates, *self.entries.values(), *self.conditions)

    @property
    def statements(self) -> tuple[CellStatement, ...]:
        return tuple(run[0] for run in self.runs.values())

    @property
    def effects(self) -> tuple[PythonStatement, ...]:
        """What was left to Python and does more than name things."""
        return tuple(left for left in self.python if not left.quiet)


@dataclass(frozen=True)
class CellFunction:
    """Consecutive statements of a cell as a function: ``parameters`` are the names it reads, in order,
    ``results`` the names it binds (then one ``__value__N`` for each displayed expression N)."""

    name: str
    code: types.CodeType
    parameters: tuple[str, ...]
    results: tuple[str, ...]
    first_line: int
    last_line: int
    source: str

    def bind(self, namespace: dict[str, Any]) -> types.FunctionType:
        """The function over ``namespace`` as its globals. Nothing is written into the namespace."""
        return types.FunctionType(self.code, namespace, self.name)

    def as_text(self) -> str:
        return self.source


def prepare(
    tree: ast.Module,
    *,
    first_id: int = 0,
    interactivity: Interactivity = "last_expr",
    optimizer: bool = False,
    gated: bool = False,
) -> PreparedCell:
    """Rewrite a parsed cell (see the module's docstring). ``tree`` is changed in place.

    ``first_id`` numbers the first statement; ``interactivity`` is IPython's ``ast_node_interactivity``,
    which decides which expressions are displayed; ``optimizer``: the step of an optimizer may be compiled;
    ``gated``: what is Python's and may part two graphs asks as well.
    """
    if interactivity == "last_expr_or_assign":
        _show_last_assignment(tree)
    rewriter = _Rewriter(first_id, interactivity, optimizer, gated)
    tree.body = rewriter.block(tree.body, in_loop=False, top=True)
    ast.fix_missing_locations(tree)
    return PreparedCell(
        tree, rewriter.runs, rewriter.python, rewriter.gates, rewriter.entries, rewriter.conditions,
        rewriter.next_id - 1,
    )  # fmt: skip


def make_function(
    statements: Sequence[CellStatement],
    *,
    name: str,
    filename: str,
    bound: Iterable[str],
    keep: Iterable[str],
) -> CellFunction:
    """One function of ``statements``. ``bound`` are the names now bound in the namespace, ``keep`` those
    of them that stay globals (modules, functions, classes).

    CellError, naming the line, if Python refuses the function.
    """
    bound, keep = set(bound), set(keep)
    reads, stores, maybe = flow_of_names(statement.node for statement in statements)
    results = tuple(stores)
    parameters = [n for n in reads if n in stores or (n in bound and n not in keep)]
    # A name that may stay unbound must come in, so that it can go out as it was.
    parameters += [n for n in results if n in maybe and n not in parameters]
    values = tuple(VALUE.format(s.id) for s in statements if s.shown and isinstance(s.node, ast.Expr))
    body: list[ast.stmt] = []
    for statement in statements:
        node = copied(statement.node)
        if statement.shown and isinstance(node, ast.Expr):
            target = ast.Name(VALUE.format(statement.id), ast.Store())
            node = ast.copy_location(ast.Assign([target], node.value), node)
        body.append(node)
    source = "\n".join(ast.unparse(statement.node) for statement in statements)
    last = statements[-1]
    returned = ast.Tuple([ast.Name(n, ast.Load()) for n in (*results, *values)], ast.Load())
    place = {"lineno": last.end_line, "col_offset": 0, "end_lineno": last.end_line, "end_col_offset": 0}
    body.append(ast.Return(returned, **place))
    empty = ast.parse(f"def {name}({', '.join(parameters)}): pass")
    function = empty.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = body
    for part in ast.walk(returned):
        if "lineno" in part._attributes:
            ast.copy_location(part, body[-1])
    function.lineno = function.end_lineno = statements[0].line
    for argument in function.args.args:
        argument.lineno = argument.end_lineno = statements[0].line
    ast.fix_missing_locations(empty)
    try:
        module = compile(empty, filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise CellError(f"cannot become a function: {error}", line=statements[0].line) from error
    code = next(const for const in module.co_consts if isinstance(const, types.CodeType))
    return CellFunction(
        name, code, tuple(parameters), (*results, *values), statements[0].line, last.end_line, source
    )


def is_shown(result: str) -> bool:
    """Whether a result of a :class:`CellFunction` is what an expression displays, and no name."""
    return result.startswith(VALUE.partition("{")[0])


def head_end(node: ast.stmt) -> int:
    """The last line of a statement; of one with others in it, that before the first of these."""
    inner = [owner for owner, name in _blocks(node) if name == "body"]
    body = getattr(inner[0] if inner else node, "body", None)
    if isinstance(body, list) and body:
        return max(node.lineno, int(body[0].lineno) - 1)
    return node.end_lineno or node.lineno


class _Rewriter:
    def __init__(self, first_id: int, interactivity: Interactivity, optimizer: bool, gated: bool) -> None:
        self.next_id = first_id
        self.gated = gated
        self.gates: dict[int, tuple[PythonStatement, ast.stmt]] = {}
        self.entries: dict[int, int] = {}
        self.conditions: dict[int, PythonStatement] = {}
        self.optimizer = optimizer
        self.interactivity = interactivity
        self.runs: dict[int, tuple[CellStatement, ...]] = {}
        self.python: list[PythonStatement] = []
        self.blocks = TOP - 1

    def block(
        self, body: list[ast.stmt], *, in_loop: bool, top: bool = False, shown: bool = False
    ) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        pending: list[CellStatement] = []
        self.blocks += 1
        block, leads = self.blocks, leading_to(body)
        for position, node in enumerate(body):
            last = top and position == len(body) - 1
            show = self._shows(node, last, shown)
            if (inner := self._within(node, block, in_loop)) is not None:
                pending.append(inner)
                self._close(pending)
                out.append(node)
                continue
            original = copied(node)
            is_candidate = self._is_candidate(node, block)
            if is_candidate:
                number = self.next_id
                self.next_id += 1
            self._descend(node, in_loop, show and self.interactivity in ("all", "last"))
            if not is_candidate:
                self._close(pending)
                out.append(self._gate(node, original, show))
                continue
            pending.append(
                CellStatement(number, original, self.next_id - 1, block, in_loop, show, leads[position])
            )
            out.append(_ask(node, number, show))
        self._close(pending)
        return out if top else self._entered(out, block, body[0])

    def _entered(self, out: list[ast.stmt], block: int, first: ast.stmt) -> list[ast.stmt]:
        """A block whose first statement asks, so that it is known whether it was reached: where that is not
        one that may be compiled, a question before it that does nothing else."""
        asked = [run[0] for run in self.runs.values() if run[0].block == block]
        if asked and asked[0].line == first.lineno:
            self.entries[block] = asked[0].id
            return out
        self.entries[block] = self.next_id
        self.next_id += 1
        board = ast.Subscript(ast.Name(SWITCHBOARD, ast.Load()), ast.Constant(self.next_id - 1), ast.Load())
        return [placed(ast.If(board, [ast.Pass()], []), first), *out]

    def _gate(self, node: ast.stmt, original: ast.stmt, show: bool) -> ast.stmt:
        """``node``, which is left to Python, behind a question where it does more than name things."""
        left = self.python[-1]
        if not self.gated or left.quiet or left.place != (node.lineno, node.col_offset):
            return node
        number = self.next_id
        self.next_id += 1
        self.gates[number] = left, original
        return _ask(node, number, show)

    def _within(self, node: ast.stmt, block: int, in_loop: bool) -> CellStatement | None:
        """Of ``loss_of(x).backward()``, ``loss_of(x)`` as a statement of its own, and so what a loop appends;
        the rest stays Python's. None where there is no such thing in a statement."""
        asking = receiver_reads(node)
        if asking is not None:
            assert isinstance(asking.func, ast.Attribute)
            value: ast.expr | None = asking.func.value
        else:
            value = appended(node) if in_loop else None
        if value is None:
            return None
        number = self.next_id
        self.next_id += 1
        computed = ast.copy_location(ast.Expr(copied(value)), value)
        reason = CHANGES_CONTAINER if asking is None else python_reason(node) or quiet_reason(node)
        self.python.append(PythonStatement.of(node, reason, block, quiet=asking is None, begins=value))
        put(node, value, placed(_asked(value, number, shown=True), value))
        back = asking is not None and getattr(asking.func, "attr", "") == "backward"
        leads = frozenset({(node.lineno, node.col_offset)} if back else ())
        return CellStatement(number, computed, number, block, in_loop, True, leads)

    def _close(self, pending: list[CellStatement]) -> None:
        for start, statement in enumerate(pending):
            self.runs[statement.id] = tuple(pending[start:])
        pending.clear()

    def _shows(self, node: ast.stmt, last: bool, inherited: bool) -> bool:
        if self.interactivity in ("last_expr", "last_expr_or_assign"):
            return last and isinstance(node, ast.Expr)
        if self.interactivity == "last":
            return last or inherited
        return self.interactivity == "all"

    def _is_candidate(self, node: ast.stmt, block: int) -> bool:
        if isinstance(node, ast.For | ast.If | ast.With):
            # What a block displays while it runs, Python must run.
            displays = self.interactivity in ("all", "last") and any(
                isinstance(part, ast.Expr) for part in ast.walk(node)
            )
            reason = None if not displays and _whole(node) else head_reason(node)
        elif self.optimizer and is_step(node):
            reason = None
        else:
            reason = head_reason(node) if _blocks(node) else python_reason(node)
        if reason is None:
            return True
        why = reason or quiet_reason(node)
        self.python.append(PythonStatement.of(node, why, block, quiet=not reason))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._define(node)
        elif isinstance(node, ast.While) and not reason and not isinstance(node.test, ast.Constant):
            self.conditions[self.next_id] = self.python[-1]
            node.test = _looked_at(node.test, self.next_id)
            self.next_id += 1
        return False

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        when = "where it is defined" if isinstance(node, ast.ClassDef) else "when it is called"
        within = f"part of {node.name}, which runs {when}"
        waiting = list(node.body)
        while waiting:
            part = waiting.pop(0)
            self.python.append(PythonStatement.of(part, within, -1, quiet=True))
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._define(part)
            waiting += [each for owner, name in _blocks(part) for each in getattr(owner, name)]

    def _descend(self, node: ast.stmt, in_loop: bool, shown: bool) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return
        loop = in_loop or isinstance(node, ast.For | ast.AsyncFor | ast.While)
        for owner, name in _blocks(node):
            setattr(owner, name, self.block(getattr(owner, name), in_loop=loop, shown=shown))


def _looked_at(test: ast.expr, number: int) -> ast.expr:
    """A loop's condition, with each value that Python takes the truth of handed to the switchboard first."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test.operand = _looked_at(test.operand, number)
        return test
    if isinstance(test, ast.BoolOp):
        test.values = [_looked_at(each, number) for each in test.values]
        return test
    conditions = ast.Attribute(ast.Name(SWITCHBOARD, ast.Load()), "conditions", ast.Load())
    look = ast.Subscript(conditions, ast.Constant(number), ast.Load())
    call = ast.copy_location(ast.Call(look, [test], []), test)
    for part in (look, look.slice, conditions, conditions.value):
        ast.copy_location(part, test)
    return call


def _asked(value: ast.expr, number: int, shown: bool) -> ast.expr:
    """``value`` behind a question to the switchboard; where it is ``shown``, what was computed instead."""
    board = ast.Name(SWITCHBOARD, ast.Load())
    answer: ast.expr = ast.Constant(None)
    if shown:
        values = ast.Attribute(ast.Name(SWITCHBOARD, ast.Load()), "values", ast.Load())
        answer = ast.Subscript(values, ast.Constant(number), ast.Load())
    return ast.IfExp(ast.Subscript(board, ast.Constant(number), ast.Load()), value, answer)


def _ask(node: ast.stmt, number: int, shown: bool) -> ast.stmt:
    """``node`` behind a question to the switchboard. An expression stays one, so it is displayed."""
    if isinstance(node, ast.Expr):
        return placed(ast.Expr(_asked(node.value, number, shown)), node)
    board = ast.Name(SWITCHBOARD, ast.Load())
    return placed(ast.If(ast.Subscript(board, ast.Constant(number), ast.Load()), [node], []), node)


def _blocks(node: ast.stmt) -> list[tuple[Any, str]]:
    """The statement lists inside a compound statement, as (owner, field)."""
    found: list[tuple[Any, str]] = []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return found
    for name in ("body", "orelse", "finalbody"):
        if isinstance(getattr(node, name, None), list) and getattr(node, name):
            found.append((node, name))
    for part in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]:
        found.append((part, "body"))
    return found


def _whole(node: ast.For | ast.If | ast.With) -> bool:
    """Whether a compound statement could be part of a compiled function, as far as text can tell."""
    heads: list[ast.expr]
    if isinstance(node, ast.For):
        heads = [node.iter, node.target]
    elif isinstance(node, ast.If):
        heads = [node.test]
    else:
        heads = [item.context_expr for item in node.items]
    if any(expression_reason(head) is not None for head in heads):
        return False
    for owner, name in _blocks(node):
        for inner in getattr(owner, name):
            if isinstance(inner, ast.For | ast.If | ast.With):
                if not _whole(inner):
                    return False
            elif isinstance(inner, ast.Break | ast.Continue | ast.Pass):
                # Inside a whole loop these are the function's own; an `if` holding one is judged with it.
                if not isinstance(inner, ast.Pass) and not isinstance(node, ast.For):
                    return False
            elif _blocks(inner) or (python_reason(inner) is not None and not _binds_constant(inner)):
                return False
    return True


def _binds_constant(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.Name)


def _show_last_assignment(tree: ast.Module) -> None:
    """What IPython does for ``last_expr_or_assign``, before the assignment is wrapped."""
    last = tree.body[-1] if tree.body else None
    target: ast.expr | None = None
    if isinstance(last, ast.Assign) and len(last.targets) == 1:
        target = last.targets[0]
    elif isinstance(last, ast.AugAssign | ast.AnnAssign):
        target = last.target
    if last is not None and isinstance(target, ast.Name):
        tree.body.append(ast.copy_location(ast.Expr(ast.Name(target.id, ast.Load())), last))
        ast.fix_missing_locations(tree)
