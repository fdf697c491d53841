"""The golden programs of gathers and scatters by known and by short indices, and into tables of few and of
many rows: see :mod:`.triton_programs`."""

from __future__ import annotations

import torch

from tests.golden.triton_programs import BF16, K, empty, floats, gpu, whole


@gpu(
    lambda: (empty(12, 512, 512, dtype=BF16), whole(512, 512)),
    lambda: (floats(6, 40, 41, dtype=BF16), torch.randint(32, (40, 41))),
)
def position_bias_gradient(grad, buckets):
    return torch.ops.aten.embedding_dense_backward(grad.permute(1, 2, 0), buckets, 32, -1, False)


@gpu(
    lambda: (empty(32, 512, 768, dtype=BF16), whole(1, 512)),
    lambda: (floats(5, 26, 72, dtype=BF16), torch.randint(2, (1, 26))),
)
def token_type_gradient(grad, types):
    types = types.expand(grad.shape[:2])
    return torch.ops.aten.embedding_dense_backward(grad, types, 2, -1, False)


@gpu(
    lambda: (empty(32, 512, 768, dtype=BF16), whole(32, 512)),
    lambda: (floats(5, 10, 72, dtype=BF16), torch.randint(20, (5, 10)).clamp(max=12)),
    limits={"LEAST_TABLE": 1},
    wide=1,
)
def word_gradient_bf16(grad, words):
    return torch.ops.aten.embedding_dense_backward(grad, words, 30_522, 0, False)


@gpu(
    lambda: (empty(256 * K, 12), whole(256 * K)),
    lambda: (floats(1100, 6), torch.randint(32, (1100,))),
)
def small_table_of_short_rows(values, places):
    return torch.index_add(values.new_zeros(32, values.shape[1]), 0, places, values.exp())


@gpu(
    lambda: (empty(4, 768), empty(16 * K, 768), whole(16 * K)),
    lambda: (floats(4, 72), floats(150, 72), torch.randint(4, (150,))),
)
def small_table_of_long_rows(base, values, places):
    return torch.index_add(base, 0, places, values)


def _nearest(size: int, length: int) -> torch.Tensor:
    return (torch.arange(size, dtype=torch.float32) * (length / size)).to(torch.int64)


@gpu(lambda: (empty(16, 128, 32, 32),), lambda: (floats(2, 3, 5, 5),))
def nearest_upsampling(x):
    at = _nearest(x.shape[-1] * 2, x.shape[-1])
    return torch.ops.aten.index(x, [None, None, at[:, None], at]) + 1.0


@gpu(lambda: (empty(16, 128, 64, 64, dtype=BF16),), lambda: (floats(2, 3, 10, 10, dtype=BF16),))
def nearest_upsampling_gradient(grad):
    at, size = _nearest(grad.shape[-1], grad.shape[-1] // 2), grad.shape[-1] // 2
    zero = torch.zeros(*grad.shape[:2], size, size)
    return torch.ops.aten.index_put(zero, [None, None, at[:, None], at], grad.float(), True)


@gpu(
    lambda: (empty(16, 64, 64, 128, dtype=BF16), whole(64)),
    lambda: (floats(2, 20, 20, 33, dtype=BF16), torch.randint(-10, 10, (20,))),
    limits={"LEAST_POINTS": 1},
)
def upsampling_gradient_by_given_index(grad, at):
    grad, size = grad.permute(0, 3, 1, 2), grad.shape[1] // 2
    zero = torch.zeros(grad.shape[0], grad.shape[1], size, size, dtype=grad.dtype).float()
    return torch.ops.aten.index_put(zero, [None, None, at[:, None], at], grad.float(), True)


@gpu(
    lambda: (empty(16, 128, 64, 64, dtype=BF16), whole(64)),
    lambda: (floats(2, 33, 20, 20, dtype=BF16), torch.randint(-10, 10, (20,))),
    limits={"LEAST_POINTS": 1},
)
def upsampling_gradient_of_planes_by_given_index(grad, at):
    size = grad.shape[2] // 2
    zero = torch.zeros(*grad.shape[:2], size, size, dtype=torch.float32)
    return torch.ops.aten.index_put(zero, [None, None, at[:, None], at], grad.float(), True)


@gpu(lambda: (empty(16, 128, 64, 64, dtype=BF16),), lambda: (floats(2, 3, 6, 6, dtype=BF16),))
def reflection_padding(x):
    last = x.shape[-1] - 1
    at = last - (last - torch.arange(-1, last + 2).abs()).abs()
    return x[:, :, at][:, :, :, at]
