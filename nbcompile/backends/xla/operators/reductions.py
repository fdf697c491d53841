"""Reductions, scans, and what sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from nbcompile.backends.xla.operators.pointwise import computed
from nbcompile.backends.xla.registry import Traced, lower_each, lowers

Array = Any
Dims = Any


def axes(x: Array, dim: Dims) -> tuple[int, ...]:
    """The axes that ``dim`` names, none below zero: all of them for None and for an empty list."""
    named = (dim,) if isinstance(dim, int) else tuple(dim or ())
    return tuple(axis % max(x.ndim, 1) for axis in named if x.ndim) if named else tuple(range(x.ndim))


def extreme(dtype: Any, *, lowest: bool) -> Array:
    """The value below, or above, every other of a dtype."""
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.asarray(-jnp.inf if lowest else jnp.inf, dtype)
    info = jnp.iinfo(dtype)  # type: ignore[no-untyped-call]
    return jnp.asarray(info.min if lowest else info.max, dtype)


def _reduction(function: Any, *, wide: bool = False) -> Callable[..., Array]:
    """``function(x, axes, keepdims=...)``; ``wide``: in the dtype that ATen computes in."""

    def lower(out: Traced, x: Array, dim: Dims = None, keepdim: bool = False, **options: Any) -> Array:
        return function(computed(out, x) if wide else x, axes(x, dim), keepdims=keepdim)

    return lower


def _extremum(function: Any, place: Any) -> Callable[..., tuple[Array, Array]]:
    """The largest, or smallest, along a dimension, and where it is."""

    def lower(out: Traced, x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        return function(x, axes(x, dim), keepdims=keepdim), _place(place, x, dim, keepdim)

    return lower


def _place(function: Any, x: Array, dim: int | None, keepdim: bool) -> Array:
    if not x.ndim:
        return jnp.zeros((), "int64")
    return function(x, axis=dim, keepdims=keepdim).astype("int64")


@lowers("var_mean.correction")
def variance_and_mean(
    out: Traced, x: Array, dim: Dims = None, correction: float | None = None, keepdim: bool = False
) -> tuple[Array, Array]:
    """Variance and mean over some or all axes; ``correction`` is 1 where none is given."""
    wide = computed(out, x) if not jnp.iscomplexobj(x) else x
    over = axes(x, dim)
    count = 1
    for axis in over:
        count *= x.shape[axis]
    middle = jnp.mean(wide, over, keepdims=True)
    apart = jnp.sum(jnp.square(jnp.abs(wide - middle)), over, keepdims=keepdim)
    free = max(0.0, count - (1.0 if correction is None else float(correction)))
    found = apart / jnp.asarray(free, apart.dtype)
    return found, middle if keepdim else jnp.squeeze(middle, over)


def _scan(function: Any, x: Array, dim: int) -> Array:
    return function(x, dim % x.ndim) if x.ndim and x.size else x


def sorted_along(x: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    """Values and places in stable order; NaN counts as the largest."""
    if not x.ndim:
        return x, jnp.zeros((), "int64")
    dim %= x.ndim
    turned = jnp.flip(x, dim) if descending else x
    places = jnp.argsort(turned, axis=dim, stable=True).astype("int64")
    if descending:
        # stable in the order of x: sort it backwards, and read both backwards
        places = x.shape[dim] - 1 - jnp.flip(places, dim)
    return jnp.take_along_axis(x, places, dim), places


@lowers("topk")
def topk(
    out: Traced, x: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Array, Array]:
    """The ``k`` largest, or smallest, and their places (int64), in order."""
    values, places = sorted_along(x, dim, largest)
    if not x.ndim:
        return values, places
    return lax.slice_in_dim(values, 0, k, axis=dim), lax.slice_in_dim(places, 0, k, axis=dim)


@lowers("kthvalue")
def kthvalue(out: Traced, x: Array, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    """The ``k``-th smallest, from 1, and its place (int64)."""
    values, places = sorted_along(x, dim, False)
    if not x.ndim:
        return values, places
    picked = [lax.slice_in_dim(each, k - 1, k, axis=dim) for each in (values, places)]
    return tuple(each if keepdim else jnp.squeeze(each, dim) for each in picked)  # type: ignore[return-value]


@lowers("searchsorted.Tensor")
def searchsorted(
    out: Traced, sequence: Array, x: Array, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Array = None,
) -> Array:  # fmt: skip
    """For each of ``x`` how many of its row of ``sequence``, in order, are smaller (int64)."""
    last = right or side == "right"
    if sorter is not None:
        sequence = jnp.take_along_axis(sequence, sorter, -1)
    compare = jnp.less_equal if last else jnp.less
    return jnp.sum(compare(sequence[..., None, :], x[..., :, None]), -1)


lower_each(
    {
        "all all.dim all.dims": _reduction(jnp.all),
        "amax max max.default": _reduction(jnp.max),
        "amin min min.default": _reduction(jnp.min),
        "any any.dim any.dims": _reduction(jnp.any),
        "argmax": lambda out, x, dim=None, keepdim=False: _place(jnp.argmax, x, dim, keepdim),
        "argmin": lambda out, x, dim=None, keepdim=False: _place(jnp.argmin, x, dim, keepdim),
        "argsort.stable": (
            lambda out, x, stable=True, dim=-1, descending=False: sorted_along(x, dim, descending)[1]
        ),
        "bucketize.Tensor": lambda out, x, boundaries, *, out_int32=False, right=False: jnp.searchsorted(
            boundaries, x, side="right" if right else "left"
        ),
        "cumprod": lambda out, x, dim, **_: _scan(lax.cumprod, computed(out, x), dim),
        "cumsum": lambda out, x, dim, **_: _scan(lax.cumsum, computed(out, x), dim),
        "logcumsumexp": lambda out, x, dim: _scan(lax.cumlogsumexp, computed(out, x), dim),
        "max.dim": _extremum(jnp.max, jnp.argmax),
        "mean mean.dim": _reduction(jnp.mean, wide=True),
        "min.dim": _extremum(jnp.min, jnp.argmin),
        "prims.var": lambda out, x, dims, correction=1, **_: (
            variance_and_mean(out, x, dims, correction)[0] if dims else jnp.zeros_like(x)
        ),
        "prod prod.dim_int": _reduction(jnp.prod, wide=True),
        "sort": lambda out, x, dim=-1, descending=False: sorted_along(x, dim, descending),
        "sort.stable": (
            lambda out, x, stable=None, dim=-1, descending=False: sorted_along(x, dim, descending)
        ),
        "sum sum.dim_IntList": _reduction(jnp.sum, wide=True),
        "var.correction": lambda out, *args, **options: variance_and_mean(out, *args, **options)[0],
    }
)
