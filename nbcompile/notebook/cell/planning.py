"""Which statements to compile together, judged by what their names hold at this moment."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import itertools
import sys
import types
from collections import namedtuple
from collections.abc import Mapping, Sequence, Sized
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from nbcompile.bench.measure.code_objects import is_users_class, runs_code_unasked
from nbcompile.compiler.capture.cell_to_function import CellStatement, PythonStatement
from nbcompile.compiler.capture.losses import together_for_backward
from nbcompile.compiler.capture.python_reasons import (
    CHANGES_CONTAINER,
    FILLS_CONTAINER,
    is_of_its_owner,
    is_step,
    python_method,
    quiet_reason,
    reason_within,
    where_it_stands,
    work_in,
)
from nbcompile.notebook.cell.inner_compiles import is_compiled, own_compile
from nbcompile.notebook.cell.other_cells import ReachedGlobals, is_jax
from nbcompile.record.compilation import OWN_COMPILE
from nbcompile.syntax import names_read, names_stored

Namespace = Mapping[str, Any]

# Python's own business: randomness of their own, files, clocks, plots. Dynamo can trace some of numpy,
# but by torch's rules and with torch's random numbers, so numpy stays numpy.
_PYTHON_MODULES = frozenset(
    "numpy random time os sys io json pathlib pickle matplotlib pandas PIL IPython subprocess urllib "
    "requests logging warnings datetime gc shutil tempfile threading asyncio copy re string nbcompile".split()
)
_PYTHON_TORCH = frozenset(
    "manual_seed seed initial_seed save load compile get_rng_state set_rng_state from_numpy".split()
)
_PLAIN_BUILTINS = frozenset("int float bool str len range min max abs round sum tuple list dict set".split())
_PLAIN = (int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size, range)
_MODULE_METHODS = frozenset(
    "to cuda cpu float half double bfloat16 type apply add_module compile share_memory named_parameters "
    "parameters modules named_modules children buffers named_buffers".split()
)
_GROWS = frozenset("append extend add update insert pop remove clear setdefault appendleft popleft".split())
_CONTEXTS: tuple[Any, ...] = (
    torch.no_grad, torch.enable_grad, torch.inference_mode, torch.autocast,
)  # fmt: skip

BY_JAX = "jax computes it, not torch"
CHANGED_GLOBAL = "it reads a global that a function it may call changes"
TWICE = (
    "gradients of gradients (create_graph): torch.compile has none, so the cell runs as it is; "
    "those of torch.func (grad, jacrev, hessian) compile"
)
_TWICE = "create_graph"
_PLAIN_VALUES = "plain Python values"
_MANY_STEPS = "a loop, run step by step"
_STEPS_WITHIN = "with a loop in it that runs step by step"
_TEXT = "works on text"
_IN_A_LINE = "compute it in a line of its own, which is compiled"
_NAMES = "names a value"
_OWN_CONTEXT = "enters a context of its own"
_HANDLING = "may ask for the exception that is handled here, which Dynamo does not know"
_JITS = "makes a jitted function"
_GENERATES = "makes a generator"
QUIET = frozenset({_PLAIN_VALUES, _MANY_STEPS, _TEXT, CHANGES_CONTAINER, _NAMES, _JITS, _GENERATES})
"""Reasons of which there is no more to say: nothing would be gained by compiling."""


def plan(run: Sequence[CellStatement], namespace: Namespace, unroll: int) -> tuple[list[CellStatement], str]:
    """The longest start of ``run`` to compile as one function, and why the first one is left out if the
    list is empty (one of :data:`QUIET`: nothing to gain there). ``unroll`` bounds the steps of a loop taken
    whole."""
    taken: list[CellStatement] = []
    stored: set[str] = set()
    shared = ReachedGlobals({name for statement in run for name in names_read(statement.node)}, namespace)
    called = False
    why = ""
    for statement in run:
        if is_step(statement.node) and taken:
            break  # torch breaks the graph around it
        reason = _reason(statement, namespace, stored, unroll)
        calls = any(isinstance(part, ast.Call) for part in ast.walk(statement.node))
        if reason is None and (called or calls) and shared.writes & names_read(statement.node):
            if calls or not taken:
                reason = CHANGED_GLOBAL
            else:
                break
        if reason is not None:
            why = reason
            break
        taken.append(statement)
        bound = names_stored(statement.node)
        stored |= bound
        called = called or calls
        # A function that reads a global must see what the cell last bound there: end the part here.
        if bound & (shared.reads | shared.writes) or is_step(statement.node):
            break
    first_why = why if not taken else _NAMES
    nodes, leads = [each.node for each in taken], [each.leads for each in taken]
    taken = taken[: together_for_backward(nodes, leads, namespace)]
    before = [names_stored(node) for node in nodes]
    while taken and _is_trivial(taken[-1], namespace, stored, set().union(*before[: len(taken) - 1])):
        taken.pop()
    return taken, "" if taken else first_why


def callee(node: ast.expr, namespace: Namespace) -> Any:
    """What a call's function is, found without running any code of the user's (module attributes only);
    ``None`` if that cannot be said."""
    if isinstance(node, ast.Name):
        if node.id in namespace:
            return namespace[node.id]
        return getattr(builtins, node.id, None)
    if isinstance(node, ast.Attribute):
        owner = callee(node.value, namespace)
        if isinstance(owner, types.ModuleType):
            return owner.__dict__.get(node.attr)
    return None


def told_of_functions(node: ast.AST, namespace: Namespace) -> list[str]:
    """What the record is to say of the functions that a compiled statement may call: marks that change what
    they mean, and a torch.compile of their own, which does not hold where Dynamo traces through it."""
    found = ReachedGlobals(names_read(node), namespace)
    inner = [
        f"calls a function {own_compile(each)}: within this graph that does not hold"
        for each in found.compiled
    ]
    constant = [
        f"calls {each.__name__}(), marked assume_constant_result: what it gave while this was compiled "
        "is used from now on"
        for each in found.constant
    ]
    return inner + constant


def twice_differentiated(tree: ast.AST, namespace: Namespace) -> bool:
    """Whether a cell, or a function of the user's that it may call, takes gradients that have gradients."""
    for part in ast.walk(tree):
        if isinstance(part, ast.keyword) and part.arg == _TWICE:
            if not (isinstance(part.value, ast.Constant) and not part.value.value):
                return True
    return _TWICE in ReachedGlobals(names_read(tree), namespace).keywords


def of_ones_own(left: PythonStatement, tree: ast.AST, namespace: Namespace) -> PythonStatement:
    """A statement that Python was left for the name of a method it calls, with another reason where that is
    no method of torch's but of a class of the user's: only now, when it has run, is that known."""
    if not left.reason.startswith("."):
        return left
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and (node.lineno, node.col_offset) == left.place:
            for method in (part for part in ast.walk(node) if isinstance(part, ast.Attribute)):
                if left.reason.startswith(f".{method.attr}() "):
                    owner = callee(method.value, namespace)
                    if is_users_class(type(owner)) and not isinstance(owner, _TORCHS):
                        said = f".{method.attr}() of {type(owner).__name__} {_BY_ITS_NAME}"
                        return dataclasses.replace(left, reason=said)
    return left


_TORCHS = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, LRScheduler, torch.amp.GradScaler)
_BY_ITS_NAME = "is left to Python as torch has a method of this name: in a function, it is compiled"


def is_quiet(reason: str) -> bool:
    """Whether a statement that is left to Python for this reason loses nothing by it."""
    return (
        reason in QUIET
        or reason.startswith(OWN_COMPILE)
        or reason.endswith(_STEPS_WITHIN)
        or bool(reason_within(reason))
    )


def may_part(reason: str) -> bool:
    """Whether what is left to Python for this reason, or what stands in it, does more than name things."""
    return not is_quiet(reason_within(reason) or reason)


def stays_global(value: Any) -> bool:
    """Whether a name holding ``value`` is code rather than data."""
    return isinstance(
        value, types.ModuleType | types.FunctionType | types.BuiltinFunctionType | type | types.MethodType
    )


def _reason(statement: CellStatement, namespace: Namespace, stored: set[str], unroll: int) -> str | None:
    node = statement.node
    for name in names_read(node) - names_stored(node) - stored:
        if name not in namespace and not hasattr(builtins, name):
            return f"{name} is not defined"
    if not stored and _is_plain(node, namespace, stored):
        return _PLAIN_VALUES
    if "jax" in sys.modules and ReachedGlobals(names_read(node) - stored, namespace).jax:
        return _jax_reason(node, namespace)
    if isinstance(made := getattr(node, "value", None), ast.Call):
        function = callee(made.func, namespace)
        if isinstance(function, types.FunctionType) and function.__code__.co_flags & inspect.CO_GENERATOR:
            return _GENERATES  # Dynamo would run it to its end, which may never come
    if statement.in_loop and _is_plain(node, namespace, stored):
        return _PLAIN_VALUES  # numbers that change at each step: Python keeps count
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            reason = _call_reason(part, statement, namespace, stored)
            if reason is not None:
                return where_it_stands(reason, part, node)
        elif isinstance(part, ast.For) and _steps(part.iter, namespace, stored) > unroll:
            return _MANY_STEPS if isinstance(node, ast.For) else f"{quiet_reason(node)}, {_STEPS_WITHIN}"
        elif isinstance(part, ast.With) and not all(_is_context(item, namespace) for item in part.items):
            return _OWN_CONTEXT
    return None


def _jax_reason(node: ast.stmt, namespace: Namespace) -> str:
    """Why a statement that has to do with jax is left to it."""
    if isinstance(node, ast.For):
        return _MANY_STEPS
    if isinstance(node, ast.With):
        return _OWN_CONTEXT
    value = getattr(node, "value", None)
    if isinstance(value, ast.Call):
        made = callee(value.func, namespace)
        if getattr(made, "__name__", "") in ("jit", "pmap") and is_jax(made):
            return _JITS
    return BY_JAX if not isinstance(node, ast.Assign | ast.Expr) or _works(node) else _NAMES


def _call_reason(
    call: ast.Call, statement: CellStatement, namespace: Namespace, stored: set[str]
) -> str | None:
    root = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or root.id in stored:
        return None
    if is_of_its_owner(call) and isinstance(call.func, ast.Attribute):
        holder = callee(call.func.value, namespace)
        if isinstance(holder, (torch.optim.Optimizer, torch.amp.GradScaler, torch.nn.Module, LRScheduler)):
            return python_method(call.func.attr)
    target = callee(call.func, namespace)
    if target is not None:
        return _target_reason(target)
    owner = callee(call.func.value, namespace) if isinstance(call.func, ast.Attribute) else None
    if is_step(statement.node):
        if isinstance(owner, torch.optim.Optimizer):
            return None
        return f"{root.id} is no optimizer of torch's: its .step() runs in Python"
    if isinstance(owner, type):
        return None  # a class method, e.g. Function.apply
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if isinstance(owner, torch.nn.Module) and method in _MODULE_METHODS:
        return f".{method}() works on the module itself"
    if isinstance(owner, torch.optim.Optimizer | LRScheduler | torch.Generator):
        return f"{type(owner).__name__} runs in Python"
    if isinstance(owner, str | bytes):
        return _TEXT
    if statement.in_loop and isinstance(owner, list | dict | set) and method in _GROWS:
        return _growing(call, root.id, namespace, stored)
    return None


def _growing(call: ast.Call, container: str, namespace: Namespace, stored: set[str]) -> str:
    """Why a loop's statement that changes a container is Python's."""
    given = [*call.args, *(word.value for word in call.keywords)]
    computed = [work for each in given for work in work_in(each) if not _is_plain(work, namespace, stored)]
    if not computed:
        return CHANGES_CONTAINER
    if any(container in names_read(each) for each in computed):
        return f"{FILLS_CONTAINER}, which reads it"  # another container at each step: another graph
    return f"{FILLS_CONTAINER}: {_IN_A_LINE}"


def _target_reason(target: Any) -> str | None:
    if is_compiled(target):
        return own_compile(target)
    name = getattr(target, "__name__", "")
    package = (getattr(target, "__module__", None) or "").partition(".")[0]
    if target is namedtuple:
        return "makes a new class"
    if sys.exc_info()[1] is not None and package != "torch" and not isinstance(target, torch.nn.Module):
        return _HANDLING
    if isinstance(target, type):
        if package == "builtins" or target in _CONTEXTS or target is torch.Size:
            return None
        return f"makes a new {name}"
    if isinstance(target, types.BuiltinFunctionType) and package == "builtins":
        return None
    if package in _PYTHON_MODULES:
        return f"{package}.{name} runs in Python"
    module = getattr(target, "__module__", None) or ""
    if isinstance(target, types.FunctionType) and module.startswith(("torch.compiler", "torch._dynamo")):
        return f"{name} tells the compiler something, from Python"
    if package == "torch" and (name in _PYTHON_TORCH or name.startswith(("set_", "use_deterministic"))):
        return f"torch.{name} runs in Python"
    # random.random is a method of a hidden generator: ask whose
    owner = type(getattr(target, "__self__", None)).__module__.partition(".")[0]
    if owner in _PYTHON_MODULES:
        return f"{owner}.{name} runs in Python"
    return None


def _is_plain(node: ast.AST, namespace: Namespace, stored: set[str]) -> bool:
    """Whether a simple statement only moves plain Python data: no tensor, no call of unknown code."""
    if isinstance(node, ast.For | ast.If | ast.With):
        return False
    counted = _counted(node, stored) if "len" not in namespace else set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            if id(part) in counted and not isinstance(namespace.get(part.id), torch.Tensor):
                continue
            if part.id in stored:
                return False
            value = namespace.get(part.id, getattr(builtins, part.id, _PLAIN))
            if not _is_plain_value(value):
                return False
        elif isinstance(part, ast.Name) and isinstance(getattr(node, "target", None), ast.Name):
            if not _is_plain_value(namespace.get(part.id)):  # x += 1 reads x
                return False
        elif isinstance(part, ast.Call):
            if not _is_plain_call(part.func, namespace, stored):
                return False
    return True


def _is_plain_call(called: ast.expr, namespace: Namespace, stored: set[str]) -> bool:
    """Whether a call is of a builtin, or of a method of a dict, a list or text: no code of the user."""
    if isinstance(called, ast.Name):
        own = called.id in namespace or called.id in stored
        return called.id in _PLAIN_BUILTINS and not own
    if not isinstance(called, ast.Attribute):
        return False
    if isinstance(called.value, ast.Constant):
        return True
    return isinstance(called.value, ast.Name) and type(namespace.get(called.value.id)) in _WITH_METHODS


def _counted(node: ast.AST, stored: set[str]) -> set[int]:
    """The names whose length is asked for: a number, of whatever."""
    calls = [
        part for part in ast.walk(node) if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)
    ]
    given = [each for call in calls if ast.unparse(call.func) == "len" for each in call.args]
    return {id(each) for each in given if isinstance(each, ast.Name) and each.id not in stored}


def _is_plain_value(value: Any) -> bool:
    if isinstance(value, dict):
        value = [*itertools.islice(value.values(), _MOST_LOOKED_AT + 1), *itertools.islice(value, 1)]
    if isinstance(value, list | tuple | set):
        return len(value) <= _MOST_LOOKED_AT and all(_is_plain_value(item) for item in value)
    return isinstance(value, _PLAIN) or value in _PLAIN_TYPES if _hashable(value) else False


_MOST_LOOKED_AT = 1000
_WITH_METHODS = (dict, list, set, tuple, str, bytes)
_PLAIN_TYPES = frozenset(getattr(builtins, name) for name in _PLAIN_BUILTINS)


def _hashable(value: Any) -> bool:
    return isinstance(value, (*_PLAIN, type, types.BuiltinFunctionType))


def _is_trivial(statement: CellStatement, namespace: Namespace, stored: set[str], before: set[str]) -> bool:
    """A last statement with nothing to compute: leave it to Python, which does it as well. ``before``: what
    those that come before it store."""
    node = statement.node
    if not isinstance(node, ast.Assign | ast.Expr) or runs_code_unasked(node, namespace, before):
        return False
    return not _works(node) or _is_plain(node, namespace, stored)


def _works(node: ast.stmt) -> bool:
    """Whether a statement does more than name things."""
    work = ast.Call | ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp | ast.ListComp | ast.DictComp
    more = ast.Subscript | ast.IfExp | ast.SetComp
    return any(isinstance(part, work | more) for part in ast.walk(node))


def _steps(node: ast.expr, namespace: Namespace, stored: set[str]) -> float:
    """How often a loop over ``node`` would run, or infinity if that is not known without running it."""
    if isinstance(node, ast.Tuple | ast.List):
        return len(node.elts)
    if isinstance(node, ast.Name) and node.id not in stored:
        value = namespace.get(node.id)
        known = (list, tuple, dict, range, torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ParameterList)
        return len(value) if isinstance(value, known) and isinstance(value, Sized) else float("inf")
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in stored:
        owner = namespace.get(node.value.id)
        if isinstance(owner, torch.nn.Module):
            value = owner._modules.get(node.attr) or owner.__dict__.get(node.attr)
            return len(value) if isinstance(value, Sized) else float("inf")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id == "range" and "range" not in namespace:
            numbers = [_integer(arg, namespace, stored) for arg in node.args]
            if all(number is not None for number in numbers) and numbers:
                try:
                    return len(range(*[n for n in numbers if n is not None]))
                except (TypeError, ValueError, OverflowError):
                    return float("inf")
        if node.func.id in ("enumerate", "zip", "reversed") and node.args:
            return min(_steps(arg, namespace, stored) for arg in node.args)
    return float("inf")


def _integer(node: ast.expr, namespace: Namespace, stored: set[str]) -> int | None:
    if isinstance(node, ast.Constant):
        value = node.value
    elif isinstance(node, ast.Name) and node.id not in stored:
        value = namespace.get(node.id)
    else:
        return None
    return value if type(value) is int else None


def _is_context(item: ast.withitem, namespace: Namespace) -> bool:
    return (
        item.optional_vars is None
        and isinstance(item.context_expr, ast.Call)
        and any(callee(item.context_expr.func, namespace) is known for known in _CONTEXTS)
    )
