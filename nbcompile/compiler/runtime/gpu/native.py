"""The launcher in C, of ``launch.c``."""

from __future__ import annotations

import functools
from pathlib import Path

from nbcompile.compiler.runtime import native

KINDS = {
    "i1": 1, "i8": 1, "i16": 2, "i32": 3, "i64": 4, "u1": 5, "u8": 5, "u16": 6, "u32": 7, "u64": 8,
    "fp32": 9, "f32": 9, "fp64": 10,
}  # fmt: skip
"""The kinds of run-time arguments by Triton's type, as numbered in ``launch.c``."""
POINTER = 0
DIVISOR = 4
"""The bit of a kind from which it holds the power of two less 1 that the argument is a multiple of."""
MOST_ARGUMENTS = 256


@functools.cache
def native_launcher() -> native.Bound | None:
    """What makes a built-in function of the tuple described in ``launch.c``; None as of
    :func:`native.loaded` (launching then goes through Python)."""
    return native.loaded(Path(__file__).with_name("launch.c"), "nbcompile_launch")
