"""What a function's code, and the code of the functions inside it, is and names, and whose it is."""

from __future__ import annotations

import ast
import dis
import functools
import sys
import sysconfig
import types
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Where Python's own files and those of installed packages lie: a file's name begins with one of these."""


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from codes(inner)


def names_in(code: types.CodeType) -> dict[str, None]:
    """The names of globals and attributes that it, or what is inside it, may look up, each once, in order."""
    return dict.fromkeys(name for each in codes(code) for name in each.co_names)


def names_bound(code: types.CodeType) -> frozenset[str]:
    """The names that code of a module or a cell gives values, functions and classes included."""
    stores = ("STORE_NAME", "STORE_GLOBAL")
    return frozenset(str(each.argval) for each in dis.get_instructions(code) if each.opname in stores)


def is_users(file: str) -> bool:
    """Whether a file is Python of the user's own, and not of Python or an installed package."""
    path = Path(file)
    if path.suffix != ".py" or not path.is_absolute() or not path.is_file():
        return False
    return not file.startswith(INSTALLED) and not {"site-packages", "dist-packages"} & set(path.parts)


def is_users_class(kind: type) -> bool:
    """Whether a class is of the user's own: of a cell, or of a file that is."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return kind.__module__ not in sys.builtin_module_names and not file.startswith(INSTALLED)


def runs_code_unasked(node: ast.AST, namespace: Mapping[str, Any], bound: Container[str] = ()) -> bool:
    """Whether it runs Python code though it has no call: a property, or what stands in for one, of a class of
    the user's own or of torch's, or what an object of the user's own is taken apart by. Nothing of it is run.
    ``bound`` are names of which it is not known what they hold."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute):
            owner = _held(part.value, namespace, bound)
            if owner is not None and _is_code(owner, part.attr, isinstance(part.ctx, ast.Store)):
                return True
        elif (taken := _taken_apart(part)) is not None:
            if _defined(type(_held(taken, namespace, bound)), "__iter__", "__getitem__"):
                return True
    return False


def _taken_apart(node: ast.AST) -> ast.expr | None:
    """``pair`` of ``a, b = pair`` and of ``[*pair]``."""
    if isinstance(node, ast.Starred):
        return node.value if isinstance(node.ctx, ast.Load) else None
    apart = isinstance(node, ast.Assign) and any(isinstance(t, ast.Tuple | ast.List) for t in node.targets)
    return node.value if apart and isinstance(node, ast.Assign) else None


def _held(node: ast.expr, namespace: Mapping[str, Any], bound: Container[str]) -> Any:
    """What a name, or an attribute that an object keeps as it is, holds; None where that is not known."""
    if isinstance(node, ast.Name):
        return None if node.id in bound else namespace.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    kept = getattr(_held(node.value, namespace, bound), "__dict__", {})
    return kept.get(node.attr, kept.get("_modules", {}).get(node.attr))


def _is_code(owner: object, name: str, stores: bool) -> bool:
    kind = type(owner)
    if isinstance(owner, type | types.ModuleType):
        return False
    if _defined(kind, "__setattr__" if stores else "__getattribute__"):
        return True
    base = next((each for each in kind.__mro__ if name in vars(each)), None)
    kept = name in getattr(owner, "__dict__", {})
    if base is None:
        return not (kept or stores) and _defined(kind, "__getattr__")
    found = vars(base)[name]
    if isinstance(found, functools.cached_property):
        return not (kept or stores)
    by = getattr(type(found), "__set__" if stores else "__get__", None)
    of_python = isinstance(found, property) or isinstance(by, types.FunctionType)
    return of_python and (is_users_class(base) or base.__module__.startswith("torch."))


def _defined(kind: type, *names: str) -> bool:
    """Whether a class of the user's own defines one of these methods."""
    return any(
        is_users_class(base) and isinstance(vars(base).get(name), types.FunctionType)
        for base in kind.__mro__ for name in names
    )  # fmt: skip
