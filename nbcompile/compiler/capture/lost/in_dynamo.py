"""What Dynamo itself gets wrong on its walk through a program (torch 2.11 to 2.13, whatever the backend), and
what is done in a cell, which means what it means without us.

* A numpy array counts as a constant where numpy stays numpy (``trace_numpy`` off): ``a *= 2`` is done while
  tracing and once more when run, and ``a.shape[0]`` remains that of the first array. Here it is no constant.
* What a method of an optimizer assigns to its ``self`` is forgotten. Here it is remembered.
* Code that changes ``optimizer.param_groups`` leaves ``capturable`` True in them, which later steps refuse.
  Here it is put back after each call.
* An attribute that was assigned to a class is not seen through its instances and subclasses. Here it is.
* A deque of limited length grows beyond it, and then drops the wrong end. Here the graph ends before that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._dynamo.exc import unimplemented
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.lists import DequeVariable
from torch._dynamo.variables.misc import NumpyVariable
from torch._dynamo.variables.optimizer import OptimizerVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable

_ABSENT = object()
_GROWS = frozenset(("append", "appendleft", "extend", "extendleft", "insert", "__iadd__"))
_original: dict[tuple[type, str], Callable[..., Any]] = {}


def mend_dynamo() -> None:
    """From now on Dynamo does these things right, in this process; done once, however often it is called."""
    for owner, name, mended in _MENDED:
        if (owner, name) not in _original and hasattr(owner, name):  # torch 2.11 has not all of them
            _original[owner, name] = getattr(owner, name)
            setattr(owner, name, mended)


def _constant_but_arrays(self: Any) -> Any:
    if not torch._dynamo.config.trace_numpy and type(self.value).__name__ == "ndarray":
        raise NotImplementedError("the numbers of a numpy array change")
    return _original[NumpyVariable, "as_python_constant"](self)


def _store_attr(self: SideEffects, item: Any, name: str, *rest: Any, **more: Any) -> None:
    _original[SideEffects, "store_attr"](self, item, name, *rest, **more)
    if isinstance(item, OptimizerVariable) and id(item.value) not in self.id_to_variable:
        self.id_to_variable[id(item.value)] = item
        self.keepalive.append(item.value)


def _object_getattr(self: Any, tx: Any, name: str) -> Any:
    if name not in getattr(self.value, "__dict__", ()):
        if (assigned := _of_classes(tx, self, type(self.value).__mro__, name)) is not None:
            return assigned
    return _original[UserDefinedObjectVariable, "var_getattr"](self, tx, name)


def _class_getattr(self: Any, tx: Any, name: str) -> Any:
    if (assigned := _of_classes(tx, self, self.value.__mro__, name)) is not None:
        return assigned
    return _original[UserDefinedClassVariable, "var_getattr"](self, tx, name)


def _of_classes(tx: Any, read: Any, classes: tuple[type, ...], name: str) -> Any:
    """What this trace has assigned to the first of the classes that has such an attribute, if it has."""
    assigned = tx.output.side_effects.store_attr_mutations
    if name in assigned.get(read, ()):
        return None
    pending = {
        item.value: names[name]
        for item, names in assigned.items()
        if isinstance(item, UserDefinedClassVariable) and name in names
    }
    first = next((each for each in classes if each in pending or name in vars(each)), None)
    if first is None or first not in pending:
        return None
    if isinstance(pending[first], ConstantVariable | TensorVariable):
        return pending[first]
    unimplemented(
        gb_type="attribute assigned to a class, and read through it",
        context=f"{first.__name__}.{name}",
        explanation=f"{first.__name__}.{name} is assigned to the class, and then read through it",
        hints=[f"Keep {name} in the instance, or as a variable."],
    )


def _wrap_list(self: Any, value: Any) -> Any:
    made = _original[VariableBuilder, "wrap_listlike"](self, value)
    if isinstance(made, DequeVariable):
        made.maxlen = ConstantVariable.create(value.maxlen)
    return made


def _deque_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    if name in _GROWS and self.maxlen.as_python_constant() is not None:
        unimplemented(
            gb_type="a deque of limited length grows",
            context=name,
            explanation=f".{name}() of a deque of limited length drops what it has no room for",
            hints=["Change the deque outside of the compiled part."],
        )
    return _original[DequeVariable, "call_method"](self, tx, name, args, kwargs)


# -- capturable -----------------------------------------------------------------------------------------


_traced: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
"""Optimizers whose groups Dynamo has looked at: what it compiled may write ``capturable`` into them."""
_before: list[tuple[dict[str, Any], Any]] | None = None


def _set_capturable(self: Any, tx: Any) -> None:
    """A GPU's parameters are first stepped with ``capturable`` set for good; all else is for the trace."""
    _original[OptimizerVariable, "_set_capturable"](self, tx)
    if self.value not in _traced:
        _traced.add(self.value)
        if _before is not None:
            _before.extend(_capturable_of(self.value))


def _capturable_of(optimizer: torch.optim.Optimizer) -> Iterator[tuple[dict[str, Any], Any]]:
    for group in optimizer.param_groups:
        yield group, group.get("capturable", _ABSENT)


@contextmanager
def capturable_kept() -> Iterator[None]:
    """The settings ``capturable`` of all optimizers are after this what they were before it."""
    global _before
    outer, _before = _before, [found for item in _traced for found in _capturable_of(item)]
    try:
        yield
    finally:
        for group, value in _before:
            if value is _ABSENT:
                group.pop("capturable", None)
            elif group.get("capturable", _ABSENT) is not value:
                group["capturable"] = value
        _before = outer


_MENDED: tuple[tuple[type, str, Callable[..., Any]], ...] = (
    (NumpyVariable, "as_python_constant", _constant_but_arrays),
    (SideEffects, "store_attr", _store_attr),
    (OptimizerVariable, "_set_capturable", _set_capturable),
    (UserDefinedObjectVariable, "var_getattr", _object_getattr),
    (UserDefinedClassVariable, "var_getattr", _class_getattr),
    (VariableBuilder, "wrap_listlike", _wrap_list),
    (DequeVariable, "call_method", _deque_method),
)
