"""Tensors made from nothing. What ``empty`` holds is anybody's guess: zeros here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from nbcompile.backends.xla.registry import Traced, lowers

Array = Any


@lowers("full")
def full(out: Traced, size: Sequence[int], value: Any, **options: Any) -> Array:
    return jnp.full(tuple(size), value, out.dtype)


@lowers("full_like")
def full_like(out: Traced, x: Array, value: Any, **options: Any) -> Array:
    return jnp.full(x.shape, value, out.dtype)


@lowers("empty.memory_format", "zeros", "empty_strided", "empty_permuted")
def zeros(out: Traced, size: Sequence[int], *order: Any, **options: Any) -> Array:
    return jnp.zeros(tuple(size), out.dtype)


@lowers("ones")
def ones(out: Traced, size: Sequence[int], **options: Any) -> Array:
    return jnp.ones(tuple(size), out.dtype)


@lowers("empty_like", "zeros_like")
def zeros_like(out: Traced, x: Array, **options: Any) -> Array:
    return jnp.zeros(x.shape, out.dtype)


@lowers("ones_like")
def ones_like(out: Traced, x: Array, **options: Any) -> Array:
    return jnp.ones(x.shape, out.dtype)


@lowers("new_zeros", "new_empty", "new_empty_strided")
def new_zeros(out: Traced, x: Array, size: Sequence[int], *strides: Any, **options: Any) -> Array:
    return jnp.zeros(tuple(size), out.dtype)


@lowers("new_ones")
def new_ones(out: Traced, x: Array, size: Sequence[int], **options: Any) -> Array:
    return jnp.ones(tuple(size), out.dtype)


@lowers("new_full")
def new_full(out: Traced, x: Array, size: Sequence[int], value: Any, **options: Any) -> Array:
    return jnp.full(tuple(size), value, out.dtype)


@lowers("scalar_tensor")
def scalar_tensor(out: Traced, value: Any, **options: Any) -> Array:
    return jnp.asarray(value, out.dtype)


@lowers("arange")
def arange_to(out: Traced, end: Any, **options: Any) -> Array:
    return arange(out, 0, end)


@lowers("arange.start", "arange.start_step")
def arange(out: Traced, start: Any, end: Any, step: Any = 1, **options: Any) -> Array:
    count = max(0, math.ceil((end - start) / step))
    return iota(out, count, start=start, step=step)


@lowers("eye")
def eye(out: Traced, rows: int, **options: Any) -> Array:
    return jnp.eye(rows, dtype=out.dtype)


@lowers("eye.m")
def eye_of(out: Traced, rows: int, columns: int, **options: Any) -> Array:
    return jnp.eye(rows, columns, dtype=out.dtype)


@lowers("prims.iota")
def iota(out: Traced, length: int, *, start: Any, step: Any, **options: Any) -> Array:
    """``start``, ``start + step``, ..., worked out in 64 bits, as ATen does."""
    wide = "float64" if "float" in out.dtype else "int64"
    places = jnp.arange(length, dtype=wide)
    return places * jnp.asarray(step, wide) + jnp.asarray(start, wide)
