"""Whether a cell may be run once more, on copies: nothing that it names acts outside of what is put back.

:class:`nbcompile.bench.measure.state.Snapshot` puts tensors, containers, objects and random generators back.
It cannot take back a file that was written, a message that was sent, or a step of an iterator. So every name
of the cell, and of the functions of the session that it calls, has to be one known to do none of that.
"""

from __future__ import annotations

import builtins
import dis
import math
from collections.abc import Mapping
from contextlib import suppress
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import torch
import torch.nn.functional as F

from nbcompile.bench.measure.code_objects import is_users, names_in
from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.tensor_state import hooks_of
from nbcompile.errors import MeasureError

_BUILTINS = frozenset(
    "abs all any bool complex dict divmod enumerate filter float frozenset getattr hasattr int isinstance "
    "issubclass len list map max min object pow print range repr reversed round set slice sorted str sum "
    "super tuple type zip ArithmeticError AssertionError Exception IndexError KeyError NotImplementedError "
    "RuntimeError TypeError ValueError staticmethod property".split()
)
_MODULES = frozenset(
    "torch math numpy functools operator itertools logging warnings time copy random typing dataclasses "
    "collections string gc".split()
)
# Of these modules and of containers and text: what their attributes are called.
_ATTRIBUTES = frozenset(
    "append extend items keys values get update insert clear add discard join split strip format lower "
    "upper startswith endswith replace count index deepcopy copy info debug warning error critical log "
    "warn getLogger collect perf_counter perf_counter_ns monotonic process_time time sleep strftime "
    "localtime gauss random randint uniform choice shuffle seed default_rng array asarray zeros ones "
    "dtype shape partial reduce wraps nn functional special linalg fft compiler utils checkpoint "
    "graph_break disable forward training _dynamo ndarray astype ctypes".split()
)
_NEVER = frozenset(
    "open input exec eval compile save load hub distributed multiprocessing tofile fromfile from_file "
    "share_memory_ storage set_ memmap savez savetxt loadtxt".split()
)
_DEPTH = 4  # of functions that call functions
_PLAIN = (torch.Tensor, torch.nn.Module, torch.dtype, torch.device, int, float, complex, str, bytes, tuple,
          list, dict, set, type(None), torch.Size)  # fmt: skip


def what_may_act(code: CodeType, namespace: Mapping[str, Any]) -> str:
    """The first name of ``code`` that may do what cannot be put back; empty if there is none."""
    return _first(code, namespace, frozenset(_bound(code)), _DEPTH)


def hook_that_may_act(tensors: Mapping[str, torch.Tensor]) -> str:
    """Of what backward calls with the gradients of these tensors, the first that may do what cannot be put
    back, as ``w's hook, which uses open``; empty if there is none."""
    for tensor_name, tensor in tensors.items():
        for hook in (hook for hooks in hooks_of(tensor) for hook in hooks.values()):
            if name := _acts_in(hook):
                return f"{tensor_name}'s hook, which uses {name}"
    return ""


def refuse_hooks(roots: Mapping[str, Any]) -> None:
    """MeasureError where backward of what these lead to calls a function that may act outside: each turn of a
    measurement would call it."""
    if hook := hook_that_may_act(Snapshot(roots, copies=False).tensors):
        raise MeasureError(f"Not timed: {hook}, may act outside this process.")


def _acts_in(function: Any) -> str:
    """The first name in a function that may act; of what is no function that can be read, its own."""
    function = getattr(function, "__func__", function)
    if isinstance(function, FunctionType) and _root(function) != "torch":
        code = function.__code__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # Python's way to say that a cell is empty
                if not _of_session(name, cell.cell_contents, _DEPTH - 1):
                    return name
        return _first(code, function.__globals__, frozenset(_bound(code)), _DEPTH)
    name = str(getattr(function, "__name__", type(function).__name__))
    known = isinstance(function, BuiltinFunctionType) and name in _ATTRIBUTES
    return "" if known or _root(function) == "torch" else name


def _first(code: CodeType, namespace: Mapping[str, Any], bound: frozenset[str], depth: int) -> str:
    for name in sorted(_imported(code)):
        if name.partition(".")[0] not in _MODULES:
            return name
    names = set(names_in(code)) - bound
    modules = [namespace[name] for name in names if name in namespace and _is_users(namespace[name])]
    for name in sorted(names):
        # A name of the session is what it is there, whatever else is called so (os.rename and Tensor.rename).
        theirs = [getattr(module, name) for module in modules if hasattr(module, name)]
        if name in namespace:
            harmless = _of_session(name, namespace[name], depth)
        else:
            harmless = bool(theirs) or _known(name, namespace)
        if name in _NEVER or not harmless or not all(_of_session(name, each, depth) for each in theirs):
            return name
    return ""


def _imported(code: CodeType) -> set[str]:
    """The modules that the code imports, at its own level or in functions that it defines."""
    found = {str(each.argval) for each in dis.get_instructions(code) if each.opname == "IMPORT_NAME"}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _imported(constant)
    return found


def _bound(code: CodeType) -> set[str]:
    """What the code gives a value itself, at its own level or in functions that it defines."""
    stores = ("STORE_NAME", "STORE_FAST", "STORE_GLOBAL", "STORE_DEREF")
    found = {str(each.argval) for each in dis.get_instructions(code) if each.opname in stores}
    found |= set(code.co_varnames)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _bound(constant)
    return found


def _known(name: str, namespace: Mapping[str, Any]) -> bool:
    """Whether an attribute or builtin of this name does no harm, of whatever it is."""
    if name in _BUILTINS or name in _ATTRIBUTES or (name.startswith("__") and name.endswith("__")):
        return True
    if hasattr(builtins, name):
        return False
    if any(hasattr(owner, name) for owner in (torch.Tensor, F, torch.nn, math)):
        return True
    # Not the modules that torch has imported for itself.
    if hasattr(torch, name) and not isinstance(getattr(torch, name), ModuleType):
        return True
    return any(hasattr(value, name) for value in namespace.values() if isinstance(value, torch.nn.Module))


def _is_users(value: Any) -> bool:
    """Whether it is a module of the user's own, whose functions can be looked into."""
    return isinstance(value, ModuleType) and is_users(getattr(value, "__file__", None) or "")


def _of_session(name: str, value: Any, depth: int) -> bool:
    if isinstance(value, ModuleType):  # of the user's own each name that is asked for is looked at
        return value.__name__.partition(".")[0] in _MODULES or _is_users(value)
    if isinstance(value, FunctionType):
        if _root(value) == "torch":
            return True
        own = frozenset(_bound(value.__code__))
        return depth > 0 and not _first(value.__code__, value.__globals__, own, depth - 1)
    if isinstance(value, BuiltinFunctionType):
        return name not in _NEVER and _root(value) in ("torch", "math", "")
    return isinstance(value, _PLAIN) or (isinstance(value, type) and issubclass(value, torch.nn.Module))


def _root(value: Any) -> str:
    return str(getattr(value, "__module__", "") or "").partition(".")[0]
