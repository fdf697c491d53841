"""C kernels as functions of tensors and integers."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from nbcompile.compiler.runtime import native, scratch
from nbcompile.compiler.stages import EntryPoint
from nbcompile.errors import LaunchError, ToolchainError

_MOST = 64
"""As in ``call.c``: what takes more arguments is called by ctypes, at some 0.1 µs an argument."""


def load(path: Path, entry_points: Iterable[EntryPoint]) -> dict[str, Callable[..., None]]:
    """The functions of a built library by symbol. They take tensors, whose addresses the C function is given,
    and integers, which are 64 bits to it. ToolchainError if it cannot be loaded."""
    try:
        library = scratch.opened(path)
        return {item.symbol: _callable(getattr(library, item.symbol), item) for item in entry_points}
    except (OSError, AttributeError) as error:
        raise ToolchainError(f"a built kernel could not be loaded: {error}") from error


def _callable(function: Any, item: EntryPoint) -> Callable[..., None]:
    count = len(item.parameters)
    caller, address_of = native_caller(), _address_of()
    if caller is None or address_of is None or count > _MOST:
        function.restype, function.argtypes = None, [ctypes.c_void_p] * count
        return functools.partial(_in_python, function)
    # the library stays loaded for good: ctypes never unloads one
    words = struct.pack("=3q", ctypes.cast(function, ctypes.c_void_p).value, address_of, count)
    return caller((words, item.symbol, LaunchError, torch.Tensor, int))


@functools.cache
def native_caller() -> native.Bound | None:
    """What makes a built-in function of the tuple that ``call.c`` describes; None as of
    :func:`native.loaded`."""
    return native.loaded(Path(__file__).with_name("call.c"), "nbcompile_call")


def _address_of() -> int | None:
    """The address of torch's C function that gives a tensor's memory; None where it has none."""
    guards: Any = torch._C._dynamo.guards
    found = getattr(guards, "_torchinductor_pyobject_tensor_data_ptr", None)
    return int(found) if found else None


def _in_python(function: Callable[..., None], *arguments: Any) -> None:
    function(*(item.data_ptr() if isinstance(item, torch.Tensor) else item for item in arguments))
