"""What Dynamo holds on its symbolic stack, in a few words: ``FakeTensor f32[8, 16]``, ``int 3``.

A value that Dynamo has not looked at yet must not be looked at here either, or the walk would be another one:
so only the fields of its objects are read, never their attributes, and no code of the user is called.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from nbcompile.compiler.fx_values import dim, short_dtype
from nbcompile.units import clip

MOST = 48
"""Characters of a word."""
_PLAIN = (bool, int, float, complex, type(None))
_SIZED = (
    "ListVariable",
    "TupleVariable",
    "SizeVariable",
    "DequeVariable",
    "ConstDictVariable",
    "SetVariable",
)
_HOLDERS = ("value", "fn", "python_type", "module_type", "obj", "value_type")


def word_of(variable: Any) -> str:
    """One of Dynamo's ``VariableTracker`` in at most :data:`MOST` characters; its class's name where no
    more is known of it."""
    try:
        return clip(_word(variable), MOST)
    except Exception:  # another torch keeps it in another form
        return clip(_class(variable), MOST)


def _word(variable: Any) -> str:
    if variable is None:
        return "NULL"
    fields = vars(variable)
    kind = type(variable).__name__
    cache = fields.get("_cache")
    if cache is not None and "vt" in vars(cache):
        if vars(cache)["vt"] is not None:
            return _word(vars(cache)["vt"])
        return f"{_value(vars(cache).get('value'))}, not looked at"
    if kind == "NullVariable":
        return "NULL"
    node = getattr(fields.get("proxy"), "node", None)
    if node is not None:
        return _traced(node.meta.get("example_value"), kind)
    if kind in _SIZED and isinstance(fields.get("items"), list | tuple | dict):
        return f"{_class(variable)} of {len(fields['items'])}"
    if kind == "CellVariable":
        held = fields.get("pre_existing_contents")
        return f"cell of {_word(held)}" if held is not None else "cell"
    if kind == "GetAttrVariable":
        return f"attribute {fields.get('name')}"
    for holder in _HOLDERS:
        if holder in fields:
            return _value(fields[holder])
    code = fields.get("code")
    inner = getattr(code, "value", code)
    name = getattr(inner, "co_name", None)
    return f"function {name}" if name else _class(variable)


def _traced(value: Any, kind: str) -> str:
    """A value that a node of the graph stands for."""
    if isinstance(value, torch.Tensor):
        extents = ", ".join(str(dim(extent)) for extent in value.shape)
        return f"FakeTensor {short_dtype(value.dtype)}[{extents}]"
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return f"{type(value).__name__} {dim(value)}"
    return kind.removesuffix("Variable")


def _value(value: Any) -> str:
    """An object of the program, without asking it for its text."""
    kind = type(value)
    if kind in _PLAIN:
        return f"{kind.__name__} {value!r}" if value is not None else "None"
    if kind is str:
        return f"str {value[:MOST]!r}"
    if isinstance(value, torch.nn.Module):
        return f"module {kind.__name__}"
    if isinstance(value, torch.Tensor):
        extents = ", ".join(str(extent) for extent in value.shape)
        return f"Tensor {short_dtype(value.dtype)}[{extents}]"
    if isinstance(value, types.ModuleType):
        return f"package {value.__name__}"
    if isinstance(value, type):
        return f"class {value.__name__}"
    if isinstance(value, types.FunctionType | types.MethodType):
        return f"function {value.__name__}"
    if isinstance(value, types.BuiltinFunctionType | torch._ops.OpOverload):
        return f"builtin {value.__name__}"
    if kind in (list, tuple, dict, set, frozenset):
        return f"{kind.__name__} of {len(value)}"
    return kind.__name__


def _class(variable: Any) -> str:
    name = type(variable).__name__.removesuffix("Variable").removesuffix("Tracker")
    return {"List": "list", "Tuple": "tuple", "ConstDict": "dict", "Set": "set", "Size": "Size"}.get(
        name, name
    )
