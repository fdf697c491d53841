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
from collections.abc import Callable

from IPython.core.error import UsageError

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
