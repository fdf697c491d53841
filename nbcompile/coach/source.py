"""A cell's text as a tree whose nodes can be replaced in place: comments and layout stay."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Rewrite:
    """A text with one thing mended: what was done, and what is different for whoever uses it."""

    title: str
    text: str
    note: str = ""


class Source:
    """``text`` is what the user typed. ``starts`` is the first line that is Python: magics stand above."""

    def __init__(self, text: str, starts: int = 1) -> None:
        self.text, self.starts = text, starts
        lines = text.split("\n")
        body = [""] * (starts - 1) + lines[starts - 1 :]
        self.tree = ast.parse("\n".join(body))
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self._starts = [0]
        for line in text.encode().split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)

    def statement(self, line: int) -> ast.stmt | None:
        """The innermost statement that this line is part of."""
        found = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
        ]
        return max(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)

    def scope(self, node: ast.AST) -> Function | ast.Module:
        """The function that a node stands in, or the cell."""
        while not isinstance(node, Function | ast.Module):
            node = self.parents[node]
        return node

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements among which one stands."""
        owner = self.parents[statement]
        for name in ("body", "orelse", "finalbody"):
            found = getattr(owner, name, None)
            if isinstance(found, list) and statement in found:
                return found
        return [statement]

    def segment(self, node: ast.AST) -> str:
        """A node as it was typed."""
        start, end = self._extent(node)
        return self.text.encode()[start:end].decode()

    def indent(self, statement: ast.stmt) -> str:
        """What stands before a statement on its line."""
        return " " * statement.col_offset

    def replaced(self, edits: Iterable[tuple[ast.AST, str]]) -> str:
        """The text with these nodes replaced. ValueError where one lies in another."""
        text = self.text.encode()
        last = len(text) + 1
        for (start, end), new in sorted(
            ((self._extent(node), new) for node, new in edits), key=lambda edit: -edit[0][0]
        ):
            if end > last:
                raise ValueError("one of the edits lies in another")
            text, last = text[:start] + new.encode() + text[end:], start
        return text.decode()

    def in_place_of(self, first: ast.stmt, last: ast.stmt, lines: Iterable[str]) -> str:
        """The text with all from one statement to another replaced by lines, indented as the first was."""
        found = self.text.split("\n")
        found[first.lineno - 1 : last.end_lineno] = [self.indent(first) + line for line in lines]
        return "\n".join(found)

    def binds_before(self, statement: ast.stmt, name: str) -> bool:
        """Whether a name is an argument of the function around, or bound above in it or in the cell."""
        inside = self.scope(statement)
        given = {each.arg for each in inside.args.args} if not isinstance(inside, ast.Module) else set()
        return name in given or any(
            part.id == name and isinstance(part.ctx, ast.Store) and part.lineno < statement.lineno
            for part in ast.walk(inside)
            if isinstance(part, ast.Name)
        )

    def without(self, statements: Iterable[ast.stmt]) -> str:
        """The text with these statements commented out; a block that they leave empty passes."""
        gone = set(statements)
        lines = self.text.split("\n")
        for each in gone:
            for number in range(each.lineno, (each.end_lineno or each.lineno) + 1):
                indent = self.indent(each)
                lines[number - 1] = f"{indent}# {lines[number - 1].removeprefix(indent)}"
            block = self.block(each)
            if each is block[0] and set(block) <= gone:
                lines[each.lineno - 1] = f"{self.indent(each)}pass  {lines[each.lineno - 1].lstrip()}"
        return "\n".join(lines)

    def _extent(self, node: ast.AST) -> tuple[int, int]:
        start = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return start, end


def unified(before: str, after: str) -> str:
    """The difference of two texts of a cell, as ``diff -u`` writes it."""
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), "cell", "mended", n=2, lineterm="")
    return "\n".join(lines)


def called(node: ast.AST) -> str:
    """``torch.cuda.synchronize`` of a call of it; empty for what is no call of a dotted name."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) and _dotted(node.func) else ""


def _dotted(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def names(node: ast.AST, kind: type[ast.expr_context]) -> set[str]:
    """Names that are loaded or stored within a node."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, kind)}
