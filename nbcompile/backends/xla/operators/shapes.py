"""Views, and what puts tensors together: no arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from nbcompile.backends.xla.registry import Traced, lowers
from nbcompile.errors import LoweringError

Array = Any


@lowers("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy", "_reshape_copy")
def view(out: Traced, x: Array, size: Sequence[int], *strides: Any) -> Array:
    return jnp.reshape(x, resolved(x, size))


def resolved(x: Array, size: Sequence[int]) -> tuple[int, ...]:
    """The extents with -1 worked out."""
    known = math.prod(extent for extent in size if extent != -1)
    return tuple(x.size // max(known, 1) if extent == -1 else extent for extent in size)


@lowers("permute", "permute_copy")
def permute(out: Traced, x: Array, dims: Sequence[int]) -> Array:
    return jnp.transpose(x, [dim % x.ndim for dim in dims]) if x.ndim else x


@lowers("t", "numpy_T")
def t(out: Traced, x: Array) -> Array:
    return x.T


@lowers("transpose.int")
def transpose(out: Traced, x: Array, first: int, second: int) -> Array:
    return jnp.swapaxes(x, first, second) if x.ndim else x


@lowers("expand", "expand_copy")
def expand(out: Traced, x: Array, size: Sequence[int], implicit: bool = False) -> Array:
    lead = len(size) - x.ndim
    shape = [x.shape[n - lead] if extent == -1 else extent for n, extent in enumerate(size)]
    return jnp.broadcast_to(x, shape)


@lowers("unsqueeze", "unsqueeze_copy")
def unsqueeze(out: Traced, x: Array, dim: int) -> Array:
    return jnp.expand_dims(x, dim)


@lowers("squeeze", "squeeze.dim", "squeeze.dims", "squeeze_copy.dims")
def squeeze(out: Traced, x: Array, dim: Any = None) -> Array:
    named = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {axis % max(x.ndim, 1) for axis in named}
    return jnp.squeeze(x, tuple(axis for axis in sorted(gone) if x.ndim and x.shape[axis] == 1))


@lowers("slice.Tensor", "slice_copy.Tensor")
def slice_(
    out: Traced, x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    first, last, step = slice(start, end, step).indices(x.shape[dim])
    return lax.slice_in_dim(x, first, max(first, last), step, axis=dim)


@lowers("slice_scatter")
def slice_scatter(
    out: Traced, x: Array, source: Array, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Array:  # fmt: skip
    return x.at[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)].set(source.astype(x.dtype))


@lowers("select.int", "select_copy.int")
def select(out: Traced, x: Array, dim: int, index: int) -> Array:
    return lax.index_in_dim(x, index % x.shape[dim], dim, keepdims=False)


@lowers("select_scatter")
def select_scatter(out: Traced, x: Array, source: Array, dim: int, index: int) -> Array:
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].set(source.astype(x.dtype))


@lowers("narrow")
def narrow(out: Traced, x: Array, dim: int, start: int, length: int) -> Array:
    return lax.slice_in_dim(x, start, start + length, axis=dim)


@lowers("diagonal", "diagonal_copy")
def diagonal(out: Traced, x: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    return jnp.diagonal(x, offset, dim1, dim2)


@lowers("cat")
def cat(out: Traced, tensors: Sequence[Array], dim: int = 0) -> Array:
    # torch lets empty vectors be joined to anything
    parts = [x.astype(out.dtype) for x in tensors if x.shape != (0,)] or [tensors[0].astype(out.dtype)]
    return jnp.concatenate(parts, dim)


@lowers("stack")
def stack(out: Traced, tensors: Sequence[Array], dim: int = 0) -> Array:
    return jnp.stack([x.astype(out.dtype) for x in tensors], dim)


@lowers("split_with_sizes", "split_with_sizes_copy")
def split_with_sizes(out: Traced, x: Array, sizes: Sequence[int], dim: int = 0) -> tuple[Array, ...]:
    pieces, start = [], 0
    for size in sizes:
        pieces.append(lax.slice_in_dim(x, start, start + size, axis=dim))
        start += size
    return tuple(pieces)


@lowers("split.Tensor")
def split(out: Traced, x: Array, size: int, dim: int = 0) -> tuple[Array, ...]:
    extent = x.shape[dim]
    sizes = [min(size, extent - start) for start in range(0, extent, size)] or [0]
    return split_with_sizes(out, x, sizes, dim)


@lowers("unbind.int")
def unbind(out: Traced, x: Array, dim: int = 0) -> tuple[Array, ...]:
    return tuple(lax.index_in_dim(x, n, dim, keepdims=False) for n in range(x.shape[dim]))


@lowers("repeat")
def repeat(out: Traced, x: Array, repeats: Sequence[int]) -> Array:
    return jnp.tile(x, tuple(repeats)) if repeats else x


@lowers("flip")
def flip(out: Traced, x: Array, dims: Sequence[int]) -> Array:
    return jnp.flip(x, tuple(dims)) if x.ndim else x


@lowers("roll")
def roll(out: Traced, x: Array, shifts: Sequence[int], dims: Sequence[int] = ()) -> Array:
    return jnp.roll(x, tuple(shifts), tuple(dims)) if dims else jnp.roll(x, shifts[0])


@lowers("tril")
def tril(out: Traced, x: Array, diagonal: int = 0) -> Array:
    return jnp.tril(x, diagonal)


@lowers("triu")
def triu(out: Traced, x: Array, diagonal: int = 0) -> Array:
    return jnp.triu(x, diagonal)


@lowers("constant_pad_nd")
def constant_pad_nd(out: Traced, x: Array, pad: Sequence[int], value: Any = 0) -> Array:
    widths = [(0, 0, 0)] * x.ndim
    for n in range(len(pad) // 2):
        widths[x.ndim - 1 - n] = (pad[2 * n], pad[2 * n + 1], 0)
    return lax.pad(x, jnp.asarray(value, x.dtype), widths)


@lowers("as_strided", "as_strided_copy")
def as_strided(
    out: Traced, x: Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Array:
    """Of a tensor whose memory is all there and in order, by the places of its elements."""
    source = out.args[0]
    if not source.is_contiguous() or source.storage_offset():
        raise LoweringError("as_strided of a tensor that is not contiguous")
    places = jnp.asarray(storage_offset or 0)
    for extent, step in zip(size, stride, strict=True):
        places = places[..., None] + jnp.arange(extent) * step
    return jnp.ravel(x)[places]
