"""Reductions, scans, and what sorts."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from nbcompile.backends.xla.operators.pointwise import computed
from nbcompile.backends.xla.registry import Traced, lowers

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


@lowers("sum", "sum.dim_IntList")
def total(out: Traced, x: Array, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Array:
    return jnp.sum(computed(out, x), axes(x, dim), keepdims=keepdim)


@lowers("mean", "mean.dim")
def mean(out: Traced, x: Array, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Array:
    return jnp.mean(computed(out, x), axes(x, dim), keepdims=keepdim)


@lowers("prod")
def product(out: Traced, x: Array, dtype: Any = None) -> Array:
    return jnp.prod(computed(out, x))


@lowers("prod.dim_int")
def product_along(out: Traced, x: Array, dim: int, keepdim: bool = False, dtype: Any = None) -> Array:
    return jnp.prod(computed(out, x), axes(x, dim), keepdims=keepdim)


@lowers("amax")
def amax(out: Traced, x: Array, dim: Dims = (), keepdim: bool = False) -> Array:
    return jnp.max(x, axes(x, dim), keepdims=keepdim)


@lowers("amin")
def amin(out: Traced, x: Array, dim: Dims = (), keepdim: bool = False) -> Array:
    return jnp.min(x, axes(x, dim), keepdims=keepdim)


@lowers("max", "max.default")
def largest(out: Traced, x: Array) -> Array:
    return jnp.max(x)


@lowers("min", "min.default")
def smallest(out: Traced, x: Array) -> Array:
    return jnp.min(x)


@lowers("max.dim")
def max_along(out: Traced, x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    return jnp.max(x, axes(x, dim), keepdims=keepdim), argmax(out, x, dim, keepdim)


@lowers("min.dim")
def min_along(out: Traced, x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    return jnp.min(x, axes(x, dim), keepdims=keepdim), argmin(out, x, dim, keepdim)


@lowers("argmax")
def argmax(out: Traced, x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    return _place(jnp.argmax, x, dim, keepdim)


@lowers("argmin")
def argmin(out: Traced, x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    return _place(jnp.argmin, x, dim, keepdim)


def _place(function: Any, x: Array, dim: int | None, keepdim: bool) -> Array:
    if not x.ndim:
        return jnp.zeros((), "int64")
    return function(x, axis=dim, keepdims=keepdim).astype("int64")


@lowers("any", "any.dim", "any.dims")
def any_of(out: Traced, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    return jnp.any(x, axes(x, dim), keepdims=keepdim)


@lowers("all", "all.dim", "all.dims")
def all_of(out: Traced, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    return jnp.all(x, axes(x, dim), keepdims=keepdim)


@lowers("var.correction")
def variance(
    out: Traced, x: Array, dim: Dims = None, correction: float | None = None, keepdim: bool = False
) -> Array:
    return variance_and_mean(out, x, dim, correction, keepdim)[0]


@lowers("prims.var")
def prims_variance(out: Traced, x: Array, dims: Dims, correction: float | None = 1, **options: Any) -> Array:
    return variance_and_mean(out, x, dims, correction)[0] if dims else jnp.zeros_like(x)


@lowers("var_mean.correction")
def variance_and_mean(
    out: Traced, x: Array, dim: Dims = None, correction: float | None = None, keepdim: bool = False
) -> tuple[Array, Array]:
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


@lowers("cumsum")
def cumsum(out: Traced, x: Array, dim: int, dtype: Any = None) -> Array:
    return _scan(lax.cumsum, computed(out, x), dim)


@lowers("cumprod")
def cumprod(out: Traced, x: Array, dim: int, dtype: Any = None) -> Array:
    return _scan(lax.cumprod, computed(out, x), dim)


@lowers("logcumsumexp")
def logcumsumexp(out: Traced, x: Array, dim: int) -> Array:
    return _scan(lax.cumlogsumexp, computed(out, x), dim)


def _scan(function: Any, x: Array, dim: int) -> Array:
    return function(x, dim % x.ndim) if x.ndim and x.size else x


@lowers("sort")
def sort(out: Traced, x: Array, dim: int = -1, descending: bool = False) -> tuple[Array, Array]:
    return sorted_along(x, dim, descending)


@lowers("sort.stable")
def sort_stable(
    out: Traced, x: Array, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Array, Array]:
    return sorted_along(x, dim, descending)


@lowers("argsort.stable")
def argsort(out: Traced, x: Array, stable: bool = True, dim: int = -1, descending: bool = False) -> Array:
    return sorted_along(x, dim, descending)[1]


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
    values, places = sorted_along(x, dim, largest)
    if not x.ndim:
        return values, places
    return lax.slice_in_dim(values, 0, k, axis=dim), lax.slice_in_dim(places, 0, k, axis=dim)


@lowers("kthvalue")
def kthvalue(out: Traced, x: Array, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
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
    last = right or side == "right"
    if sorter is not None:
        sequence = jnp.take_along_axis(sequence, sorter, -1)
    compare = jnp.less_equal if last else jnp.less
    return jnp.sum(compare(sequence[..., None, :], x[..., :, None]), -1)


@lowers("bucketize.Tensor")
def bucketize(
    out: Traced, x: Array, boundaries: Array, *, out_int32: bool = False, right: bool = False
) -> Array:
    return jnp.searchsorted(boundaries, x, side="right" if right else "left")
