"""Tensors made from nothing. What ``empty`` holds is anybody's guess: zeros here."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from nbcompile.backends.xla.registry import Traced, lower_each, lowers

Array = Any


@lowers("arange.start", "arange.start_step")
def arange(out: Traced, start: Any, end: Any, step: Any = 1, **options: Any) -> Array:
    """``start``, ``start + step``, ... below ``end``."""
    return iota(out, max(0, math.ceil((end - start) / step)), start=start, step=step)


@lowers("prims.iota")
def iota(out: Traced, length: int, *, start: Any, step: Any, **options: Any) -> Array:
    """``start``, ``start + step``, ..., worked out in 64 bits, as ATen does."""
    wide = "float64" if "float" in out.dtype else "int64"
    places = jnp.arange(length, dtype=wide)
    return places * jnp.asarray(step, wide) + jnp.asarray(start, wide)


lower_each(
    {
        "arange": lambda out, end, **_: arange(out, 0, end),
        "empty.memory_format zeros empty_strided empty_permuted": (
            lambda out, size, *order, **_: jnp.zeros(tuple(size), out.dtype)
        ),
        "empty_like zeros_like": lambda out, x, **_: jnp.zeros(x.shape, out.dtype),
        "eye": lambda out, rows, **_: jnp.eye(rows, dtype=out.dtype),
        "eye.m": lambda out, rows, columns, **_: jnp.eye(rows, columns, dtype=out.dtype),
        "full": lambda out, size, value, **_: jnp.full(tuple(size), value, out.dtype),
        "full_like": lambda out, x, value, **_: jnp.full(x.shape, value, out.dtype),
        "new_full": lambda out, x, size, value, **_: jnp.full(tuple(size), value, out.dtype),
        "new_ones": lambda out, x, size, **_: jnp.ones(tuple(size), out.dtype),
        "new_zeros new_empty new_empty_strided": (
            lambda out, x, size, *strides, **_: jnp.zeros(tuple(size), out.dtype)
        ),
        "ones": lambda out, size, **_: jnp.ones(tuple(size), out.dtype),
        "ones_like": lambda out, x, **_: jnp.ones(x.shape, out.dtype),
        "scalar_tensor": lambda out, value, **_: jnp.asarray(value, out.dtype),
    }
)
