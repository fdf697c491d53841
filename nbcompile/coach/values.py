"""Values that leave the graph for Python or NumPy and come back: kept as tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from nbcompile.coach.source import Rewrite, Source, called

_MATH = frozenset("sqrt exp log log2 log10 sin cos tan tanh floor ceil fabs erf atan asin acos".split())
_NUMPY = frozenset(
    "sin cos tan tanh exp log sqrt abs square maximum minimum where sum mean matmul dot clip concatenate "
    "stack zeros_like ones_like sign floor ceil round power".split()
)
_NUMPY_AS = {"clip": "clamp", "concatenate": "cat", "power": "pow"}
_OF_LIST = {"max": "max()", "min": "min()", "sum": "sum()", "sorted": "sort().values"}
_HOME = ("torch.from_numpy", "torch.tensor", "torch.as_tensor")


def keep_tensor(source: Source, statement: ast.stmt) -> Rewrite | None:
    """``.item()``, ``float()``, ``.tolist()`` and ``math.sqrt`` of a tensor, kept as tensors."""
    head = statement.iter if isinstance(statement, ast.For) else statement
    edits = list(_outermost(source, head))
    if not edits:
        return None
    return Rewrite("kept as a tensor", source.replaced(edits), "a tensor where a number was")


def _outermost(source: Source, node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    new = as_tensor(source, node)
    if new is not None:
        yield node, new
        return
    for child in ast.iter_child_nodes(node):
        yield from _outermost(source, child)


def as_tensor(source: Source, node: ast.AST) -> str | None:
    """A call that takes a tensor's value into Python, as one that does not; None for any other node."""
    if not isinstance(node, ast.Call):
        return None
    name = called(node)
    first = node.args[0] if len(node.args) == 1 else None
    if isinstance(node.func, ast.Attribute) and not node.args:
        owner = _inner(source, node.func.value)
        if node.func.attr == "item":
            return owner
        if node.func.attr == "tolist":
            return f"{owner}.unbind()"
    if first is None or isinstance(first, ast.Constant):
        return None
    if name in _OF_LIST and isinstance(first, ast.Call) and isinstance(first.func, ast.Attribute):
        if first.func.attr == "tolist":
            return f"{_inner(source, first.func.value)}.{_OF_LIST[name]}"
    if name in ("float", "int", "bool"):
        kind = {"float": "", "int": ".long()", "bool": ".bool()"}[name]
        inner = _inner(source, first)
        return f"({inner}){kind}" if kind else inner
    if name == "copy.deepcopy":
        return f"({_inner(source, first)}).clone()" if _binary(first) else f"{_inner(source, first)}.clone()"
    module, _, function = name.partition(".")
    if module == "math" and function in _MATH:
        return f"torch.{function.replace('fabs', 'abs')}({_inner(source, first)})"
    return None


def _binary(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp | ast.IfExp)


def _inner(source: Source, node: ast.AST) -> str:
    return as_tensor(source, node) or source.segment(node)


def without_numpy(source: Source, statement: ast.stmt) -> Rewrite | None:
    """The way to NumPy and back, within one function or cell, left out; its functions are torch's."""
    edits = [edit for each in source.scope(statement).body for edit in _torch_of(source, each)]
    if not edits:
        return None
    return Rewrite("stays in torch", source.replaced(edits), "tensors where arrays were")


def _torch_of(source: Source, node: ast.AST) -> list[tuple[ast.AST, str]]:
    """The outermost calls in a node that have to do with NumPy, and what torch has for them."""
    if isinstance(node, ast.Call):
        text = _call(source, node)
        if text != source.segment(node):
            return [(node, text)]
    return [edit for child in ast.iter_child_nodes(node) for edit in _torch_of(source, child)]


def _call(source: Source, node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        inner = _torch_of(source, node)
        return _patched(source, node, inner)
    name = called(node)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "numpy" and not node.args:
        return _call(source, node.func.value)
    if name in _HOME and len(node.args) == 1 and "numpy" in ast.unparse(node.args[0]):
        return _call(source, node.args[0])
    if name in _HOME and len(node.args) == 1 and name == "torch.from_numpy":
        return _call(source, node.args[0])
    module, _, function = name.partition(".")
    if module in ("np", "numpy") and function in _NUMPY:
        given = ", ".join(_call(source, each) for each in node.args)
        given += "".join(f", {each.arg}={_call(source, each.value)}" for each in node.keywords)
        return f"torch.{_NUMPY_AS.get(function, function)}({given})"
    return _patched(
        source, node, [edit for child in ast.iter_child_nodes(node) for edit in _torch_of(source, child)]
    )


def _patched(source: Source, node: ast.AST, edits: list[tuple[ast.AST, str]]) -> str:
    text = source.segment(node)
    for inner, new in edits:
        text = text.replace(source.segment(inner), new)
    return text
