"""Views, and what puts tensors together: no arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from nbcompile.backends.xla.registry import Traced, lower_each, lowers
from nbcompile.errors import LoweringError

Array = Any


def resolved(x: Array, size: Sequence[int]) -> tuple[int, ...]:
    """The extents with -1 worked out."""
    known = math.prod(extent for extent in size if extent != -1)
    return tuple(x.size // max(known, 1) if extent == -1 else extent for extent in size)


@lowers("expand", "expand_copy")
def expand(out: Traced, x: Array, size: Sequence[int], implicit: bool = False) -> Array:
    """``x`` repeated along axes of extent 1, and along new ones in front."""
    lead = len(size) - x.ndim
    shape = [x.shape[n - lead] if extent == -1 else extent for n, extent in enumerate(size)]
    return jnp.broadcast_to(x, shape)


@lowers("squeeze", "squeeze.dim", "squeeze.dims", "squeeze_copy.dims")
def squeeze(out: Traced, x: Array, dim: Any = None) -> Array:
    """Without the axes of extent 1, all or those named."""
    named = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {axis % max(x.ndim, 1) for axis in named}
    return jnp.squeeze(x, tuple(axis for axis in sorted(gone) if x.ndim and x.shape[axis] == 1))


@lowers("slice.Tensor", "slice_copy.Tensor")
def slice_(
    out: Traced, x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    """``x[start:end:step]`` along ``dim``."""
    first, last, step = slice(start, end, step).indices(x.shape[dim])
    return lax.slice_in_dim(x, first, max(first, last), step, axis=dim)


@lowers("cat")
def cat(out: Traced, tensors: Sequence[Array], dim: int = 0) -> Array:
    # torch lets empty vectors be joined to anything
    """Tensors one behind the other, in the dtype of the result."""
    parts = [x.astype(out.dtype) for x in tensors if x.shape != (0,)] or [tensors[0].astype(out.dtype)]
    return jnp.concatenate(parts, dim)


@lowers("split_with_sizes", "split_with_sizes_copy")
def split_with_sizes(out: Traced, x: Array, sizes: Sequence[int], dim: int = 0) -> tuple[Array, ...]:
    """Pieces of these extents along ``dim``."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append(lax.slice_in_dim(x, start, start + size, axis=dim))
        start += size
    return tuple(pieces)


@lowers("split.Tensor")
def split(out: Traced, x: Array, size: int, dim: int = 0) -> tuple[Array, ...]:
    """Pieces of ``size`` along ``dim``, the last one of what is left."""
    extent = x.shape[dim]
    sizes = [min(size, extent - start) for start in range(0, extent, size)] or [0]
    return split_with_sizes(out, x, sizes, dim)


@lowers("constant_pad_nd")
def constant_pad_nd(out: Traced, x: Array, pad: Sequence[int], value: Any = 0) -> Array:
    """``value`` around ``x``: pairs of widths, the last axis first; negative ones cut off."""
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


def _at(x: Array, dim: int, place: Any) -> Any:
    """The places ``place`` along ``dim``, to be set."""
    return x.at[(slice(None),) * (dim % x.ndim) + (place,)]


lower_each(
    {
        "diagonal diagonal_copy": lambda out, x, offset=0, dim1=0, dim2=1: jnp.diagonal(
            x, offset, dim1, dim2
        ),
        "flip": lambda out, x, dims: jnp.flip(x, tuple(dims)) if x.ndim else x,
        "narrow": lambda out, x, dim, start, length: lax.slice_in_dim(x, start, start + length, axis=dim),
        "permute permute_copy": (
            lambda out, x, dims: jnp.transpose(x, [dim % x.ndim for dim in dims]) if x.ndim else x
        ),
        "repeat": lambda out, x, repeats: jnp.tile(x, tuple(repeats)) if repeats else x,
        "roll": lambda out, x, shifts, dims=(): (
            jnp.roll(x, tuple(shifts), tuple(dims)) if dims else jnp.roll(x, shifts[0])
        ),
        "select.int select_copy.int": (
            lambda out, x, dim, index: lax.index_in_dim(x, index % x.shape[dim], dim, keepdims=False)
        ),
        "select_scatter": (lambda out, x, source, dim, index: _at(x, dim, index).set(source.astype(x.dtype))),
        "slice_scatter": lambda out, x, source, dim=0, start=None, end=None, step=1: _at(
            x, dim, slice(start, end, step)
        ).set(source.astype(x.dtype)),
        "stack": lambda out, tensors, dim=0: jnp.stack([x.astype(out.dtype) for x in tensors], dim),
        "t numpy_T": lambda out, x: x.T,
        "transpose.int": lambda out, x, first, second: jnp.swapaxes(x, first, second) if x.ndim else x,
        "tril": lambda out, x, diagonal=0: jnp.tril(x, diagonal),
        "triu": lambda out, x, diagonal=0: jnp.triu(x, diagonal),
        "unbind.int": lambda out, x, dim=0: tuple(
            lax.index_in_dim(x, n, dim, keepdims=False) for n in range(x.shape[dim])
        ),
        "unsqueeze unsqueeze_copy": lambda out, x, dim: jnp.expand_dims(x, dim),
        "view reshape _unsafe_view _reshape_alias view_copy _reshape_copy": (
            lambda out, x, size, *strides: jnp.reshape(x, resolved(x, size))
        ),
    }
)
