"""The five scans, and what to scan: the types that each is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from nbcompile.compiler.lower.samples import tensor

SCANS: dict[str, Callable[..., Any]] = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "logcumsumexp": torch.logcumsumexp,
    "cummax": lambda x, dim: tuple(torch.cummax(x, dim)),
    "cummin": lambda x, dim: tuple(torch.cummin(x, dim)),
}
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


def scanned(name: str, size: tuple[int, ...]) -> Iterator[torch.Tensor]:
    """A tensor of each type that ``name`` takes."""
    draw = torch.Generator().manual_seed(0)
    for dtype in _FLOATS if name == "logcumsumexp" else (*_FLOATS, *_INTS):
        # sums stay away from 0, where eager on the CPU, which adds up in float64, has more digits
        low, high = {"cumprod": (-1.3, 1.3), "cumsum": (-1.0, 4.0)}.get(name, (-4.0, 4.0))
        yield tensor(draw, *size, dtype=dtype, low=low, high=high)
