"""Pooling over images, by windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from nbcompile.backends.xla.operators.reductions import extreme
from nbcompile.backends.xla.registry import Traced, lower_each, lowers
from nbcompile.errors import LoweringError

Array = Any


@lowers("max_pool2d_with_indices")
def max_pool2d_with_indices(
    out: Traced, x: Array, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    """The largest of each window, and where in the image it is (int64)."""
    height, width = x.shape[-2:]
    kernel, padding, dilation = _pair(kernel), _pair(padding), _pair(dilation)
    stride = _pair(stride) if stride else kernel
    places = jnp.broadcast_to(jnp.arange(height * width).reshape(height, width), x.shape)
    lead = (1,) * (x.ndim - 2)
    pads = [(0, 0)] * len(lead)
    for axis in range(2):
        made = out.tensor.shape[x.ndim - 2 + axis]
        reach = (made - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1
        pads.append((padding[axis], reach - x.shape[x.ndim - 2 + axis] - padding[axis]))
    made = lax.reduce_window(
        (x, places), (extreme(x.dtype, lowest=True), jnp.asarray(height * width)), _larger,
        (*lead, *kernel), (*lead, *stride), pads, window_dilation=(*lead, *dilation),
    )  # fmt: skip
    return made[0], made[1]


def _larger(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    """The larger value with its place. NaN is the largest; of equals the first counts, of NaN the last."""
    (x, at), (y, there) = first, second
    if jnp.issubdtype(x.dtype, jnp.floating):
        nan_x, nan_y = jnp.isnan(x), jnp.isnan(y)
    else:
        nan_x = nan_y = jnp.zeros(jnp.shape(x), bool)
    of_numbers = (x > y) | ((x == y) & (at < there))
    keep = jnp.where(nan_x & nan_y, at > there, jnp.where(nan_x | nan_y, nan_x, of_numbers))
    return jnp.where(keep, x, y), jnp.where(keep, at, there)


def _averaged(
    x: Array, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Array:  # fmt: skip
    if ceil_mode:
        raise LoweringError("avg_pool2d with ceil_mode")
    kernel, padding = _pair(kernel), _pair(padding)
    stride = _pair(stride) if stride else kernel
    lead = (1,) * (x.ndim - 2)
    pads = [(0, 0)] * len(lead) + [(p, p) for p in padding]

    def summed(values: Array) -> Array:
        return lax.reduce_window(values, 0.0, lax.add, (*lead, *kernel), (*lead, *stride), pads)

    wide = x.astype(jnp.promote_types(x.dtype, "float32"))
    if divisor_override:
        made = summed(wide) / divisor_override
    elif count_include_pad:
        made = summed(wide) / (kernel[0] * kernel[1])
    else:
        made = summed(wide) / summed(jnp.ones_like(wide))
    return made.astype(x.dtype)


def _adapted(x: Array, size: Sequence[int]) -> Array:
    """Means of the rectangles that ATen cuts: from ``i * n // size`` up to ``(i + 1) * n / size``."""
    wide = x.astype(jnp.promote_types(x.dtype, "float32"))
    for axis, wanted in zip((x.ndim - 2, x.ndim - 1), size, strict=True):
        extent = wide.shape[axis]
        parts = [
            jnp.mean(
                lax.slice_in_dim(wide, n * extent // wanted, -(-(n + 1) * extent // wanted), axis=axis), axis
            )
            for n in range(wanted)
        ]
        wide = jnp.stack(parts, axis)
    return wide.astype(x.dtype)


def _pair(values: int | Sequence[int]) -> tuple[int, int]:
    return (values, values) if isinstance(values, int) else (values[0], values[-1])


def _pulled_back(function: Callable[..., Array], grad: Array, x: Array, *args: Any) -> Array:
    """The gradient of ``x`` where ``grad`` is that of ``function(x, *args)``."""
    return jax.vjp(lambda x: function(x, *args), x)[1](grad.astype(x.dtype))[0]


lower_each(
    {
        "_adaptive_avg_pool2d": lambda out, x, size: _adapted(x, size),
        "_adaptive_avg_pool2d_backward": (
            lambda out, grad, x: _pulled_back(_adapted, grad, x, grad.shape[-2:])
        ),
        "avg_pool2d": lambda out, *args, **options: _averaged(*args, **options),
        "avg_pool2d_backward": lambda out, grad, x, *args: _pulled_back(_averaged, grad, x, *args),
    }
)
