"""Built-in functions of ours in C, that call kernels: built once a machine, loaded once a process."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbcompile.compiler.runtime import scratch
from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from nbcompile.compiler.runtime.cache import DiskCache, key
from nbcompile.errors import ToolchainError

_FLAGS = ("-fno-strict-aliasing",)
_building = threading.Lock()


def _in_a_forked_child() -> None:
    """What another thread held as the process was forked nobody gives back in the child."""
    global _building
    _building = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_forked_child)

Bound = Callable[[tuple[Any, ...]], Callable[..., None]]
"""What makes a built-in function of the tuple that is its ``self``."""


def loaded(source: Path, method: str) -> Bound | None:
    """The built-in function that ``source`` defines as ``method``; None where there is no C compiler, or
    where what it built cannot be loaded."""
    if sys.implementation.name != "cpython" or struct.calcsize("P") != 8:
        return None
    try:
        with _building:  # by one thread; the next finds it in the cache
            library = scratch.opened(_library(source))
        defined = ctypes.addressof(ctypes.c_char.in_dll(library, method))
    except (ToolchainError, OSError, ValueError):
        return None
    make = ctypes.pythonapi["PyCFunction_NewEx"]  # a prototype of our own: others may set theirs
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)

    def bound(state: tuple[Any, ...]) -> Callable[..., None]:
        function: Callable[..., None] = make(defined, state, None)
        return function

    return bound


def _library(source: Path) -> Path:
    text = source.read_text(encoding="utf-8")
    toolchain = find_toolchain()
    cache = DiskCache.shared()
    file = f"{source.stem}.so"
    name = key("native", text, toolchain.fingerprint, _FLAGS)
    entry = cache.get(name)
    if entry is None:
        with scratch.temporary() as folder:
            out = folder / file
            toolchain.compile(text, out, extra=_FLAGS)
            entry = cache.put(name, {file: out.read_bytes()})
    if entry is None:
        raise ToolchainError("no folder to load it from.")
    return entry.path(file)
