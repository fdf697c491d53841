"""What the probes change: other values, sizes, numbers and dtypes of given inputs, and what a function reads
from around it. All of it is made from the inputs given; nothing is known about the function."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree

from nbcompile.bench.measure.code_objects import names_in

Arguments = tuple[Any, ...]
_MOST = 4  # variants of one kind: each is compiled anew by some ways


@dataclass(frozen=True)
class InputVariant:
    """Inputs, and in words how they differ from those that were captured."""

    what: str
    args: Arguments


@dataclass(frozen=True)
class Binding:
    """A value that a function reads from around it, by name, and how to put another there."""

    name: str
    value: Any
    put: Callable[[Any], object]


def other_values(args: Arguments) -> list[InputVariant]:
    """The same shapes and dtypes, other values. Integers stay between those given, as they may be indices."""
    if not _tensors(args):
        return []
    made = [
        InputVariant("signs flipped", _mapped(args, _flipped)),
        InputVariant("all zeros", _mapped(args, lambda t: torch.zeros_like(t) if _floating(t) else t)),
        InputVariant("a hundred times as large", _mapped(args, lambda t: t * 100 if _floating(t) else t)),
    ]
    return [variant for variant in made if not _same(variant.args, args)]


def other_sizes(args: Arguments) -> list[list[InputVariant]]:
    """Other sizes, as groups of alternatives: all dimensions of one size changed together, else (where the
    function itself refuses that) one at a time. Elements are repeated, or left out."""
    sizes = sorted({size for tensor in _tensors(args) for size in tensor.shape if size > 0}, reverse=True)
    groups = []
    for size in sizes[:_MOST]:
        for new in (size + 3, 1) if size > 1 else (4,):

            def resized(tensor: torch.Tensor, size: int = size, new: int = new) -> torch.Tensor:
                return _resized(tensor, _dims(tensor, size), new)

            together = InputVariant(f"size {size} → {new}", _mapped(args, resized))
            groups.append([together, *_one_at_a_time(args, size, new)])
    return groups


def other_numbers(args: Arguments) -> list[InputVariant]:
    """Each Python number among the arguments changed, alone."""
    leaves, spec = _pytree.tree_flatten(args)
    found = []
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, bool | int | float):
            new = changed(leaf)
            changed_leaves = [*leaves[:place], new, *leaves[place + 1 :]]
            found.append(InputVariant(f"{leaf!r} → {new!r}", _pytree.tree_unflatten(changed_leaves, spec)))
    return found[:_MOST]


def other_dtype(args: Arguments, dtype: torch.dtype) -> list[InputVariant]:
    """All floating inputs as ``dtype``, or as float32 if that is what they are."""
    now = {tensor.dtype for tensor in _tensors(args) if _floating(tensor)}
    if not now:
        return []
    new = torch.float32 if now == {dtype} else dtype
    named = f"{', '.join(sorted(map(_name, now)))} → {_name(new)}"
    return [InputVariant(named, _mapped(args, lambda t: t.to(new) if _floating(t) else t))]


def around(fn: Any) -> list[Binding]:
    """The numbers and tensors that a function reads from its closure and globals, or a module has as
    attributes. Parameters and buffers are none: they are the module's state, which every way keeps."""
    if isinstance(fn, torch.nn.Module):
        own = [
            Binding(f"self.{name}", value, partial(setattr, fn, name))
            for name, value in vars(fn).items()
            if not name.startswith("_") and name != "training" and changeable(value)
        ]
        return [*own, Binding("self.training", fn.training, fn.train), *around(type(fn).forward)]
    fn = getattr(fn, "__func__", fn)
    if not isinstance(fn, types.FunctionType):
        return []
    found = []
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        try:
            value = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        if changeable(value):
            found.append(Binding(name, value, partial(setattr, cell, "cell_contents")))
    for name in names_in(fn.__code__):
        value = fn.__globals__.get(name)
        if changeable(value):
            found.append(Binding(name, value, partial(fn.__globals__.__setitem__, name)))
    return found


def objects_around(fn: Any) -> dict[str, Any]:
    """Everything that a function reads from around it and could change, by name."""
    if isinstance(fn, torch.nn.Module):
        own = {f"self.{name}": value for name, value in vars(fn).items() if not name.startswith("_")}
        return {**own, **dict(fn.named_buffers()), **objects_around(type(fn).forward)}
    fn = getattr(fn, "__func__", fn)
    if not isinstance(fn, types.FunctionType):
        return {}
    read = inspect.getclosurevars(fn)
    found = {**read.globals, **read.nonlocals}
    return {
        name: value for name, value in found.items() if not callable(value) and not inspect.ismodule(value)
    }


def changeable(value: Any) -> bool:
    """Whether :func:`changed` knows another value like this one."""
    if isinstance(value, bool | int | float):
        return True
    return hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, torch.nn.Parameter)


def changed(value: Any) -> Any:
    """Another value of the same type (and shape)."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return 2 * value + 1
    if isinstance(value, torch.Tensor):
        return _flipped(value.detach()) if not _floating(value) else 1 - value.detach()
    return 1 - value


def _one_at_a_time(args: Arguments, size: int, new: int) -> list[InputVariant]:
    leaves, spec = _pytree.tree_flatten(args)
    found = []
    for place, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            continue
        for dim in _dims(leaf, size):
            other = [*leaves[:place], _resized(leaf, [dim], new), *leaves[place + 1 :]]
            what = f"size {size} → {new} in dimension {dim} of input {place}"
            found.append(InputVariant(what, _pytree.tree_unflatten(other, spec)))
    return found[:_MOST]


def _tensors(args: Arguments) -> list[torch.Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor)]


def _mapped(args: Arguments, change: Callable[[torch.Tensor], torch.Tensor]) -> Arguments:
    def leaf_changed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return change(leaf.detach()).requires_grad_(leaf.requires_grad)

    mapped: Arguments = _pytree.tree_map(leaf_changed, args)
    return mapped


def _floating(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _flipped(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype is torch.bool:
        return ~tensor
    if _floating(tensor) or not tensor.numel():
        return -tensor
    return tensor.max() + tensor.min() - tensor


def _dims(tensor: torch.Tensor, size: int) -> list[int]:
    return [dim for dim, extent in enumerate(tensor.shape) if extent == size]


def _resized(tensor: torch.Tensor, dims: list[int], size: int) -> torch.Tensor:
    for dim in dims:
        tensor = tensor.index_select(dim, torch.arange(size, device=tensor.device) % tensor.shape[dim])
    return tensor


def _same(one: Arguments, other: Arguments) -> bool:
    return all(map(torch.equal, _tensors(one), _tensors(other)))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
