"""CUDA's driver library, and what torch tells of its streams."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch

from nbcompile.errors import LaunchError


@functools.cache
def libcuda() -> Any:
    """The driver library of this machine. LaunchError if there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise LaunchError(
            f"CUDA's driver cannot be loaded: {error}.", advice="Is there an NVIDIA GPU?"
        ) from error


def _current_stream(index: int) -> int:
    return int(torch.cuda.current_stream(index).cuda_stream)


# the same without a Stream object: private, so it may be missing
stream_of: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)
"""The handle of the current stream of a device, as torch has it."""
