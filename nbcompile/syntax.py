"""Python's syntax trees: copies, and the names in them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar

Tree = TypeVar("Tree", bound=ast.AST)
Placed = TypeVar("Placed", bound=ast.AST)


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


def put(node: ast.stmt, value: ast.expr, other: ast.expr) -> None:
    """``other`` where ``value`` stands in a statement."""
    for part in ast.walk(node):
        for name, held in ast.iter_fields(part):
            if held is value:
                setattr(part, name, other)
                return
            if isinstance(held, list) and any(each is value for each in held):
                setattr(part, name, [other if each is value else each for each in held])
                return


def placed(asked: Placed, node: ast.stmt | ast.expr) -> Placed:
    """What has no place yet stands where ``node`` begins."""
    place = ast.copy_location(ast.Pass(), node)
    place.end_lineno, place.end_col_offset = node.lineno, node.col_offset
    for part in ast.walk(asked):
        if "lineno" in part._attributes and not hasattr(part, "lineno"):
            ast.copy_location(part, place)
    return asked


def names_read(node: ast.AST) -> set[str]:
    """Names a statement may read from outside itself."""
    return {name for name, how in names_met(node) if how == "load"}


def names_stored(node: ast.AST) -> set[str]:
    """Names a statement may bind in its own scope (comprehension variables are not)."""
    return {name for name, how in names_met(node) if how == "store"}


def flow_of_names(statements: Iterable[ast.stmt]) -> tuple[list[str], list[str], set[str]]:
    """Of statements one after the other: names read before they are surely bound; names bound, in order;
    those only maybe bound."""
    reads: dict[str, None] = {}
    stores: dict[str, None] = {}
    sure: set[str] = set()
    for node in statements:
        certain = not isinstance(node, ast.For | ast.If)
        for name, how in names_met(node):
            if how == "load":
                if name not in sure:
                    reads[name] = None
            else:
                stores[name] = None
        if certain:
            sure |= names_stored(node) - _maybe_stored(node)
    return list(reads), list(stores), set(stores) - sure


def _maybe_stored(node: ast.AST) -> set[str]:
    """Names whose binding inside ``node`` depends on a branch, a loop or a short circuit."""
    out: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.For | ast.If):
            out |= names_stored(part)
        elif isinstance(
            part, ast.IfExp | ast.BoolOp | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
        ):
            out |= {n.target.id for n in ast.walk(part) if isinstance(n, ast.NamedExpr)}
    return out


def names_met(
    node: ast.AST, inner: frozenset[str] = frozenset()
) -> Iterator[tuple[str, Literal["load", "store"]]]:
    """(name, load or store) in the order Python meets them, comprehension variables left out."""
    if isinstance(node, ast.Name):
        if node.id not in inner:
            yield node.id, "load" if isinstance(node.ctx, ast.Load) else "store"
        return
    if isinstance(node, ast.NamedExpr):
        yield from names_met(node.value, inner)
        yield node.target.id, "store"
        return
    if isinstance(node, ast.AugAssign):
        if isinstance(node.target, ast.Name):
            yield node.target.id, "load"
        yield from names_met(node.value, inner)
        yield from names_met(node.target, inner)
        return
    if isinstance(node, ast.Assign):
        yield from names_met(node.value, inner)
        for target in node.targets:
            yield from names_met(target, inner)
        return
    if isinstance(node, ast.For):
        for part in (node.iter, node.target, *node.body, *node.orelse):
            yield from names_met(part, inner)
        return
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        yield from _comprehension_names(node, inner)
        return
    if isinstance(node, ast.Lambda):
        own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        yield from names_met(node.args, inner)
        yield from names_met(node.body, inner | own)
        return
    for child in ast.iter_child_nodes(node):
        yield from names_met(child, inner)


def _comprehension_names(
    node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, inner: frozenset[str]
) -> Iterator[tuple[str, Literal["load", "store"]]]:
    own = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    for place, generator in enumerate(node.generators):
        yield from names_met(generator.iter, inner | own if place else inner)
        for condition in generator.ifs:
            yield from names_met(condition, inner | own)
    elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    for element in elements:
        yield from names_met(element, inner | own)
