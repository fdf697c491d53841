"""What a benchmark item is: a function, its inputs, and which part of a call is timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from gpu_timing import tensors

Function = Callable[..., Any]


@dataclass(frozen=True)
class Maker:
    """Makes inputs on a device. ``tiny`` clips every extent, so that an item runs anywhere at once."""

    device: str
    tiny: bool = False
    seed: int = 0
    _generators: dict[str, torch.Generator] = field(default_factory=dict)

    def size(self, *extents: int) -> tuple[int, ...]:
        return tuple(min(extent, 24) for extent in extents) if self.tiny else extents

    def generator(self) -> torch.Generator:
        if self.device not in self._generators:
            self._generators[self.device] = torch.Generator(self.device).manual_seed(1234 + self.seed)
        return self._generators[self.device]

    def randn(self, *extents: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        shape = self.size(*extents)
        return torch.randn(shape, dtype=dtype, device=self.device, generator=self.generator())

    def rand(self, *extents: int, dtype: torch.dtype = torch.float32, low: float = 0.0) -> torch.Tensor:
        """Uniform in [low, low + 1)."""
        shape = self.size(*extents)
        return torch.rand(shape, dtype=dtype, device=self.device, generator=self.generator()) + low

    def integers(self, high: int, *extents: int) -> torch.Tensor:
        """int64 in [0, high), with ``high`` clipped as an extent is."""
        (high,) = self.size(high)
        shape = self.size(*extents)
        return torch.randint(high, shape, device=self.device, generator=self.generator())


class Backward:
    """The backward pass alone: the graph of one forward is kept, and each call runs its backward.

    Everyone's forward runs as they compiled it and saves what they chose to; timed are the gradients
    of every floating input. Call :func:`keep_buffers` before compiling.
    """

    def __init__(self, fn: Function, args: tuple[Any, ...]) -> None:
        self.leaves = [each for each in tensors(args) if each.requires_grad]
        outputs = fn(*args)
        self.roots = [each for each in tensors(outputs) if each.requires_grad]
        generator = torch.Generator(self.roots[0].device).manual_seed(7)
        self.cotangents = [
            torch.randn(root.shape, dtype=root.dtype, device=root.device, generator=generator)
            if root.dim()
            else torch.ones_like(root)
            for root in self.roots
        ]

    def __call__(self) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(self.roots, self.leaves, self.cotangents, retain_graph=True)


def keep_buffers() -> None:
    """A kept graph needs its saved tensors again: compilers may not write into them."""
    import torch._functorch.config as config

    if hasattr(config, "donated_buffer"):
        config.donated_buffer = False


def with_gradients(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same inputs, each floating one a leaf that wants its gradient."""
    return tuple(
        each.detach().requires_grad_()
        if isinstance(each, torch.Tensor) and each.is_floating_point()
        else each
        for each in args
    )


def in_float64(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of the inputs, floating ones in float64; those that want gradients still do."""

    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        copy = value.detach().to(torch.float64) if value.is_floating_point() else value.clone()
        return (copy.clone() if copy is value else copy).requires_grad_(value.requires_grad)

    return tuple(map(one, args))


def copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of the inputs, for a function that overwrites them."""
    return tuple(
        each.detach().clone().requires_grad_(each.requires_grad) if isinstance(each, torch.Tensor) else each
        for each in args
    )
