"""What a notebook hands to the judge of each exercise, by running no more of it than that needs.

A cell is run if it binds a name that the exercise's cell or its solution reads, and so on back to the first.
Those with ``%%compile`` are not timed, unless they compare.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext
import torch
from IPython.core.interactiveshell import InteractiveShell

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@dataclass(frozen=True)
class Cell:
    """A code cell: its kind (``exercise``, ``wrong``, ``solution`` or none), the names that it binds and
    those that it reads, those in the body and in ``--into`` of a magic among them."""

    kind: str
    code: str
    binds: frozenset[str]
    reads: frozenset[str]

    @classmethod
    def of(cls, source: str, tags: Sequence[str]) -> Cell:
        (kind,) = {"exercise", "wrong", "solution"} & set(tags) or {""}
        binds, reads = _names("\n".join(line for line in source.splitlines() if not line.startswith("%")))
        binds |= set(re.findall(r"--into (\w+)", source))
        return cls(kind, source, frozenset(binds), frozenset(reads))

    @property
    def asks(self) -> ast.Call:
        """The ``check(...)`` that ends an exercise's cell."""
        last = ast.parse(self.code).body[-1]
        assert isinstance(last, ast.Expr) and isinstance(last.value, ast.Call), self.code
        return last.value

    @property
    def parameters(self) -> set[str]:
        """Names of the parameters of its functions."""
        return {node.arg for node in ast.walk(ast.parse(self.code)) if isinstance(node, ast.arg)}

    @property
    def given(self) -> str:
        """An exercise's cell without its ``check(...)``."""
        return "\n".join(self.code.splitlines()[: self.asks.lineno - 1])


def _names(code: str) -> tuple[set[str], set[str]]:
    binds: set[str] = set()
    reads: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (reads if isinstance(node.ctx, ast.Load) else binds).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            binds.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            binds |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return binds, reads - set(dir(builtins))


@dataclass(frozen=True)
class Context:
    """An exercise with the values of its ``check(...)``, the solution's where the reader answers.

    ``readers`` are the places of the reader's answers among ``arguments``; the others are the notebook's.
    """

    name: str
    arguments: tuple[Any, ...]
    readers: tuple[int, ...]


def exercises_of(source: Path) -> list[str]:
    """Names of a notebook's exercises, in their order."""
    return [_name(cell.asks) for cell in _cells(source) if cell.kind == "exercise"]


def alone(source: Path) -> list[str]:
    """Names of those exercises whose judge is handed the answer and nothing else."""
    return [
        _name(cell.asks) for cell in _cells(source) if cell.kind == "exercise" and len(cell.asks.args) == 2
    ]


def by_themselves(source: Path) -> dict[str, Any]:
    """The right answers to those of them whose solution needs nothing of the notebook, by name."""
    found = {}
    cells = _cells(source)
    for place, cell in enumerate(cells):
        if cell.kind != "exercise" or len(cell.asks.args) != 2:
            continue
        solution = next(each for each in cells[place:] if each.kind == "solution")
        names = {"torch": torch, "math": math}
        if not solution.reads - solution.binds - solution.parameters - set(names):
            exec(solution.code, names)
            answer = cell.asks.args[1]
            assert isinstance(answer, ast.Name)
            found[_name(cell.asks)] = names[answer.id]
    return found


def _name(asks: ast.Call) -> str:
    first = asks.args[0]
    assert isinstance(first, ast.Constant) and isinstance(first.value, str)
    return first.value


def _cells(source: Path) -> list[Cell]:
    return [
        Cell.of(cell.source, cell.metadata.get("tags", []))
        for cell in jupytext.read(source, fmt="py:percent").cells
        if cell.cell_type == "code"
    ]


def contexts(source: Path, wanted: Sequence[str]) -> Iterator[Context]:
    """The context of each ``wanted`` exercise of a notebook, in the notebook's order."""
    cells = _cells(source)
    asked = {
        place: next(n for n in range(place, len(cells)) if cells[n].kind == "solution")
        for place, cell in enumerate(cells)
        if cell.kind == "exercise" and _name(cell.asks) in wanted
    }
    needed = set[int]().union(
        *(_needed(cells, place, cells[place].reads | cells[n].reads) for place, n in asked.items())
    )
    shell = InteractiveShell.instance()
    sys.path.insert(0, str(source.parent))

    def run(code: str) -> None:
        untimed = re.sub(r"^%%compile(?!.* --(no-bench|compare))", "%%compile --no-bench", code)
        shell.run_cell(untimed, store_history=True).raise_error()

    for place, cell in enumerate(cells):
        if place in needed and place not in asked.values():
            run(cell.code)
        if place not in asked:
            continue
        run(cell.given)
        solution = cells[asked[place]]
        run(solution.code)
        said = cell.asks.args[1:]
        values = tuple(eval(ast.unparse(each), shell.user_ns) for each in said)
        readers = (
            n for n, each in enumerate(said) if isinstance(each, ast.Name) and each.id in solution.binds
        )
        yield Context(_name(cell.asks), values, tuple(readers))


def _needed(cells: Sequence[Cell], before: int, reads: frozenset[str]) -> set[int]:
    """The cells before a place that bind these names, and those that these need."""
    names, found = set(reads), set()
    for place in reversed(range(before)):
        cell = cells[place]
        if cell.kind in ("", "solution") and cell.binds & names:
            names = names - cell.binds | cell.reads
            found.add(place)
    return found
