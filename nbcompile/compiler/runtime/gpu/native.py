"""The launcher in C: built once a machine from ``launch.c``, loaded once a process."""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from nbcompile.compiler.runtime.cache import DiskCache, key
from nbcompile.errors import ToolchainError

KINDS = {
    "i1": 1, "i8": 1, "i16": 2, "i32": 3, "i64": 4, "u1": 5, "u8": 5, "u16": 6, "u32": 7, "u64": 8,
    "fp32": 9, "f32": 9, "fp64": 10,
}  # fmt: skip
"""The kinds of run-time arguments by Triton's type, as numbered in ``launch.c``."""
POINTER, MULTIPLE_OF_16 = 0, 16
MOST_ARGUMENTS = 256

_FLAGS = ("-fno-strict-aliasing",)
_SOURCE = Path(__file__).with_suffix("").with_name("launch.c")


@functools.cache
def native_launcher() -> Callable[[tuple[Any, ...]], Callable[..., None]] | None:
    """What makes a built-in function of the tuple described in ``launch.c``; None where there is no
    C compiler, or where what it built cannot be loaded (launching then goes through Python)."""
    if sys.implementation.name != "cpython" or struct.calcsize("P") != 8:
        return None
    try:
        library = ctypes.CDLL(str(_library()))
        method = ctypes.addressof(ctypes.c_char.in_dll(library, "nbcompile_launch"))
    except (ToolchainError, OSError, ValueError):
        return None
    make = ctypes.pythonapi["PyCFunction_NewEx"]  # a prototype of our own: others may set theirs
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)

    def bound(state: tuple[Any, ...]) -> Callable[..., None]:
        function: Callable[..., None] = make(method, state, None)
        return function

    return bound


def _library() -> Path:
    text = _SOURCE.read_text(encoding="utf-8")
    toolchain = find_toolchain()
    cache = DiskCache.shared()
    name = key("triton-launch", text, toolchain.fingerprint, _FLAGS)
    entry = cache.get(name)
    if entry is None:
        with tempfile.TemporaryDirectory(prefix="nbcompile-") as folder:
            out = Path(folder) / "launch.so"
            toolchain.compile(text, out, extra=_FLAGS)
            entry = cache.put(name, {"launch.so": out.read_bytes()})
    if entry is None:
        raise ToolchainError("no folder to load the launcher from.")
    return entry.path("launch.so")
