"""Random functions of tensors that make every kind of GPU kernel: shapes with extents of 0 and 1, strides
that are not contiguous, several types. Values stay of moderate size, and decisions (comparisons, argmax,
conversions to integers) are taken on inputs only, where rounding cannot turn them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

EXTENTS = [1, 2, 3, 5, 8, 16, 17, 33, 40, 64, 70]
MOST = 6000  # elements of a value
FLOATS = [torch.float32, torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64]
Tensors = list[torch.Tensor]


def random_nest(seed: int) -> tuple[Callable[..., Any], Callable[..., Any], Tensors]:
    """A function of a few tensors, the same in float64, and inputs for it. The same seed gives the same."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    extents = draw.sample(EXTENTS, k=3) + ([0] if draw.random() < 0.04 else [])
    inputs = [_input(draw, extents) for _ in range(draw.randint(2, 4))]
    steps = draw.randint(3, 12)

    def run(given: Tensors, wide: bool) -> tuple[torch.Tensor, ...]:
        choose = random.Random(seed + 1)
        program = _Program(choose, list(given), wide)
        for _ in range(steps):
            program.step()
        made = program.values[len(given) :]
        return (*choose.sample(made, k=min(2, len(made))), made[-1])

    def function(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return run(list(given), False)

    def exact(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return run([item.double() if item.is_floating_point() else item for item in given], True)

    return function, exact, inputs


def _input(draw: random.Random, extents: list[int]) -> torch.Tensor:
    shape = [draw.choice(extents) for _ in range(draw.choice([1, 2, 2, 2, 3, 3, 4]))]
    while torch.Size(shape).numel() > MOST:
        shape.pop()
    kind = draw.choice(["float", "float", "float", "float", "int", "bool"])
    dtype = {"int": draw.choice([torch.int64, torch.int32, torch.int8]), "bool": torch.bool}.get(
        kind, draw.choice(FLOATS)
    )
    how = draw.choice(["plain", "plain", "transposed", "stepped", "expanded", "offset"])
    if how == "transposed":
        return _filled(shape[::-1], dtype).permute(*reversed(range(len(shape))))
    if how == "stepped":
        return _filled([*shape[:-1], shape[-1] * 2], dtype)[..., ::2]
    if how == "offset":
        return _filled([*shape[:-1], shape[-1] + 3], dtype)[..., 3:]
    if how == "expanded" and len(shape) > 1 and shape[0]:
        return _filled([1, *shape[1:]], dtype).expand(shape)
    return _filled(shape, dtype)


def _filled(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(-20, 20, shape).to(dtype)
    return torch.randn(shape).to(dtype)


class _Program:
    """The values so far. Those in ``exact`` are inputs or views of them: every rounding agrees there.
    ``wide``: each conversion to a floating-point type is one to float64."""

    def __init__(self, choose: random.Random, values: Tensors, wide: bool) -> None:
        self.choose = choose
        self.wide = wide
        self.values = values
        self.exact = [True] * len(values)

    def step(self) -> None:
        place = self.choose.choice(range(max(0, len(self.values) - 5), len(self.values)))
        x, exact = self.values[place], self.exact[place]
        kind = self.choose.choices(
            ["unary", "binary", "reduce", "view", "norm", "join", "cast", "decide"], [3, 6, 5, 5, 3, 1, 1, 1]
        )[0]
        made = getattr(self, f"_{kind}")(x, exact)
        if made is None or made.numel() > MOST:
            made, kind = self._unary(x, exact), "unary"
        self.values.append(made)
        self.exact.append(exact and kind == "view")

    def _float(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.is_floating_point() else self._to(x, torch.float32) * 0.1

    def _to(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x.to(torch.float64 if self.wide and dtype.is_floating_point else dtype)

    def _unary(self, x: torch.Tensor, exact: bool) -> torch.Tensor:
        if not x.is_floating_point():
            if x.dtype == torch.bool:
                return ~x
            return self.choose.choice([lambda: x * 2 - 1, lambda: x.abs(), lambda: torch.clamp(x, -5, 7)])()
        return self.choose.choice(
            [
                lambda: torch.sigmoid(x), lambda: torch.relu(x), lambda: -x, lambda: x * 0.5 + 1,
                lambda: torch.tanh(x), lambda: torch.exp(-x.abs()), lambda: F.gelu(x),
                lambda: torch.where(x > 0, x, x * 0.1), lambda: torch.rsqrt(x * x + 1),
            ]
        )()  # fmt: skip

    def _partner(self, x: torch.Tensor) -> torch.Tensor:
        """A value that broadcasts with ``x``: itself in the end."""
        for y in self.choose.sample(self.values, k=len(self.values)):
            try:
                shape = torch.broadcast_shapes(x.shape, y.shape)
            except RuntimeError:
                continue
            if len(shape) <= 4 and shape.numel() <= MOST:
                return y
        return x

    def _binary(self, x: torch.Tensor, exact: bool) -> torch.Tensor:
        y = self._partner(x)
        if x.dtype == y.dtype == torch.bool:
            return self.choose.choice([torch.logical_and, torch.logical_xor])(x, y)
        if x.dtype == torch.bool:
            return torch.where(x, y, y * 0)
        if y.dtype == torch.bool:
            return torch.where(y, x, x * 0)
        return self.choose.choice(
            [
                lambda: x + y, lambda: x - y, lambda: torch.maximum(*torch.broadcast_tensors(x, y)),
                lambda: torch.tanh(self._float(x)) * y, lambda: self._float(x) / (y.abs() + 1),
            ]
        )()  # fmt: skip

    def _reduce(self, x: torch.Tensor, exact: bool) -> torch.Tensor | None:
        if not x.dim():
            return None
        dims = sorted(
            self.choose.sample(range(x.dim()), k=self.choose.choice([1, 1, 1, 2, x.dim()][: x.dim() + 2]))
        )
        keep = self.choose.random() < 0.6
        count = max(1, torch.Size([x.shape[dim] for dim in dims]).numel())
        if x.dtype == torch.bool:
            return self.choose.choice(
                [
                    lambda: x.any(dims[0], keep),
                    lambda: x.all(dims[0], keep),
                    lambda: x.sum(dims, keepdim=keep),
                ]
            )()
        some = all(x.shape[dim] for dim in dims)
        if not x.is_floating_point():
            choices = [lambda: x.sum(dims, keepdim=keep)]
            choices += [lambda: x.amax(dims, keepdim=keep), lambda: x.argmax(dims[0], keep)] if some else []
            return self.choose.choice(choices)()
        choices = [
            lambda: x.sum(dims, keepdim=keep) / count**0.5, lambda: x.mean(dims, keepdim=keep),
            lambda: x.square().sum(dims, keepdim=keep) / count,
            lambda: torch.logsumexp(x, dims, keepdim=keep),
        ]  # fmt: skip
        if some:
            choices += [lambda: x.amax(dims, keepdim=keep), lambda: x.amin(dims, keepdim=keep)]
            choices += [
                lambda: x.var(dims, correction=0, keepdim=keep),
                lambda: (x * 0.1 + 1).prod(dims[0], keep),
            ]
            choices += [lambda: x.argmin(dims[0], keep)] if exact else []
        return self.choose.choice(choices)()

    def _view(self, x: torch.Tensor, exact: bool) -> torch.Tensor | None:
        if not x.dim():
            return x.unsqueeze(0)
        dim = self.choose.randrange(x.dim())
        size, half = x.shape[dim], x.shape[dim] // 2
        return self.choose.choice(
            [
                lambda: x.transpose(dim, -1), lambda: x.flip(dim), lambda: x.narrow(dim, half, size - half),
                lambda: x.reshape(-1), lambda: x.unsqueeze(dim) if x.dim() < 4 else x, lambda: x.roll(3, dim),
                lambda: F.pad(x, (1, 2)), lambda: x[..., ::2],
                lambda: x.unflatten(dim, (half, 2)) if half * 2 == size and half and x.dim() < 4 else x,
                lambda: x.flatten(0, 1) if x.dim() > 1 else x, lambda: x.select(dim, half) if half else x,
                lambda: x.reshape(x.shape[0], -1).repeat(1, 2) if x.numel() and x.numel() < MOST // 2 else x,
            ]
        )()  # fmt: skip

    def _norm(self, x: torch.Tensor, exact: bool) -> torch.Tensor | None:
        if not x.dim() or not x.numel():
            return None
        x = self._float(x)
        dim = self.choose.randrange(x.dim())
        return self.choose.choice(
            [
                lambda: torch.softmax(x, dim), lambda: torch.log_softmax(x, dim),
                lambda: F.layer_norm(x, x.shape[dim:], None, None, 1e-2),
                lambda: x * torch.rsqrt(x.square().mean(dim, keepdim=True) + 0.1),
                lambda: (x - x.mean(dim, keepdim=True)) / (x.std(dim, keepdim=True, correction=0) + 0.5),
            ]
        )()  # fmt: skip

    def _join(self, x: torch.Tensor, exact: bool) -> torch.Tensor | None:
        if not x.dim() or x.numel() * 2 > MOST:
            return None
        dim = self.choose.randrange(x.dim())
        other = self._unary(x, exact)
        return (
            torch.cat([x, other], dim)
            if self.choose.random() < 0.7
            else torch.stack([other, x], dim).sum(dim)
        )

    def _cast(self, x: torch.Tensor, exact: bool) -> torch.Tensor:
        if x.is_floating_point():
            return self._to(x, self.choose.choice([torch.float32, torch.bfloat16, torch.float64]))
        return self._to(x, self.choose.choice([torch.float32, torch.bfloat16, torch.int64, torch.int32]))

    def _decide(self, x: torch.Tensor, exact: bool) -> torch.Tensor | None:
        if not exact or x.dtype == torch.bool:
            return None
        return torch.where(x > 0.1, x, -x) if self.choose.random() < 0.5 else x > 0.1
