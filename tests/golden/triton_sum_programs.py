"""The golden programs of sums whose tilings depend on how much is read: see :mod:`.triton_programs`."""

from __future__ import annotations

from torch.nn import functional as F

from .triton_programs import ACROSS, BF16, SHORT, empty, floats, gpu


@gpu(
    lambda: (empty(3, 1024, 1024, dtype=BF16), empty(3, 1024, 1024, dtype=BF16)),
    lambda: (floats(30, 33, dtype=BF16), floats(30, 33, dtype=BF16)),
    limits=SHORT | {"LONGEST_ROW": 8, "ONE_STEP": 64},
    wide=2,
)
def mean_squared_error(x, y):
    return F.mse_loss(x.float(), y.float())


@gpu(
    lambda: tuple(empty(8192, 1152) for _ in range(3)) + (empty(8192, 1), empty(1152)),
    lambda: tuple(floats(70, 36) for _ in range(3)) + (floats(70, 1), floats(36)),
    limits=SHORT,
    wide=4,
)
def rms_norm_gradients(grad, residual, x, rstd, weight):
    scaled = grad * weight
    share = (scaled * x).sum(-1, keepdim=True) * rstd.pow(3) / x.shape[-1]
    return residual + scaled * rstd - x * share, (grad * x * rstd).sum(0)


@gpu(
    lambda: (empty(64, 768, 392, dtype=BF16), empty(64, 392, 768, dtype=BF16)),
    lambda: (floats(5, 40, 24, dtype=BF16), floats(5, 24, 40, dtype=BF16)),
    limits=ACROSS | {"LEAST_TURNED": 1 << 40},
)
def sum_of_two_orders(x, y):
    return (x.transpose(1, 2) * y).sum([0, 1])
