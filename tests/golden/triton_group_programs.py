"""The golden programs of group norms of tensors whose channels are contiguous, and what follows them: see
:mod:`.triton_programs`."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from tests.golden.triton_programs import ACROSS, BF16, PHILOX, empty, floats, gpu


def _last(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 3, 1, 2)


@gpu(
    lambda: (_last(empty(16, 64, 64, 320, dtype=BF16)), empty(320, dtype=BF16), empty(320, dtype=BF16)),
    lambda: (_last(floats(2, 9, 11, 60, dtype=BF16) + 2), floats(60, dtype=BF16), floats(60, dtype=BF16)),
    limits=ACROSS | {"multiprocessors": 400},
)
def group_norm_channels_last(x, weight, bias):
    return F.silu(F.group_norm(x, x.shape[1] // 10, weight, bias))


@gpu(
    lambda: (_last(empty(16, 64, 64, 128, dtype=BF16)), empty(128, dtype=BF16), empty(128, dtype=BF16)),
    lambda: (_last(floats(2, 8, 8, 64, dtype=BF16)), floats(64, dtype=BF16), floats(64, dtype=BF16)),
    limits=ACROSS | {"multiprocessors": 400},
    options=PHILOX,
    eager=False,
)
def group_norm_dropout_channels_last(x, weight, bias):
    keep = torch.rand(x.shape) < 0.9  # counted as elements are, not as they lie in memory
    return F.silu(F.group_norm(x, x.shape[1] // 4, weight, bias)) * keep


@gpu(
    lambda: (
        _last(empty(16, 64, 64, 256, dtype=BF16)),
        _last(empty(16, 64, 64, 256, dtype=BF16)),
        empty(16, 32, dtype=BF16),
        empty(16, 32, dtype=BF16),
        empty(256, dtype=BF16),
    ),
    lambda: (_last(floats(2, 9, 8, 64)), _last(floats(2, 9, 8, 64)), floats(2, 8), floats(2, 8), floats(64)),
    limits=ACROSS | {"multiprocessors": 400},
)
def group_norm_gradient_channels_last(grad, x, mean, rstd, weight):
    n, c, h, w = x.shape
    return torch.ops.aten.native_group_norm_backward(
        grad, x, mean, rstd, weight, n, c, h * w, mean.shape[1], [True, True, True]
    )
