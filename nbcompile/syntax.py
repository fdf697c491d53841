"""Python's syntax trees."""

from __future__ import annotations

import ast
from typing import Any, TypeVar

Tree = TypeVar("Tree", bound=ast.AST)


def copied(tree: Tree) -> Tree:
    """A copy of a tree: its fields and places, and nothing else that somebody has written on its nodes.

    ``copy.deepcopy`` takes such things too, and CPython's ``ast.Load()`` and its like are one object for all
    trees of the process: after one traceback, for which IPython's ``executing`` writes parents on the nodes
    of whole files, a copy of any name would be one of those files.
    """
    if not tree._fields and not tree._attributes:
        return tree  # a context or an operator, of which there is one
    made = type(tree)(**{name: _copied(getattr(tree, name)) for name in tree._fields if hasattr(tree, name)})
    return ast.copy_location(made, tree)


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return copied(value) if isinstance(value, ast.AST) else value
