"""Matrix products and convolutions. Half types are added up in float32, as ATen's libraries do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from nbcompile import tf32
from nbcompile.backends.xla.registry import Traced, lowers

Array = Any


def matmul(x: Array, y: Array) -> Array:
    """``x @ y``, float32 as precise as torch is told to be."""
    wide = jnp.float32 if x.dtype in (jnp.float16, jnp.bfloat16) else x.dtype
    exact = tf32.products() == "highest"
    return jnp.matmul(x, y, precision=_precision(exact), preferred_element_type=wide)


def _precision(exact: bool) -> lax.Precision:
    return lax.Precision.HIGHEST if exact else lax.Precision.DEFAULT


@lowers("addmm", "baddbmm", "addmv")
def addmm(out: Traced, bias: Array, x: Array, y: Array, *, beta: Any = 1, alpha: Any = 1) -> Array:
    """``beta * bias + alpha * (x @ y)``."""
    made = matmul(x, y)
    made = made if alpha == 1 else made * jnp.asarray(alpha, made.dtype)
    if beta == 0:
        return jnp.broadcast_to(made, out.tensor.shape)  # not even NaN in the bias counts
    bias = bias.astype(made.dtype)
    return made + (bias if beta == 1 else bias * jnp.asarray(beta, made.dtype))


@lowers("linear")
def linear(out: Traced, x: Array, weight: Array, bias: Array | None = None) -> Array:
    """``x @ weight.T + bias``."""
    made = matmul(x, weight.T)
    return made if bias is None else made + bias


@lowers("_cdist_forward")
def cdist(out: Traced, x: Array, y: Array, p: float, mode: int | None) -> Array:
    """The p-norm of the difference of each row of ``x`` and each of ``y``."""
    apart = jnp.abs(x[..., :, None, :] - y[..., None, :, :])
    if p == 0:
        return jnp.sum(apart != 0, -1)
    if p == float("inf"):
        return jnp.max(apart, -1, initial=0)
    return jnp.sqrt(jnp.sum(apart * apart, -1)) if p == 2 else jnp.sum(apart**p, -1) ** (1 / p)


_NORMS = ("backward", "ortho", "forward")  # of how ATen numbers them, for a transform forwards


@lowers("_fft_r2c")
def fft_r2c(out: Traced, x: Array, dim: Sequence[int], normalization: int, onesided: bool) -> Array:
    """The transform of a real tensor, one-sided or whole."""
    return (jnp.fft.rfftn if onesided else jnp.fft.fftn)(x, axes=tuple(dim), norm=_NORMS[normalization])


@lowers("_fft_c2r")
def fft_c2r(out: Traced, x: Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    """The real tensor whose one-sided transform this is."""
    sizes = [*(x.shape[axis] for axis in dim[:-1]), last_dim_size]
    return jnp.fft.irfftn(x, s=sizes, axes=tuple(dim), norm=_NORMS[2 - normalization])


@lowers("_fft_c2c")
def fft_c2c(out: Traced, x: Array, dim: Sequence[int], normalization: int, forward: bool) -> Array:
    """The transform of a complex tensor, or back."""
    if forward:
        return jnp.fft.fftn(x, axes=tuple(dim), norm=_NORMS[normalization])
    return jnp.fft.ifftn(x, axes=tuple(dim), norm=_NORMS[2 - normalization])


@lowers("convolution")
def convolution(
    out: Traced, x: Array, weight: Array, bias: Array | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Array:  # fmt: skip
    """Of (batch, channels, *space), any number of dimensions, transposed or not."""
    made = _convolved(x, weight, stride, padding, dilation, transposed, output_padding, groups)
    return made if bias is None else made + bias.reshape(-1, *(1,) * (weight.ndim - 2))


@lowers("convolution_backward")
def convolution_backward(
    out: Traced, grad: Array, x: Array, weight: Array, bias_sizes: Any, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int],
    groups: int, wanted: Sequence[bool],
) -> tuple[Array | None, ...]:  # fmt: skip
    """The gradients of input, weight and bias, of those that are ``wanted``."""
    forward = partial(
        _convolved, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
        output_padding=output_padding, groups=groups,
    )  # fmt: skip
    of_x = jax.vjp(lambda x: forward(x, weight), x)[1](grad)[0] if wanted[0] else None
    of_weight = jax.vjp(lambda w: forward(x, w), weight)[1](grad)[0] if wanted[1] else None
    axes = (0, *range(2, grad.ndim))
    of_bias = jnp.sum(grad.astype(jnp.promote_types(grad.dtype, "float32")), axes) if wanted[2] else None
    return of_x, of_weight, of_bias


def _convolved(
    x: Array, weight: Array, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, output_padding: Sequence[int], groups: int,
) -> Array:  # fmt: skip
    rank = weight.ndim - 2
    if x.ndim == rank + 1:
        given = (stride, padding, dilation, transposed, output_padding, groups)
        return _convolved(x[None], weight, *given)[0]
    stride, padding, dilation, output_padding = (
        list(each) * rank if len(each) == 1 else list(each)
        for each in (stride, padding, dilation, output_padding)
    )
    letters = "DHW"[3 - rank :]
    layout = (f"NC{letters}", f"OI{letters}", f"NC{letters}")
    options: dict[str, Any] = {"dimension_numbers": layout, "feature_group_count": groups}
    options["precision"] = _precision(not tf32.convolutions_on_cuda())
    if not transposed:
        pads = [(p, p) for p in padding]
        return lax.conv_general_dilated(x, weight, stride, pads, rhs_dilation=dilation, **options)
    # The gradient of a convolution: the input spread out, the weight turned round, (in, out / groups, ...).
    each_in, each_out = weight.shape[0] // groups, weight.shape[1]
    kernel = weight.shape[2:]
    turned = weight.reshape(groups, each_in, each_out, *kernel).swapaxes(1, 2)
    turned = jnp.flip(turned.reshape(groups * each_out, each_in, *kernel), range(2, rank + 2))
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    pads = [(r - p, r - p + o) for r, p, o in zip(reach, padding, output_padding, strict=True)]
    return lax.conv_general_dilated(
        x, turned, [1] * rank, pads, lhs_dilation=stride, rhs_dilation=dilation, **options
    )


lowers("mm", "bmm", "mv", "dot", "matmul")(lambda out, x, y: matmul(x, y))
