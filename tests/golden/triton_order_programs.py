"""The golden programs of kernels that would meet memory in two orders: see :mod:`.triton_programs`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from tests.golden.triton_programs import ACROSS, BF16, SHORT, empty, floats, gpu

TURNED = {**SHORT, "LEAST_TURNED": 1, "LAUNCH": 0}
Make = Callable[..., torch.Tensor]


def _images(n: int, c: int, h: int, w: int, make: Make) -> tuple[torch.Tensor, ...]:
    """Gradient (channels last), input (channels first), mean, rstd, weight and bias of a norm of channels."""
    x = make(n, c, h, w, dtype=BF16).permute(0, 2, 3, 1)
    statistics = make(n, h, w, 1), make(n, h, w, 1).abs()
    return (make(n, h, w, c, dtype=BF16), x, *statistics, make(c), make(c))


@gpu(
    lambda: _images(64, 192, 28, 28, empty),
    lambda: _images(3, 40, 5, 7, floats),
    limits=TURNED,
    wide=4,
)
def norm_backward_of_two_orders(grad, x, mean, rstd, weight, bias):
    return torch.ops.aten.native_layer_norm_backward(
        grad, x, [weight.numel()], mean, rstd, weight, bias, [True, True, True]
    )


def _mixed(n: int, rows: int, length: int, make: Make) -> tuple[torch.Tensor, ...]:
    half = [make(n, rows, length, dtype=BF16) for _ in range(3)]
    return (*half, make(n, rows, 1), make(n, rows, 1).abs(), make(length), make(length))


@gpu(
    lambda: _mixed(128, 196, 768, empty),
    lambda: _mixed(3, 35, 40, floats),
    limits=TURNED,
    wide=4,
)
def norm_backward_turned_after(grad, x, other, mean, rstd, weight, bias):
    gradients = torch.ops.aten.native_layer_norm_backward(
        grad, x, [weight.numel()], mean, rstd, weight, bias, [True, True, True]
    )
    return (other + gradients[0]).permute(0, 2, 1).contiguous(), gradients[1], gradients[2]


def _scaled(n: int, c: int, side: int, make: Make) -> tuple[torch.Tensor, ...]:
    last = [make(n, side, side, c, dtype=BF16).permute(0, 3, 1, 2) for _ in range(2)]
    return (make(n, c, side, side, dtype=BF16), *last, make(c, 1, 1, dtype=BF16))


@gpu(
    lambda: _scaled(64, 768, 7, empty),
    lambda: _scaled(6, 64, 5, floats),
    limits={**ACROSS, **TURNED, "multiprocessors": 200},
    wide=4,
)
def columns_of_two_orders(first, second, x, scale):
    grad = first + second
    return grad, (grad * x).sum((0, 2, 3)), (grad * scale).permute(0, 2, 3, 1).contiguous()


@gpu(
    lambda: tuple(torch.empty(16384, 3072, dtype=BF16) for _ in range(3)),
    lambda: tuple(torch.randn(6, 512, dtype=BF16) for _ in range(3)),
    limits=SHORT, eager=False,
)  # fmt: skip
def gated_unit_backward(grad, gate, up):
    """The two halves of a gradient: a program computes one of them."""
    gated = torch.ops.aten.silu_backward(grad * up, gate)
    return torch.cat([gated, grad * F.silu(gate)], -1)
