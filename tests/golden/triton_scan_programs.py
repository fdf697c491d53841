"""The programs of scans whose Triton kernels are kept as golden files: see :mod:`.triton_programs`."""

from __future__ import annotations

import torch

from tests.golden.triton_programs import BF16, SHORT, K, edgy, empty, floats, gpu, whole


@gpu(
    lambda: (empty(16 * K, 4 * K, dtype=BF16), empty(16 * K, 4 * K, dtype=BF16)),
    lambda: (floats(9, 250, dtype=BF16), floats(9, 250, dtype=BF16)),
    limits=SHORT,
    wide=3,
)
def scan_of_rows(x, gate):
    return (x.float() * 0.5).cumsum(-1).to(x.dtype) * gate


@gpu(lambda: (empty(256 * K, 100),), lambda: (edgy(50, 100),), limits=SHORT, wide=2)
def scan_of_several_rows(x):
    return torch.logcumsumexp(x, -1)


@gpu(
    lambda: (empty(16 * K, 4 * K, dtype=BF16),),
    lambda: (floats(9, 250, dtype=BF16),),
    limits=SHORT,
)
def scan_backwards(x):
    return x.float().flip(-1).cumsum(-1).flip(-1) * 2


@gpu(
    lambda: (empty(4 * K, 128 * K),),
    lambda: (edgy(40, 500),),
    limits=SHORT | {"LONGEST_ROW": 64, "WALK_BLOCK": 128},
    wide=4,
)
def scan_looped(x):
    return torch.cummax(x, -1)


@gpu(
    lambda: (empty(64, 8 * K, 2 * K),),
    lambda: (floats(3, 300, 70),),
    limits=SHORT | {"multiprocessors": 1, "LONGEST_COLUMN": 8, "WALK_BLOCK": 512},
    wide=2,
)
def scan_of_columns(x):
    return torch.exp(torch.cumsum(x, 1) * -0.1)


@gpu(lambda: (empty(4 * K, 32, 4 * K),), lambda: (floats(5, 32, 70),), limits=SHORT, wide=1)
def scan_of_short_columns(x):
    return torch.cumprod(x, 1)


@gpu(
    lambda: (empty(16 * K * K),),
    lambda: (floats(40_000).abs(),),  # near 0, the order of the sums would show
    limits=SHORT | {"LONGEST_ROW": 256},
    wide=3,
)
def scan_split(x):
    return torch.cumsum(x * 2, 0) + 1


@gpu(
    lambda: (whole(256 * K, 64, dtype=torch.int32),),
    lambda: (torch.randint(-9, 9, (3000, 70), dtype=torch.int32),),
    limits=SHORT | {"multiprocessors": 4, "LONGEST_COLUMN": 8, "WALK_BLOCK": 512},
    wide=2,
)
def scan_split_columns(x):
    return torch.cummin(x, 0)


@gpu(
    lambda: (empty(4000, 1000),),
    lambda: (floats(33, 300),),
    limits=SHORT | {"multiprocessors": 4, "WALK_BLOCK": 128},
    dynamic=True,
)
def dynamic_scans(x):
    return (x * 2).cumsum(1), x.cummax(0).values
