"""Gathers and scatters. An index out of range, which torch refuses, is moved to the nearest row by XLA's
gather, and dropped by its scatter: it has no way to raise an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from nbcompile.backends.xla.operators.reductions import extreme
from nbcompile.backends.xla.registry import Traced, lower_each, lowers
from nbcompile.errors import LoweringError

Array = Any


@lowers("gather")
def gather(out: Traced, x: Array, dim: int, index: Array, sparse_grad: bool = False) -> Array:
    """The elements of ``x`` at ``index`` along ``dim``; of the shape of ``index``."""
    if not x.ndim:
        return jnp.broadcast_to(x, index.shape)
    if not index.ndim:
        return x.at[index].get(mode="clip")
    return x.at[_along(x, dim, index)].get(mode="clip")


@lowers("index_put", "_unsafe_index_put")
def index_put(
    out: Traced, x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False
) -> Array:
    """``x`` with ``values`` written, or added, where ``indices``, one a dimension, or a mask say."""
    values = values.astype(x.dtype)
    masks = [each for each in indices if each is not None]
    if len(masks) == 1 and masks[0].dtype == bool and not values.size > 1:
        before = next(n for n, each in enumerate(indices) if each is not None)
        mask = masks[0].reshape((1,) * before + masks[0].shape + (1,) * (x.ndim - before - masks[0].ndim))
        value = values.reshape(())
        return jnp.where(mask, x + value if accumulate else value, x)
    at = x.at[_places(x, indices)]
    return at.add(values, mode="drop") if accumulate else at.set(values, mode="drop")


def _places(x: Array, indices: Sequence[Array | None]) -> tuple[Any, ...]:
    if any(each is not None and each.dtype in (bool, "uint8") for each in indices):
        raise LoweringError("the number of elements that a mask picks depends on its values")
    return tuple(slice(None) if each is None else each for each in indices)


def _along(x: Array, dim: int, index: Array) -> tuple[Array, ...]:
    """The full index of each element of ``index``, which stands for its place along ``dim``."""
    grids = list(jnp.meshgrid(*(jnp.arange(n) for n in index.shape), indexing="ij", sparse=True))
    grids[dim % x.ndim] = index
    return tuple(grids)


def _into(x: Array, dim: int, index: Array, source: Any, how: str) -> Array:
    if not x.ndim:
        x, index, source = x[None], jnp.reshape(index, (-1,)), jnp.reshape(source, (-1,))
        return _into(x, 0, index, source, how)[0]
    index = jnp.atleast_1d(index)
    at = x.at[_along(x, dim, index)]
    source = jnp.asarray(source, x.dtype)
    if source.ndim:
        source = source[tuple(slice(0, n) for n in index.shape)]
    return getattr(at, how)(source, mode="drop")


@lowers("scatter_reduce.two")
def scatter_reduce(
    out: Traced, x: Array, dim: int, index: Array, source: Array, reduce: str, *, include_self: bool = True
) -> Array:
    """``x`` with ``source`` put in at ``index`` along ``dim``; what meets is reduced."""
    how = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "max", "amin": "min"}[reduce]
    start = x
    if not include_self:
        start = _into(x, dim, index, jnp.broadcast_to(_neutral(x, how), index.shape), "set")
    made = _into(start, dim, index, source, how)
    if reduce != "mean":
        return made
    ones = jnp.ones_like(x) if include_self else jnp.zeros_like(x)
    count = jnp.maximum(_into(ones, dim, index, jnp.ones(index.shape, x.dtype), "add"), 1)
    return made / count if jnp.issubdtype(x.dtype, jnp.inexact) else made // count


def _neutral(x: Array, how: str) -> Array:
    if how in ("add", "multiply"):
        return jnp.asarray(how == "multiply", x.dtype)
    return extreme(x.dtype, lowest=how == "max")


@lowers("index_add")
def index_add(out: Traced, x: Array, dim: int, index: Array, source: Array, *, alpha: Any = 1) -> Array:
    """``x`` with the slices of ``source``, times ``alpha``, added at ``index`` along ``dim``."""
    if not x.ndim:
        return x + source.reshape(()) * jnp.asarray(alpha, x.dtype)
    where = (slice(None),) * (dim % x.ndim) + (jnp.atleast_1d(index),)
    return x.at[where].add(source * jnp.asarray(alpha, x.dtype), mode="drop")


@lowers("embedding_dense_backward")
def embedding_dense_backward(
    out: Traced, grad: Array, indices: Array, count: int, padding: int, by_frequency: bool
) -> Array:
    """The gradient of the table: each row of ``grad`` added to the row it was read from."""
    if by_frequency:
        raise LoweringError("gradients scaled by the frequency of their index")
    rows = grad.reshape(-1, grad.shape[-1]).astype(out.compute)
    flat = indices.reshape(-1)
    rows = jnp.where((flat == padding)[:, None], 0, rows)
    return jnp.zeros((count, grad.shape[-1]), rows.dtype).at[flat].add(rows, mode="drop")


lower_each(
    {
        "embedding": lambda out, weight, indices, *_: jnp.take(weight, indices, axis=0, mode="clip"),
        "index.Tensor _unsafe_index.Tensor": (
            lambda out, x, indices: x.at[_places(x, indices)].get(mode="clip")
        ),
        "index_select": lambda out, x, dim, index: (
            jnp.take(x, jnp.atleast_1d(index), axis=dim, mode="clip") if x.ndim else x
        ),
        "scatter.src scatter.value": lambda out, x, dim, index, source: _into(x, dim, index, source, "set"),
        "scatter.reduce scatter.value_reduce": (
            lambda out, x, dim, index, source, *, reduce: _into(x, dim, index, source, reduce)
        ),
        "scatter_add": lambda out, x, dim, index, source: _into(x, dim, index, source, "add"),
    }
)
