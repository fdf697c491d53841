"""Whether a node of Dynamo's graph may change a tensor, or the modes that later nodes run in."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

_IN_PLACE = frozenset(
    "iadd iand iconcat ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor setitem "
    "delitem setattr delattr".split()
)
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
    if module.partition(".")[0] not in _PURE_MODULES or name in _IN_PLACE or name.endswith("_"):
        return True
    if name.startswith(_MODES) and name not in _HARMLESS_MODES:
        return True
    return node.kwargs.get("out") is not None or _asks_to_mutate(target, node)


def _asks_to_mutate(target: Callable[..., Any], node: fx.Node) -> bool:
    """Whether a function that can work in place (``inplace=``), or that changes a table of rows
    (``max_norm=``), is told to."""
    try:
        given = inspect.signature(target).bind(*node.args, **node.kwargs).arguments
    except (TypeError, ValueError):  # a builtin without a signature: those have no such parameters
        return False
    return bool(given.get("inplace")) or given.get("max_norm") is not None
