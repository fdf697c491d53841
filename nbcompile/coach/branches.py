"""Branches on the values in a tensor: both sides computed, one chosen (``torch.where``), or asserted."""

from __future__ import annotations

import ast

from nbcompile.coach.source import Rewrite, Source, called
from nbcompile.coach.values import as_tensor
from nbcompile.syntax import copied

_NOTE = "both sides are computed"


def condition(source: Source, node: ast.expr) -> str:
    """A test as a tensor of one bool."""
    if isinstance(node, ast.BoolOp):
        word = "torch.logical_and" if isinstance(node.op, ast.And) else "torch.logical_or"
        first, *rest = [condition(source, each) for each in node.values]
        for other in rest:
            first = f"{word}({first}, {other})"
        return first
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return f"torch.logical_not({condition(source, node.operand)})"
    given = [source.segment(each) for each in node.args] if isinstance(node, ast.Call) else []
    if called(node) == "torch.equal" and len(given) == 2:
        return f"({given[0]} == {given[1]}).all()"
    if called(node) == "torch.allclose" and isinstance(node, ast.Call) and not node.keywords:
        return f"torch.isclose({', '.join(given)}).all()"
    if isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
        edits = [(each, text) for each in parts if (text := as_tensor(source, each)) is not None]
        text = source.segment(node)
        for part, new in edits:
            text = text.replace(source.segment(part), new)
        return text
    return as_tensor(source, node) or source.segment(node)


def choose_expression(source: Source, statement: ast.stmt) -> Rewrite | None:
    """``a if c else b``."""
    found = [part for part in ast.walk(statement) if isinstance(part, ast.IfExp)]
    if len(found) != 1 or not _pure(found[0].body) or not _pure(found[0].orelse):
        return None
    (node,) = found
    test = condition(source, node.test)
    text = f"torch.where({test}, {_text(source, node.body)}, {_text(source, node.orelse)})"
    return Rewrite("if → torch.where", source.replaced([(node, text)]), _NOTE)


def choose(source: Source, statement: ast.stmt) -> Rewrite | None:
    """``if c: y = a`` with or without ``else``, and ``if c: return a``."""
    if not isinstance(statement, ast.If):
        return None
    returned = _returns(source, statement)
    if returned is not None:
        return returned
    one, other = values_of(statement.body), values_of(statement.orelse)
    if one is None or other is None:
        return None
    test, indent = condition(source, statement.test), source.indent(statement)
    lines, targets = [], [*dict.fromkeys([*one, *other])]
    if not all((name in one and name in other) or source.binds_before(statement, name) for name in targets):
        return None
    sides = [[ast.unparse(side.get(name, ast.Name(name, ast.Load()))) for name in targets]
             for side in (one, other)]  # fmt: skip
    if len(targets) > 1:
        lines, test = [f"chosen = {test}"], "chosen"
    chosen = [f"torch.where({test}, {yes}, {no})" for yes, no in zip(*sides, strict=True)]
    lines.append(f"{', '.join(targets)} = {', '.join(chosen)}")
    text = f"\n{indent}".join(lines)
    return Rewrite("if → torch.where", source.replaced([(statement, text)]), _NOTE)


def _returns(source: Source, statement: ast.If) -> Rewrite | None:
    block = source.block(statement)
    after = block[block.index(statement) + 1 :]
    other = statement.orelse or after[:1]
    if len(statement.body) != 1 or len(other) != 1:
        return None
    (yes,), (no,) = statement.body, other
    if not (isinstance(yes, ast.Return) and isinstance(no, ast.Return) and yes.value and no.value):
        return None
    if not (_pure(yes.value) and _pure(no.value)):
        return None
    test = condition(source, statement.test)
    text = f"return torch.where({test}, {source.segment(yes.value)}, {source.segment(no.value)})"
    if statement.orelse:
        return Rewrite("if → torch.where", source.replaced([(statement, text)]), _NOTE)
    return Rewrite("if → torch.where", source.in_place_of(statement, no, [text]), _NOTE)


def check(source: Source, statement: ast.stmt) -> Rewrite | None:
    """``assert c`` and ``if c: raise``: checked in the graph, told when it has run."""
    if isinstance(statement, ast.Raise) and isinstance(source.parents[statement], ast.If):
        statement = source.parents[statement]  # type: ignore[assignment]
    if isinstance(statement, ast.Assert):
        held, told = condition(source, statement.test), statement.msg
    elif isinstance(statement, ast.If) and len(statement.body) == 1 and not statement.orelse:
        (inside,) = statement.body
        if not isinstance(inside, ast.Raise) or not isinstance(inside.exc, ast.Call):
            return None
        held = f"torch.logical_not({condition(source, statement.test)})"
        told = inside.exc.args[0] if inside.exc.args else None
    else:
        return None
    words = told.value if isinstance(told, ast.Constant) else ast.unparse(statement).split("\n")[0]
    text = f"torch._assert_async({held}, {str(words)!r})"
    return Rewrite(
        "checked inside the graph", source.replaced([(statement, text)]), "raises a RuntimeError of torch's"
    )


def values_of(body: list[ast.stmt]) -> dict[str, ast.expr] | None:
    """What each name is after these statements, in terms of what was before; None if not only that."""
    found: dict[str, ast.expr] = {}
    for each in body:
        if isinstance(each, ast.Pass):
            continue
        if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name):
            value: ast.expr = ast.BinOp(ast.Name(each.target.id, ast.Load()), each.op, each.value)
            target = each.target.id
        elif (
            isinstance(each, ast.Assign) and len(each.targets) == 1 and isinstance(each.targets[0], ast.Name)
        ):
            value, target = each.value, each.targets[0].id
        else:
            return None
        if not _pure(value):
            return None
        found[target] = _Filled(found).visit(copied(value))
    return found


class _Filled(ast.NodeTransformer):
    def __init__(self, known: dict[str, ast.expr]) -> None:
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copied(self.known.get(node.id, node))


def _pure(node: ast.expr) -> bool:
    for part in ast.walk(node):
        if isinstance(part, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return False
        if isinstance(part, ast.Call):
            name = part.func.attr if isinstance(part.func, ast.Attribute) else called(part)
            in_place = name.endswith("_") or name in (
                "append",
                "extend",
                "update",
                "pop",
                "print",
                "backward",
            )
            if in_place or name.startswith(("rand", "dropout", "bernoulli", "normal")):
                return False
    return True


def _text(source: Source, node: ast.expr) -> str:
    return as_tensor(source, node) or source.segment(node)
