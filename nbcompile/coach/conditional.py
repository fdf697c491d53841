"""Branches on the values in a tensor of which one side runs: ``torch.cond``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from nbcompile.coach.branches import condition, values_of
from nbcompile.coach.source import Rewrite, Source, names

_TITLE = "if → torch.cond"
_LEAVES = (
    ast.Return, ast.Break, ast.Continue, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr,
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Delete, ast.Raise,
)  # fmt: skip
"""What means something else, or nothing, in a function of its own."""


def cond(source: Source, statement: ast.stmt) -> Rewrite | None:
    """``if c:`` of assignments, with or without ``else``, and ``if c: return a``."""
    if not isinstance(statement, ast.If):
        return None
    returned = _returned(source, statement)
    if returned is not None:
        yes, no, last = returned
        text = f"return {_called(source, statement.test, _fresh(yes), _fresh(no))}"
        return Rewrite(_TITLE, source.in_place_of(statement, last, [text]))
    one, other = (_stored(side) for side in (statement.body, statement.orelse))
    if one is None or other is None:
        return None
    outside = _loaded_outside(source, statement)
    before = [name for name in dict.fromkeys([*one, *other]) if source.binds_before(statement, name)]
    targets = tuple(
        name
        for name in dict.fromkeys([*one, *other])
        if name in before or (name in one and name in other and outside(name))
    )
    if not targets or any(outside(name) for name in {*one, *other} - {*targets}):
        return None
    lines = _as_lambdas(source, statement, targets) or _as_functions(source, statement, targets, before)
    return Rewrite(_TITLE, source.in_place_of(statement, statement, lines))


def _returned(source: Source, statement: ast.If) -> tuple[ast.expr, ast.expr, ast.stmt] | None:
    """What each side returns, and the statement with which that ends."""
    block = source.block(statement)
    other = statement.orelse or block[block.index(statement) + 1 :][:1]
    if len(statement.body) != 1 or len(other) != 1:
        return None
    (yes,), (no,) = statement.body, other
    if not (isinstance(yes, ast.Return) and isinstance(no, ast.Return) and yes.value and no.value):
        return None
    return yes.value, no.value, statement if statement.orelse else no


def _stored(body: Sequence[ast.stmt]) -> list[str] | None:
    """The names that a side binds; None where it does what a function of its own would not."""
    found: dict[str, None] = {}
    for each in body:
        if any(isinstance(part, _LEAVES) for part in ast.walk(each)):
            return None
        found |= dict.fromkeys(sorted(names(each, ast.Store)))
    return list(found)


def _loaded_outside(source: Source, statement: ast.If) -> Callable[[str], bool]:
    """Whether a name that a side binds is read after. Of a cell's own names all may be, by another cell, but
    for those that only loops bind."""
    scope = source.scope(statement)
    inside = set(ast.walk(statement))
    read = {
        part.id
        for part in ast.walk(scope)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part not in inside
    }
    counted = {name for part in inside if isinstance(part, ast.For) for name in names(part.target, ast.Store)}
    flat = isinstance(scope, ast.Module)
    return lambda name: name in read or (flat and name not in counted)


def _as_lambdas(source: Source, statement: ast.If, targets: tuple[str, ...]) -> list[str] | None:
    """One name that is one expression of each side."""
    sides = [values_of(side) for side in (statement.body, statement.orelse)]
    if len(targets) != 1 or any(side is None for side in sides):
        return None
    (name,) = targets
    yes, no = (_fresh((side or {}).get(name, ast.Name(name, ast.Load()))) for side in sides)
    return [f"{name} = {_called(source, statement.test, yes, no)}"]


def _called(source: Source, test: ast.expr, yes: str, no: str) -> str:
    return f"torch.cond({condition(source, test)}, lambda: {yes}, lambda: {no})"


def _fresh(value: ast.expr) -> str:
    """A side must not give back a tensor that came in: it would be one under two names."""
    text = ast.unparse(value)
    return f"{text}.clone()" if isinstance(value, ast.Name | ast.Attribute) else text


def _as_functions(
    source: Source, statement: ast.If, targets: tuple[str, ...], before: list[str]
) -> list[str]:
    """Each side as a function of the names that it may bind anew."""
    given = ", ".join(before)
    lines = []
    for name, side in (("if_true", statement.body), ("if_false", statement.orelse)):
        lines.append(f"def {name}({given}):")
        own: set[str] = set()
        for each in side:
            lines += [f"    {line}" for line in ast.unparse(each).split("\n")]
            own |= names(each, ast.Store)
        results = [each if each in own else f"{each}.clone()" for each in targets]
        lines.append(f"    return {', '.join(results)}")
    test = condition(source, statement.test)
    operands = f", ({given},)" if before else ""
    lines.append(f"{', '.join(targets)} = torch.cond({test}, if_true, if_false{operands})")
    return lines
