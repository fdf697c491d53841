"""The memory that a strided tensor takes, whatever lies between its elements."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def reach(shape: Iterable[int], strides: Iterable[int]) -> int:
    """How many elements there are from the first of such a tensor to its last, both counted; 0 if it
    is empty."""
    elements = 1
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 0:
            return 0
        elements += (extent - 1) * stride
    return elements


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """All of that memory, as a tensor of one dimension."""
    size = reach(tensor.shape, tensor.stride())
    return tensor.as_strided((size,), (1,), tensor.storage_offset())
