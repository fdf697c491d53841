"""Higher-order operators as the Python that they stand for: programs run with these where nothing compiles
them. Torch's own compile their bodies at each call, and take no dispatch mode that rounds otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
import torch.nn.attention.flex_attention

Tensor = torch.Tensor


def cond(asked: Any, one: Callable[..., Any], other: Callable[..., Any], operands: Sequence[Tensor]) -> Any:
    return (one if bool(asked) else other)(*operands)


def while_loop(
    goes_on: Callable[..., Any], body: Callable[..., Any], carried: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    values = tuple(carried)
    while bool(goes_on(*values)):
        values = tuple(body(*values))
    return values


def scan(
    combine: Callable[..., tuple[Tensor, Tensor]], init: Tensor, xs: Tensor, *, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    carried, given = init, []
    for row in reversed(xs.unbind(0)) if reverse else xs.unbind(0):
        carried, made = combine(carried, row)
        given.append(made)
    return carried, torch.stack(given[::-1] if reverse else given)


def map_(function: Callable[..., Tensor], xs: Tensor, *others: Tensor) -> Tensor:
    return torch.stack([function(row, *others) for row in xs.unbind(0)])


def flex_attention(q: Tensor, k: Tensor, v: Tensor, score_mod: Callable[..., Tensor]) -> Tensor:
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    scores = (q @ k.mT).to(wide) / q.shape[-1] ** 0.5
    places = [
        torch.arange(size, device=q.device).view([-1 if axis == own else 1 for axis in range(4)])
        for own, size in enumerate(scores.shape)
    ]
    return score_mod(scores, *places).softmax(-1).to(q.dtype) @ v


@contextlib.contextmanager
def in_python() -> Iterator[None]:
    """Within it, torch's names mean these."""
    with (
        mock.patch.object(torch, "cond", cond),
        mock.patch.multiple(torch._higher_order_ops, while_loop=while_loop, scan=scan, map=map_),
        mock.patch.object(torch.nn.attention.flex_attention, "flex_attention", flex_attention),
    ):
        yield
