"""Operators whose results lie elsewhere in memory than torch's tracing says, rewritten so that both agree
with eager: what reads a result by its strides, in the graph or after it, goes by the traced ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch.fx.experimental.symbolic_shapes import guard_or_false

aten = torch.ops.aten


def roll(x: Tensor, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Tensor:
    """A CPU's kernel puts two pieces one after the other, and those of a tensor with its channels last lie
    as that does; where one is empty, in row-major order, as torch traces all of them. Such a tensor is
    rolled as its memory lies. A GPU's kernel has row-major order always."""
    in_rows = x.device.type != "cpu" or not dims or len(dims) != len(shifts) or _in_rows(x)
    if in_rows or _leaves_a_piece_empty(x, shifts, dims):
        return NotImplemented  # type: ignore[no-any-return]  # the op stays as it is
    order = [0, *range(2, x.dim()), 1]
    places = [order.index(dim % x.dim()) for dim in dims]
    made: Tensor = aten.roll.default(x.permute(order), shifts, places)
    return made.permute([order.index(dim) for dim in range(x.dim())])


def _leaves_a_piece_empty(x: Tensor, shifts: Sequence[Any], dims: Sequence[int]) -> bool:
    """Whether there is nothing in ``x``, or some shift is none."""
    nothing = any(guard_or_false(extent == 0) for extent in x.shape)
    none = (shift % x.shape[dim] == 0 for shift, dim in zip(shifts, dims, strict=True))
    return nothing or any(map(guard_or_false, none))


def _in_rows(x: Tensor) -> bool:
    """Whether ATen lays out in row-major order what it makes in the memory format of ``x``."""
    return suggest_memory_format(x) == torch.contiguous_format


def log_sigmoid_forward(
    rewrite: Callable[[Tensor], tuple[Tensor, Tensor]], x: Tensor
) -> tuple[Tensor, Tensor]:
    """A CPU's kernel makes rows of whatever lies otherwise; torch's ``rewrite`` is traced with the strides of
    ``x``, as a GPU's kernel gives them."""
    made, kept = rewrite(x)
    return (made.contiguous() if x.device.type == "cpu" else made), kept
