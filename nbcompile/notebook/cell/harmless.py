"""Whether a cell may be run once more, on copies: nothing that it names acts outside of what is put back.

:class:`nbcompile.bench.measure.state.Snapshot` puts tensors, containers, objects and random generators back.
It cannot take back a file that was written, a message that was sent, or a step of an iterator. So every name
of the cell, and of the functions of the session that it calls, has to be one known to do none of that.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils import data

from nbcompile.bench.measure.code_objects import is_users, is_users_class, names_in
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
    "collections string gc types".split()
)
# Of these modules and of containers and text: what their attributes are called.
_ATTRIBUTES = frozenset(
    "append extend items keys values get update insert clear add discard join split strip format lower "
    "upper startswith endswith replace count index deepcopy copy info debug warning error critical log "
    "warn getLogger collect perf_counter perf_counter_ns monotonic process_time time sleep strftime "
    "localtime gauss random randint uniform choice shuffle seed default_rng array asarray zeros ones "
    "dtype shape partial reduce wraps nn functional special linalg fft compiler utils checkpoint "
    "graph_break disable forward training _dynamo ndarray astype ctypes step zero_grad param_groups "
    "state_dict optim lr_scheduler clip_grad_norm_ clip_grad_value_ get_last_lr amp autocast GradScaler "
    "scale unscale_ SimpleNamespace namedtuple dataclass distributions".split()
)
_NEVER = frozenset(
    "open input exec eval compile save load hub distributed multiprocessing tofile fromfile from_file "
    "share_memory_ storage set_ memmap savez savetxt loadtxt set_printoptions".split()
)
_KNOWING = (
    torch.Tensor, F, torch.nn, math, torch.optim, torch.distributions, torch.distributions.Distribution,
)  # fmt: skip
_MAKING = ("torch.optim", "torch.distributions", "torch.amp")
"""Modules whose classes hold what they are given, and do no more."""
_OF_DATACLASSES = ("__repr__", "__eq__", "__hash__", "__replace__")  # as dataclasses writes them
_DEPTH = 4  # of functions that call functions
_PLAIN = (torch.Tensor, torch.nn.Module, torch.dtype, torch.device, int, float, complex, str, bytes, tuple,
          list, dict, set, type(None), torch.Size)  # fmt: skip
_TRAINERS = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
"""What trains: put back with the tensors that it holds, where it is torch's own."""


def what_may_act(code: CodeType, namespace: Mapping[str, Any]) -> str:
    """The first name of ``code`` that may do what cannot be put back; empty if there is none."""
    return _first(code, namespace, frozenset(_bound(code)), _DEPTH)


def which_may_act(statements: Sequence[ast.stmt], namespace: Mapping[str, Any]) -> str:
    """The same of statements."""
    return what_may_act(compile(ast.Module([*statements], []), "<statements>", "exec"), namespace)


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


def _first(
    code: CodeType,
    namespace: Mapping[str, Any],
    bound: frozenset[str],
    depth: int,
    owner: Any = None,
    seen: frozenset[CodeType] = frozenset(),
) -> str:
    """The first name that may act. ``owner``: the object of which the code is a method; ``seen``: code that
    is being looked at, as that of a method ``step`` that calls an optimizer's."""
    seen |= {code}
    for name in sorted(_imported(code)):
        if name.partition(".")[0] not in _MODULES:
            return name
    names = set(names_in(code)) - bound
    owners = [namespace[name] for name in names if name in namespace and _is_users(namespace[name])]
    owners += [owner] if owner is not None else []
    for each in owners:  # what they hold, too
        held = [found for name in names for found in _own(each, name)]
        owners += [item for item in held if _is_users(item) and not any(item is known for known in owners)]
    for name in sorted(names):
        # A name of the session is what it is there, whatever else is called so (os.rename and Tensor.rename).
        theirs = [found for each in owners for found in _own(each, name)]
        if name in namespace:
            harmless = _of_session(name, namespace[name], depth, seen)
        else:
            harmless = bool(theirs) or _known(name, namespace)
        if name in _NEVER or not harmless or not all(_of_session(name, each, depth, seen) for each in theirs):
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
    if any(hasattr(owner, name) for owner in _KNOWING):
        return True
    # Not the modules that torch has imported for itself.
    if hasattr(torch, name) and not isinstance(getattr(torch, name), ModuleType):
        return True
    return any(hasattr(value, name) for value in namespace.values() if isinstance(value, torch.nn.Module))


def _is_users(value: Any) -> bool:
    """Whether it is a module or an object of the user's own, whose functions can be looked into."""
    if isinstance(value, ModuleType):
        return is_users(getattr(value, "__file__", None) or "")
    known = isinstance(value, (type, FunctionType, MethodType, *_PLAIN, *_TRAINERS))
    return not known and is_users_class(type(value))


def _own(owner: Any, name: str) -> list[Any]:
    """What a module or object of the user's own has by this name, if anything: a property's function as its
    method, for looking must not call it."""
    try:
        found = inspect.getattr_static(owner, name)
    except AttributeError:
        return []
    found = found.fget if isinstance(found, property) else found
    if isinstance(found, staticmethod | classmethod):
        return [found.__func__]
    in_class = not isinstance(owner, ModuleType) and name not in getattr(owner, "__dict__", {})
    return [MethodType(found, owner) if in_class and isinstance(found, FunctionType) else found]


def _acts_unasked(value: Any, depth: int, seen: frozenset[CodeType]) -> bool:
    """Whether an object of the user's own may act where it is called, iterated or added to: by no name."""
    special = {
        name: each
        for kind in reversed(type(value).__mro__) if is_users_class(kind)
        for name, each in vars(kind).items()
        if name.startswith("__") and isinstance(each, FunctionType)
        and not (name == "__init__" or (is_dataclass(kind) and name in _OF_DATACLASSES))
    }  # fmt: skip
    return not all(_of_session(name, MethodType(each, value), depth, seen) for name, each in special.items())


def _of_session(name: str, value: Any, depth: int, seen: frozenset[CodeType] = frozenset()) -> bool:
    if isinstance(value, ModuleType):  # of the user's own each name that is asked for is looked at
        return value.__name__.partition(".")[0] in _MODULES or _is_users(value)
    if isinstance(value, FunctionType):
        if _root(value) == "torch":
            return True
        if value.__code__ in seen:
            return True
        own = frozenset(_bound(value.__code__))
        return depth > 0 and not _first(value.__code__, value.__globals__, own, depth - 1, None, seen)
    if isinstance(value, MethodType) and isinstance(value.__func__, FunctionType):
        code, held = value.__func__.__code__, value.__self__
        if code in seen:
            return True
        own, names = frozenset(_bound(code)), value.__func__.__globals__
        return depth > 0 and _is_users(held) and not _first(code, names, own, depth - 1, held, seen)
    if isinstance(value, BuiltinFunctionType):
        return name not in _NEVER and _root(value) in ("torch", "math", "")
    if isinstance(value, _TRAINERS):
        return _root(type(value)) == "torch" and not any(map(_acts_in, _given_to(value)))
    if isinstance(value, data.DataLoader):
        here = value.num_workers == 0 and _root(type(value)) == "torch" and not _acts_in(value.collate_fn)
        return here and _of_session(name, value.dataset, depth, seen)
    if isinstance(value, data.Subset | data.ConcatDataset):
        held = value.datasets if isinstance(value, data.ConcatDataset) else [value.dataset]
        return all(_of_session(name, each, depth, seen) for each in held)
    if isinstance(value, data.TensorDataset):
        return True
    if _is_users(value):  # each name of its own that is asked for is looked at
        return depth > 0 and not _acts_unasked(value, depth, seen)
    if isinstance(value, type):
        return _makes(value, depth, seen)
    return isinstance(value, _PLAIN)


def _makes(kind: type, depth: int, seen: frozenset[CodeType]) -> bool:
    """Whether making one of a class does no harm: of the user's own, what its methods of making do is looked
    at; what its others do is, where they are called by name."""
    if issubclass(kind, (torch.nn.Module, SimpleNamespace)) or kind.__module__.startswith(_MAKING):
        return True
    made = [vars(each)[name] for each in kind.__mro__ for name in ("__init__", "__new__", "__post_init__")
            if is_users_class(each) and name in vars(each)]  # fmt: skip
    functions = [getattr(each, "__func__", each) for each in made]
    written = [each for each in functions if isinstance(each, FunctionType)]
    return is_users_class(kind) and all(
        each.__code__.co_filename == "<string>"  # as dataclasses and named tuples have them made
        or _of_session(each.__name__, each, depth, seen)
        for each in written
    )


def _given_to(trainer: Any) -> Iterator[Any]:
    """The functions of others that an optimizer or a scheduler calls at each step."""
    for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
        yield from getattr(trainer, name, {}).values()
    yield from (each for each in getattr(trainer, "lr_lambdas", ()) if each is not None)


def _root(value: Any) -> str:
    return str(getattr(value, "__module__", "") or "").partition(".")[0]
