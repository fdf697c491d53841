"""How a cell that starts with ``%%compile`` stays an ordinary cell to IPython.

A cell magic hands IPython's whole machinery one string. Here the magic line becomes one statement that
our AST transformer takes out again, so the cell runs as the cell it is: same file name, same line
numbers (the magic line is line 1), display, ``;``, history, ``await``, and other magics inside it.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
from IPython.core.error import UsageError

from nbcompile.compiler.capture.cell_to_function import SWITCHBOARD, PreparedCell
from nbcompile.notebook.cell.planning import TWICE, twice_differentiated
from nbcompile.notebook.cell.tracebacks import show_only_the_users
from nbcompile.syntax import copied

MARK = "__nbcompile_cell__"
_MAGIC = re.compile(r"%%compile(?=\s|$)(.*)", re.DOTALL)


class CellMarker:
    """The input transformer: the ``%%compile`` line becomes ``__nbcompile_cell__('options')``.

    A line that ``accepts`` refuses (help wanted, a bad option) is left to the registered cell magic,
    as is a cell that holds another cell magic.
    """

    has_side_effects = True  # keeps it out of "is this input complete?", where %% lines have rules

    def __init__(self, accepts: Callable[[str], bool]) -> None:
        self.accepts = accepts

    def __call__(self, lines: list[str]) -> list[str]:
        found = _MAGIC.match(lines[0]) if lines else None
        if found is None:
            return lines
        body = next((line for line in lines[1:] if line.strip()), "")
        line = found.group(1).strip()
        if not body and {"-h", "--help"} & set(line.split()):
            return ["%compile --help\n"]  # IPython refuses a cell magic without a cell
        if body.startswith("%%") or not self._accepts(line):
            return lines
        return [f"{MARK}({line!r})\n", *lines[1:]]

    def _accepts(self, line: str) -> bool:
        try:
            return self.accepts(line)
        except UsageError:
            return False


class CellTransformer:
    """The AST transformer: takes the mark out and gives the rest to ``start(line, tree)``, which
    returns the tree to run. Where ``start`` fails the cell runs as it was written."""

    def __init__(
        self, start: Callable[[str, ast.Module], ast.Module], failed: Callable[[Exception], None]
    ) -> None:
        self.start = start
        self.failed = failed

    def visit(self, tree: ast.Module) -> ast.Module:
        line = _marked(tree)
        if line is None:
            return tree
        del tree.body[0]
        kept = copied(tree)
        try:
            return self.start(line, tree)
        except Exception as error:
            # Raising here would make IPython drop us and run the cell without a word.
            self.failed(error)
            return kept


def _marked(tree: ast.AST) -> str | None:
    if not isinstance(tree, ast.Module) or not tree.body:
        return None
    first = tree.body[0]
    if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Call)):
        return None
    call = first.value
    if isinstance(call.func, ast.Name) and call.func.id == MARK and isinstance(call.args[0], ast.Constant):
        return str(call.args[0].value)
    return None


def hide_mark(line: str) -> str:
    """In the source that tracebacks quote, show the magic line (as a comment, so it stays Python). Returns
    the file name of the cell, empty if its source is not kept."""
    found = ""
    for name, entry in list(linecache.cache.items()):
        if len(entry) == 4 and entry[2] and entry[2][0].startswith(f"{MARK}("):
            found = name
            size, modified, lines, full = entry
            linecache.cache[name] = (
                size,
                modified,
                [f"# %%compile {line}".rstrip() + "\n", *lines[1:]],
                full,
            )
    return found


def install_mark() -> None:
    """Should the mark ever run (another extension removed our transformer), it does nothing."""
    setattr(builtins, MARK, lambda line: None)


def uninstall_mark() -> None:
    """Undo :func:`install_mark`."""
    if hasattr(builtins, MARK):
        delattr(builtins, MARK)


class AskedRun(Protocol):
    """A cell under way, as the switchboard asks it (:class:`nbcompile.notebook.cell.cell_run.CellRun`)."""

    prepared: PreparedCell
    compiler: Any
    namespace: dict[str, Any]
    filename: str
    called: str
    disabled: str

    def loops_by_values(self, number: int) -> None:
        """A ``while`` that Python runs has asked a tensor."""
        ...

    def ask(self, number: int) -> bool:
        """Whether Python should run a statement."""
        ...


class Conditions(dict[int, Callable[[object], object]]):
    """Number of a ``while`` → what looks at each value whose truth it asks, and hands it on. Once it is known
    whether that is a tensor it is ``bool``, which costs a loop of Python's next to nothing."""

    def __init__(self, runs: dict[int, AskedRun]) -> None:
        super().__init__()
        self._runs, self._looks = runs, Counter[int]()

    def __missing__(self, number: int) -> Callable[[object], object]:
        run = self._runs.get(number)
        return bool if run is None or run.disabled else partial(self._look, number, run)

    def _look(self, number: int, run: AskedRun, value: object) -> object:
        __tracebackhide__ = True
        self._looks[number] += 1
        if isinstance(value, torch.Tensor) or self._looks[number] >= _LOOKS:
            self[number] = bool
        if isinstance(value, torch.Tensor):
            try:
                run.loops_by_values(number)
            except BaseException as error:
                show_only_the_users(error, run.filename)
                raise
        return value


_LOOKS = 4
"""How often a condition is looked at that is no tensor: ``while error > 0.1`` may begin with a number."""


class Switchboard(dict[int, bool]):
    """Statement number → should Python run it? Numbers that need thought are absent: their run is asked.

    A dict, so that a statement known to be Python's costs one lookup in C. ``values`` holds the
    displayed values that compiled parts computed, ``conditions`` looks at what Python's loops ask.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[int, AskedRun] = {}
        self.values: dict[int, Any] = {}  # type: ignore[assignment]  # a cell subscripts it
        self.conditions = Conditions(self.runs)
        self.next_id = 0

    def __missing__(self, number: int) -> bool:
        __tracebackhide__ = True
        run = self.runs.get(number)
        if run is None:
            return True
        frame = sys._getframe(1)
        if frame.f_locals is not frame.f_globals:
            run.disabled = run.disabled or "it runs inside a function (a timing magic?)"
        elif not run.filename:
            run.filename, run.namespace = frame.f_code.co_filename, frame.f_globals
            if run.compiler.functional and twice_differentiated(run.prepared.tree, run.namespace):
                run.disabled = run.disabled or TWICE
        try:
            return run.ask(number)
        except BaseException as error:
            show_only_the_users(error, run.filename, run.called)
            raise

    def install(self) -> None:
        """Make the switchboard reachable from any cell, also after ``%reset``."""
        setattr(builtins, SWITCHBOARD, self)

    def uninstall(self) -> None:
        if getattr(builtins, SWITCHBOARD, None) is self:
            delattr(builtins, SWITCHBOARD)

    def open(self, run: AskedRun) -> None:
        """Let ``run`` answer for its statements."""
        self.runs |= dict.fromkeys(run.prepared.questions, run)

    def close(self, run: AskedRun) -> None:
        """Forget ``run``: its statements, if they run again (a late coroutine), are Python's."""
        for number in run.prepared.questions:
            self.runs.pop(number, None)
            self.pop(number, None)
            self.values.pop(number, None)
            self.conditions.pop(number, None)
