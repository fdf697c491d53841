"""Whether a node of Dynamo's graph may change a tensor, or the modes that later nodes run in."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

IN_PLACE = frozenset(
    "iadd iand iconcat ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor setitem "
    "delitem setattr delattr".split()
)
"""Names of Python's own functions that change what they are given first."""
_MODES = ("_set", "set_", "_enter", "_exit", "_push", "_pop", "_saved_tensors_hooks")
_HARMLESS_MODES = frozenset(("_enter_autocast", "_exit_autocast"))  # they change no tensor made before
_PURE_MODULES = ("torch", "_operator", "builtins", "math", "")


def may_mutate(node: fx.Node) -> bool:
    """True unless this node surely leaves all tensors, and the gradient mode, as they are."""
    if node.op in ("placeholder", "get_attr"):
        return False
    if node.op == "call_method":
        name = str(node.target)
        return name.endswith("_") or name.startswith("_")
    target = node.target
    if node.op != "call_function" or isinstance(target, str):
        return True
    if isinstance(target, torch._ops.OpOverload):
        return bool(target._schema.is_mutable)
    name = str(getattr(target, "__name__", ""))
    module = str(getattr(target, "__module__", "") or "")
    if not name or isinstance(target, torch._ops.HigherOrderOperator):
        return True
    if module.partition(".")[0] not in _PURE_MODULES or name in IN_PLACE or name.endswith("__"):
        return True
    if _named_in_place(node):
        return True
    if name.startswith(_MODES) and name not in _HARMLESS_MODES:
        return True
    given = _given(target, node)
    return (
        node.kwargs.get("out") is not None or bool(given.get("inplace")) or given.get("max_norm") is not None
    )


def is_in_place(node: fx.Node) -> bool:
    """Whether a node overwrites the tensor that it is given first, by its name or since it is told to."""
    if _named_in_place(node):
        return True
    if node.op != "call_function" or not callable(node.target):
        return False
    told = node.kwargs.get("inplace") is True or any(item is True for item in node.args)
    return told and _given(node.target, node).get("inplace") is True


def _named_in_place(node: fx.Node) -> bool:
    """By its name alone. Python's ``and_``, ``or_`` and ``not_`` end like torch's in-place functions, and
    change nothing."""
    name = str(node.target) if node.op == "call_method" else str(getattr(node.target, "__name__", ""))
    if getattr(node.target, "__module__", "") == "_operator":
        return name in IN_PLACE
    return name.endswith("_") and not name.endswith("__")


def _given(target: Callable[..., Any], node: fx.Node) -> dict[str, Any]:
    """What a function is called with, by the names of its parameters; empty for a builtin without a
    signature: those have no ``inplace=``, and no ``max_norm=``, which changes a table of rows."""
    try:
        return inspect.signature(target).bind(*node.args, **node.kwargs).arguments
    except (TypeError, ValueError):
        return {}
