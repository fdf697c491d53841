"""Random graphs of pointwise operations, reductions and views, for a seed; values stay of moderate size."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

ROWS, COLUMNS, DEPTH = 24, 40, 3
SHAPES = [(ROWS, COLUMNS), (COLUMNS, ROWS), (ROWS, 1), (1, COLUMNS), (COLUMNS,), (DEPTH, ROWS, COLUMNS), ()]
UNARY: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.sin, torch.tanh, torch.sigmoid, torch.relu, torch.neg, lambda x: x * 0.5 + 1,
    lambda x: x.abs().sqrt(), lambda x: torch.exp(-x.abs()), lambda x: torch.where(x > 0, x, x * 0.1),
]  # fmt: skip
BINARY: list[Callable[..., torch.Tensor]] = [
    torch.add, torch.sub, torch.maximum, torch.minimum, lambda a, b: torch.tanh(a) * b,
    lambda a, b: a / (b.abs() + 1), lambda a, b: torch.where(a > b, a, b * 0.5),
]  # fmt: skip


def random_program(seed: int) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """A function of a few tensors and inputs for it. The same seed gives the same function."""
    generator = torch.Generator().manual_seed(seed)
    draw = random.Random(seed)
    shapes = [draw.choice(SHAPES) for _ in range(draw.randint(2, 4))]
    dtype = draw.choice([torch.float32, torch.float32, torch.float32, torch.float64])
    inputs = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    steps = draw.randint(6, 22)

    def function(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        choose = random.Random(seed + 1)
        values = list(given)
        for _ in range(steps):
            values.append(_step(choose, values))
        used = choose.sample(values[len(given) :], k=min(3, steps))
        return (*used, values[-1])

    return function, inputs


def _step(choose: random.Random, values: list[torch.Tensor]) -> torch.Tensor:
    x = choose.choice(values[-6:])
    kind = choose.choices(["unary", "binary", "reduce", "view", "softmax", "cat"], [4, 6, 4, 4, 1, 1])[0]
    if kind == "binary":
        for y in choose.sample(values, k=len(values)):
            try:
                shape = torch.broadcast_shapes(x.shape, y.shape)
            except RuntimeError:
                continue
            if len(shape) <= 3 and shape.numel() <= DEPTH * ROWS * COLUMNS * 4:
                return choose.choice(BINARY)(x, y)
    if kind == "reduce" and x.dim():
        dim = choose.randrange(x.dim())
        keep = choose.random() < 0.7
        return choose.choice(
            [
                lambda: x.mean(dim, keepdim=keep),
                lambda: x.amax(dim, keepdim=keep),
                lambda: x.amin(dim, keepdim=keep),
                lambda: x.sum(dim, keepdim=keep) * 0.1,
                lambda: x.mean(),
                lambda: x.var(dim, keepdim=keep, correction=0),
                lambda: torch.logsumexp(x, dim, keepdim=keep),
            ]
        )()
    if kind == "view" and x.dim():
        dim = choose.randrange(x.dim())
        return choose.choice(
            [
                lambda: x.transpose(0, -1),
                lambda: x.flip(dim),
                lambda: x.narrow(dim, 0, max(1, x.shape[dim] // 2)),
                lambda: x.reshape(-1),
                lambda: x.unsqueeze(dim),
                lambda: x.roll(3, dim),
                lambda: x.reshape(x.shape[0], -1).repeat(1, 2) if x.numel() < 2000 else x,
                lambda: torch.nn.functional.pad(x, (1, 2)),
            ]
        )()
    if kind == "softmax" and x.dim():
        return torch.softmax(x, choose.randrange(x.dim()))
    if kind == "cat" and x.dim() and x.numel() < 4000:
        return torch.cat([x, x * 0.5], choose.randrange(x.dim()))
    return choose.choice(UNARY)(x)
