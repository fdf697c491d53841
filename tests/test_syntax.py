"""Copies of Python's syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from nbcompile.compiler.capture.cell_to_function import make_function, prepare
from nbcompile.notebook.cell.hooks import MARK, CellTransformer
from nbcompile.syntax import copied

TEXT = """def f(x, *, y=1):
    'é'
    return [z for z in x if not z][::y], {**x}, f'{x!r:>{y}}', lambda: x.a.b(y)
"""


def test_a_copy_has_fields_and_places() -> None:
    tree = ast.parse(TEXT)
    made = copied(tree)
    assert ast.dump(made, include_attributes=True) == ast.dump(tree, include_attributes=True)
    ours = {id(part) for part in ast.walk(tree) if part._fields or part._attributes}
    assert not ours & {id(part) for part in ast.walk(made)}


class _WholeFile:
    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise AssertionError("a file's tree is copied")


@pytest.fixture
def after_a_traceback() -> Iterator[None]:
    """The process as IPython's traceback of any error leaves it: ``ast.Load()`` knows its last parent."""
    load = ast.parse("a", mode="eval").body.ctx  # type: ignore[attr-defined]
    load.parent = _WholeFile()
    yield
    del load.parent


@pytest.mark.usefixtures("after_a_traceback")
def test_what_others_write_on_nodes_is_not_copied() -> None:
    assert ast.unparse(copied(ast.parse("x + y"))) == "x + y"
    cell = ast.parse("for i in range(3):\n    y = x * i\ny.sum()")
    prepared = prepare(cell, interactivity="last_expr")
    for run in prepared.runs.values():
        assert make_function(run, name="f", filename="<cell>", bound=["x", "i", "y"], keep=[]).source
    hook = CellTransformer(lambda line, tree: tree, lambda error: pytest.fail(str(error)))
    assert len(hook.visit(ast.parse(f"{MARK}('')\ny = x + 1")).body) == 1
