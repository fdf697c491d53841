"""The golden programs of rows of odd width, as of a vocabulary of 50257: see :mod:`.triton_programs`."""

from __future__ import annotations

import torch

from tests.golden.triton_programs import BF16, SHORT, K, edgy, empty, floats, gpu


@gpu(
    lambda: (empty(8 * K, 50_257, dtype=BF16),),
    lambda: (edgy(5, 1237, dtype=BF16),),
    limits=SHORT | {"LONGEST_ROW": 256, "WALK_BLOCK": 64},
    wide=4,
)
def log_softmax_odd_rows(x):
    """A vocabulary of 50257: rows start at any even address."""
    return torch.log_softmax(x.float(), -1)


@gpu(
    lambda: (empty(8 * K, 50_304, dtype=BF16),),
    lambda: (floats(3, 4160, dtype=BF16),),
    limits=SHORT,
    wide=1,
)
def columns_of_padded(x):
    """Rows of 50257 out of padded ones."""
    return x[:, :-47].clone()
