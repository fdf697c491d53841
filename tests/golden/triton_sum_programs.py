"""The golden programs of sums whose tilings depend on how much is read: see :mod:`.triton_programs`."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from tests.golden.triton_programs import ACROSS, BF16, SHORT, edgy, empty, floats, gpu, whole


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


@gpu(
    lambda: (empty(8192, 131_072, dtype=BF16), whole(8192)),
    lambda: (floats(8, 1000, dtype=BF16), torch.randint(1000, (8,))),
    limits=SHORT | {"LONGEST_ROW": 8},
)
def cross_entropy_with_z_loss(x, target):
    # two sums of exponentials below one maximum
    return F.cross_entropy(x, target) + 1e-4 * torch.logsumexp(x, -1).square().mean()


@gpu(
    lambda: (empty(4096, 131_072),),
    lambda: (edgy(6, 1024),),
    limits=SHORT | {"multiprocessors": 4, "PART": 256, "LONGEST_ROW": 256},
)
def log_softmax_and_normalizer(x):
    return torch.log_softmax(x, -1), torch.logsumexp(x, -1)


@gpu(
    lambda: (empty(4096, 64, 256, dtype=BF16), empty(64, 1), empty(256)),
    lambda: (floats(7, 5, 60, dtype=BF16), floats(5, 1), floats(60)),
    limits=SHORT | {"launch_bytes": 1000.0},
)
def weights_made_beside(x, down, across):
    # those across are stored by one program, though all make them
    down, across = torch.erf(down).exp().tanh(), torch.erf(across).exp().tanh()
    return x * down * across + 1, across
