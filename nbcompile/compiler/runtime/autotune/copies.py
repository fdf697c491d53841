"""Candidates run on copies: which arguments a Triton function writes, copies of them, and whether two
runs wrote the same."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from nbcompile.compiler.runtime.gpu.grid import is_pointer
from nbcompile.compiler.runtime.gpu.text import definitions
from nbcompile.compiler.stages import Launch

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
"""The largest ``|a - b| / |a|`` (Frobenius) of two orders of adding up: some units in the last place."""
_EXACT_SHARE = 1e-4  # part of the integers that a last bit may have rounded the other way
_CHUNK = 1 << 24


def written(text: str, launch: Launch) -> tuple[int, ...]:
    """Positions of the tensor arguments that a launch may write: all but those of which the function's own
    text shows that it does no more than load through them."""
    node = definitions(text).get(launch.function)
    pointers = [item.name for item in launch.arguments if is_pointer(item.type)]
    if not isinstance(node, ast.FunctionDef):
        return tuple(n for n, item in enumerate(launch.arguments) if item.name in pointers)
    bases: dict[str, set[str]] = {name: {name} for name in pointers}
    changed = True
    while changed:  # p = x_ptr + i: what is stored through p is stored in x
        changed = False
        for item in ast.walk(node):
            if isinstance(item, ast.Assign | ast.AugAssign | ast.AnnAssign) and item.value is not None:
                reached = {base for name in _names(item.value) for base in bases.get(name, ())}
                for name in _bound(item):
                    if not reached <= bases.get(name, set()):
                        bases[name] = bases.get(name, set()) | reached
                        changed = True
    found: set[str] = set()
    for item in ast.walk(node):
        if isinstance(item, ast.Call):
            for name in _names_given_to(item):
                found |= bases.get(name, set())
    return tuple(n for n, item in enumerate(launch.arguments) if item.name in found)


def _bound(item: ast.Assign | ast.AugAssign | ast.AnnAssign) -> list[str]:
    targets = item.targets if isinstance(item, ast.Assign) else [item.target]
    return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]


def _names(node: ast.AST) -> Iterator[str]:
    """Names in an expression, those in the argument of a load apart: a value that was loaded is no place."""
    if isinstance(node, ast.Name):
        yield node.id
    if _is_load(node):
        return
    for child in ast.iter_child_nodes(node):
        yield from _names(child)


def _is_load(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load"


def _names_given_to(call: ast.Call) -> Iterator[str]:
    """Names of places that a call may store through: the first argument of what stores in ``tl``, all
    that a function of the file is given, and a descriptor whose method it is."""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        if call.func.value.id != "tl":
            if call.func.attr != "load":
                yield call.func.value.id
        elif call.func.attr == "store" or call.func.attr.startswith("atomic_"):
            yield from _names(call.args[0] if call.args else call)
        return
    for item in (*call.args, *call.keywords):
        yield from _names(item)


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape, strides and contents in memory of its own; what lies between its elements
    is copied with them."""
    source = tensor.detach()
    if source.numel() == 0:
        return torch.empty_strided(source.shape, source.stride(), dtype=source.dtype, device=source.device)
    return _flat(source).clone().as_strided(source.shape, source.stride(), 0)


def restore(copy: torch.Tensor, original: torch.Tensor) -> None:
    """Make a copy's contents those of its original again."""
    if original.numel():
        _flat(copy).copy_(_flat(original.detach()))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """All memory from a tensor's first element to its last."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((reach + 1,), (1,), tensor.storage_offset())


def with_copies(args: Sequence[Any], places: Iterable[int]) -> list[Any]:
    """The arguments of a launch with copies at ``places``."""
    found = list(args)
    for place in places:
        found[place] = copy_of(found[place])
    return found


def agree(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two results are the same but for the order of adding up: floats within TOLERANCE of each
    other, NaN with NaN, and all but one in ten thousand integers equal."""
    one, two = _flat(first), _flat(second)
    off = norm = 0.0
    unequal = 0
    for start in range(0, one.numel(), _CHUNK):
        a, b = one[start : start + _CHUNK], two[start : start + _CHUNK]
        if not a.is_floating_point():
            unequal += int((a != b).sum())
            continue
        differ = ~((a == b) | (a.isnan() & b.isnan()))
        if bool(differ.any()):
            gap = (a[differ].double() - b[differ].double()).abs()
            if not bool(gap.isfinite().all()):
                return False
            off += float(gap.square().sum())
        norm += float(a[a.isfinite()].double().square().sum())
    if not one.is_floating_point():
        return unequal <= _EXACT_SHARE * one.numel()
    return off == 0.0 or off**0.5 <= TOLERANCE.get(one.dtype, 0.1) * norm**0.5
