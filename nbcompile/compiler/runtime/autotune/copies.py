"""Candidates run on copies: of the arguments that a Triton function writes, and whether two runs wrote
the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from nbcompile.compiler.runtime.layout import flat
from nbcompile.compiler.stages import Launch

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
"""The largest ``|a - b| / |a|`` (Frobenius) of two orders of adding up: some units in the last place."""
_EXACT_SHARE = 1e-4  # part of the integers that a last bit may have rounded the other way
_CHUNK = 1 << 24


def written(launch: Launch) -> tuple[int, ...]:
    """Positions of the arguments that a launch may write to."""
    return tuple(n for n, item in enumerate(launch.arguments) if item.written)


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape, strides and contents in memory of its own; what lies between its elements
    is copied with them."""
    source = tensor.detach()
    if source.numel() == 0:
        return torch.empty_strided(source.shape, source.stride(), dtype=source.dtype, device=source.device)
    return flat(source).clone().as_strided(source.shape, source.stride(), 0)


def restore(copy: torch.Tensor, original: torch.Tensor) -> None:
    """Make a copy's contents those of its original again."""
    if original.numel():
        flat(copy).copy_(flat(original.detach()))


def with_copies(args: Sequence[Any], places: Iterable[int]) -> list[Any]:
    """The arguments of a launch with copies at ``places``."""
    found = list(args)
    for place in places:
        found[place] = copy_of(found[place])
    return found


def agree(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two results are the same but for the order of adding up: floats within TOLERANCE of each
    other, NaN with NaN, and all but one in ten thousand integers equal."""
    one, two = flat(first), flat(second)
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
