"""The kernels that issue 3 names, with their shapes, the fewest bytes each must move, and its goal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from gpu_timing import nbytes, relative_error, tensors
from items import Function, Maker, in_float64

K, M = 1 << 10, 1 << 20
BF16 = torch.bfloat16
VOCABULARY = 128 * K


@dataclass(frozen=True)
class Kernel:
    """One function to be held to the memory's limit.

    inputs:   makes one set of arguments.
    goal:     the share of copy bandwidth it must reach.
    backward: its backward pass alone is timed and checked.
    mutates:  positions of arguments that it overwrites: read and written, and its results.
    fewest:   bytes that must be moved, of (arguments, results); by default each tensor once.
    error:    relative error of (results, arguments), where float64 alone cannot tell it.
    """

    name: str
    fn: Function
    inputs: Callable[[Maker], tuple[Any, ...]]
    goal: float
    backward: bool = False
    mutates: tuple[int, ...] = ()
    fewest: Callable[[tuple[Any, ...], Any], int] | None = None
    error: Callable[[Any, tuple[Any, ...]], float] | None = None

    def bytes(self, args: tuple[Any, ...], results: Any) -> int:
        """The fewest bytes of memory traffic of one call."""
        if self.fewest is not None:
            return self.fewest(args, results)
        written = [args[place] for place in self.mutates]
        return nbytes(args) + (nbytes(written) if self.mutates else nbytes(results))

    def results(self, args: tuple[Any, ...], returned: Any) -> list[torch.Tensor]:
        """What a call is judged by: what it returned, and what it overwrote."""
        return tensors(returned) + [args[place] for place in self.mutates]

    def error_of(self, got: list[torch.Tensor], args: tuple[Any, ...], reference: Any) -> float:
        return self.error(got, args) if self.error is not None else relative_error(got, reference)


# -- forward -----------------------------------------------------------------------------------


def pointwise_chain(x, y):  # type: ignore[no-untyped-def]
    return torch.relu(x * 1.5 + y) * torch.sigmoid(y) - x


def swiglu(gate, up):  # type: ignore[no-untyped-def]
    return F.silu(gate) * up


def rope(x, cos, sin):  # type: ignore[no-untyped-def]
    half = x.shape[-1] // 2
    rotated = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + rotated * sin


def rms_norm(x, weight):  # type: ignore[no-untyped-def]
    return F.rms_norm(x, weight.shape, weight, 1e-6)


def layer_norm(x, weight, bias):  # type: ignore[no-untyped-def]
    return F.layer_norm(x, weight.shape, weight, bias)


def softmax(x):  # type: ignore[no-untyped-def]
    return torch.softmax(x, dim=-1)


def adamw(parameter, gradient, average, squares):  # type: ignore[no-untyped-def]
    rate, decay, beta1, beta2, step = 1e-3, 0.01, 0.9, 0.999, 10
    average.lerp_(gradient, 1 - beta1)
    squares.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    denominator = squares.sqrt() / (1 - beta2**step) ** 0.5 + 1e-8
    parameter.mul_(1 - rate * decay).addcdiv_(average, denominator, value=-rate / (1 - beta1**step))


def sum_and_amax(x):  # type: ignore[no-untyped-def]
    return x.sum(0), x.amax(1)


def cross_entropy(logits, target):  # type: ignore[no-untyped-def]
    return F.cross_entropy(logits, target)


def dropout_add_norm(x, residual, weight, bias):  # type: ignore[no-untyped-def]
    return F.layer_norm(F.dropout(x, 0.1) + residual, weight.shape, weight, bias)


def batch_norm_relu(x, mean, variance, weight, bias):  # type: ignore[no-untyped-def]
    return torch.relu(F.batch_norm(x, mean, variance, weight, bias, training=True))


def batch_norm_relu_eval(x, mean, variance, weight, bias):  # type: ignore[no-untyped-def]
    return torch.relu(F.batch_norm(x, mean, variance, weight, bias, training=False))


# -- inputs, bytes and errors that need words ----------------------------------------------------


def _norm(make: Maker, count: int, bias: bool) -> tuple[Any, ...]:
    weights = (make.rand(4 * K, dtype=BF16, low=0.5), make.randn(4 * K, dtype=BF16))
    return (*(make.randn(32 * K, 4 * K, dtype=BF16) for _ in range(count)), *weights[: 1 + bias])


def _channels(make: Maker) -> tuple[Any, ...]:
    channels = 256
    x = make.randn(64, channels, 56, 56, dtype=BF16)
    return (
        x,
        make.randn(channels),
        make.rand(channels, low=0.5),
        make.rand(channels, low=0.5),
        make.randn(channels),
    )


def _logits(make: Maker) -> tuple[Any, ...]:
    return make.randn(8 * K, VOCABULARY, dtype=BF16), make.integers(VOCABULARY, 8 * K)


def _batch_norm_bytes(args: tuple[Any, ...], results: Any) -> int:
    return nbytes(args) + nbytes(args[1:3]) + nbytes(results)


def _read_and_grads(args: tuple[Any, ...], results: Any) -> int:
    """Of a normalization's backward: the input and the gradient of the output (as large) are read, the
    gradients written. Statistics of rows are left out: the fewest bytes save one and compute it again."""
    return nbytes(args) + nbytes(args[0]) + nbytes(results)


def _logits_and_grads(args: tuple[Any, ...], results: Any) -> int:
    return nbytes(args) + nbytes(results)


def _softmax_backward(args: tuple[Any, ...], results: Any) -> int:
    """The result and its gradient are read, the input's gradient is written."""
    return 2 * nbytes(args) + nbytes(results)


def far_from_zero(make: Maker) -> tuple[Any, ...]:
    """Inputs of dropout_add_norm from whose result one can tell what was dropped: every kept element
    is at least 8.9 above its residual, which is within 3."""
    x, residual, weight, bias = _norm(make, 2, True)
    return x.abs() + 8, residual.clamp(-3, 3), weight, bias


def _dropout_error(got: Any, args: tuple[Any, ...]) -> float:
    """Error against float64 with the mask that the result itself shows; infinite where that mask keeps
    another share than it should, of the whole or of half of it. For :func:`far_from_zero` inputs."""
    x, residual, weight, bias = in_float64(args)
    kept = _above_gap((got[0].to(torch.float64) - bias) / weight)
    wanted = got[0].to(torch.float64)

    def reference(mask: torch.Tensor | float) -> torch.Tensor:
        return F.layer_norm(x * mask / 0.9 + residual, weight.shape, weight, bias)

    masked, whole = reference(kept), reference(1.0)
    # A row that lost nothing has no gap to be seen.
    lossless = (whole - wanted).norm(dim=-1) < (masked - wanted).norm(dim=-1)
    kept |= lossless[:, None]
    for part in (kept, kept[: len(kept) // 2], kept[:, ::2]):
        if abs(float(part.double().mean()) - 0.9) > 5 * (0.09 / part.numel()) ** 0.5:
            return float("inf")
    return relative_error(got, [torch.where(lossless[:, None], whole, masked)])


def _above_gap(rows: torch.Tensor) -> torch.Tensor:
    """Which elements of each row are above the empty band between dropped (a tenth of them, at most 3
    from zero before normalization) and kept ones (at least 5.9)."""
    ordered = rows.sort(-1).values
    place = ordered.diff(dim=-1)[:, : rows.shape[-1] // 2].argmax(-1, keepdim=True)
    return rows > (ordered.gather(-1, place) + ordered.gather(-1, place + 1)) / 2


KERNELS = (
    Kernel(
        "pointwise chain f32 8k×8k", pointwise_chain,
        lambda make: (make.randn(8 * K, 8 * K), make.randn(8 * K, 8 * K)), 0.90,
    ),
    Kernel(
        "swiglu bf16 16k×8k", swiglu,
        lambda make: (make.randn(16 * K, 8 * K, dtype=BF16), make.randn(16 * K, 8 * K, dtype=BF16)), 0.90,
    ),
    Kernel(
        "rope bf16 8×32×4k×128", rope,
        lambda make: (
            make.randn(8, 32, 4 * K, 128, dtype=BF16),
            make.randn(4 * K, 128, dtype=BF16),
            make.randn(4 * K, 128, dtype=BF16),
        ), 0.90,
    ),
    Kernel("rms_norm bf16 32k×4k", rms_norm, lambda make: _norm(make, 1, False), 0.90),
    Kernel("layer_norm bf16 32k×4k", layer_norm, lambda make: _norm(make, 1, True), 0.90),
    Kernel("softmax bf16 16k×8k", softmax, lambda make: (make.randn(16 * K, 8 * K, dtype=BF16),), 0.90),
    Kernel(
        "adamw f32 64M", adamw,
        lambda make: (*(make.randn(8 * K, 8 * K) for _ in range(3)), make.rand(8 * K, 8 * K)), 0.90,
        mutates=(0, 2, 3),
    ),
    Kernel("x.sum(0), x.amax(1) f32 16k×16k", sum_and_amax, lambda make: (make.randn(16 * K, 16 * K),), 0.90),
    Kernel("cross_entropy bf16 8k×128k", cross_entropy, _logits, 0.90),
    Kernel(
        "dropout+residual+layer_norm bf16 32k×4k", dropout_add_norm, far_from_zero, 0.90,
        error=_dropout_error,
    ),
    Kernel(
        "batch_norm+relu bf16 64×256×56×56", batch_norm_relu, _channels, 0.90,
        mutates=(1, 2), fewest=_batch_norm_bytes,
    ),
    Kernel("batch_norm+relu eval bf16 64×256×56×56", batch_norm_relu_eval, _channels, 0.90),
    Kernel("softmax f32 4k×128k", softmax, lambda make: (make.randn(4 * K, 128 * K),), 0.78),
    Kernel(
        "layer_norm backward bf16 32k×4k", layer_norm, lambda make: _norm(make, 1, True), 0.85,
        backward=True, fewest=_read_and_grads,
    ),
    Kernel(
        "rms_norm backward bf16 32k×4k", rms_norm, lambda make: _norm(make, 1, False), 0.85,
        backward=True, fewest=_read_and_grads,
    ),
    Kernel(
        "softmax backward bf16 16k×8k", softmax, lambda make: (make.randn(16 * K, 8 * K, dtype=BF16),), 0.85,
        backward=True, fewest=_softmax_backward,
    ),
    Kernel(
        "cross_entropy backward bf16 8k×128k", cross_entropy, _logits, 0.85,
        backward=True, fewest=_logits_and_grads,
    ),
)  # fmt: skip
BY_NAME = {kernel.name: kernel for kernel in KERNELS}
