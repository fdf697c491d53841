"""Single operators and short chains of them, as cells of a notebook have them, on a CPU: they show which
kernels are slow where whole programs hide it. All were written down, from what users do, before any was
timed; since then the slowest have been worked on.

``PROGRAMS`` by name: a function, and what makes its arguments, the same values every time. Needs torch only.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Made = Callable[[], tuple[Any, ...]]


def build(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    torch.manual_seed(zlib.crc32(name.encode()))
    function, make = PROGRAMS[name]
    return function, make()


def half(name: str) -> int:
    """Which half of the programs this one is in, by its name alone."""
    return zlib.crc32(name.encode()) % 2


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape)


def randint(most: int, shape: tuple[int, ...], **more: Any) -> Tensor:
    return torch.randint(most, shape, **more)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def rope_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def neighbours(x: Tensor) -> Tensor:
    """A step of the game of life, but for the survivors."""
    around = [torch.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    return (torch.stack(around).sum(0) - x == 3).float()


PROGRAMS: dict[str, tuple[Callable[..., Any], Made]] = {
    "index_select": (
        lambda w, i: w.index_select(0, i) * 2,
        lambda: (
            randn(1000, 256),
            randint(1000, (4096,)),
        ),
    ),
    "embedding_sum": (
        lambda w, i: F.embedding(i, w).sum(1),
        lambda: (
            randn(30000, 64),
            randint(30000, (256, 50)),
        ),
    ),
    "embedding_bag": (
        lambda w, i: F.embedding_bag(i, w, mode="mean"),
        lambda: (
            randn(30000, 64),
            randint(30000, (256, 50)),
        ),
    ),
    "emb_pos_ln": (
        lambda w, q, i: F.layer_norm(F.embedding(i, w) + q, (256,)),
        lambda: (
            randn(30000, 256),
            randn(128, 256),
            randint(30000, (16, 128)),
        ),
    ),
    "gather_last": (
        lambda x, i: x.gather(1, i) + 1,
        lambda: (
            randn(2000, 1000),
            randint(1000, (2000, 200)),
        ),
    ),
    "gather_first": (
        lambda x, i: x.gather(0, i) + 1,
        lambda: (
            randn(1000, 500),
            randint(1000, (800, 500)),
        ),
    ),
    "scatter_add0": (
        lambda x, i: torch.zeros(500, 256).index_add(0, i, x * 2),
        lambda: (
            randn(4096, 256),
            randint(500, (4096,)),
        ),
    ),
    "scatter_add1": (
        lambda x, i: torch.zeros(500, 200).scatter_add(1, i, x),
        lambda: (
            randn(500, 1000),
            randint(200, (500, 1000)),
        ),
    ),
    "take_along": (
        lambda x, i: torch.take_along_dim(x, i, 1).sigmoid(),
        lambda: (
            randn(300, 3000),
            randint(3000, (300, 1000)),
        ),
    ),
    "cat3": (
        lambda a, b, c: torch.cat([a, b, c], 1).relu(),
        lambda: (
            randn(2000, 100),
            randn(2000, 300),
            randn(2000, 50),
        ),
    ),
    "stack_mean": (
        lambda a, b, c: torch.stack([a, b, c]).mean(0),
        lambda: (
            randn(1000, 1000),
            randn(1000, 1000),
            randn(1000, 1000),
        ),
    ),
    "pad_reflect": (lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect") * 2, lambda: (randn(8, 3, 224, 224),)),
    "roll2": (lambda x: torch.roll(x, (4, 4), (1, 2)) + 1, lambda: (randn(8, 56, 56, 96),)),
    "flip": (lambda x: x.flip(-1) * 2, lambda: (randn(64, 3, 128, 128),)),
    "window": (
        lambda x: x.view(8, 8, 7, 8, 7, 96).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, 96) * 1.5,
        lambda: (randn(8, 56, 56, 96),),
    ),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2).relu(), lambda: (randn(4, 64, 64, 64),)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2).relu(), lambda: (randn(4, 16, 128, 128),)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2) * 2, lambda: (randn(4, 32, 64, 64),)),
    "bicubic": (lambda x: F.interpolate(x, size=(100, 100), mode="bicubic"), lambda: (randn(2, 8, 64, 64),)),
    "avgpool": (lambda x: F.avg_pool2d(x, 3, 2, 1), lambda: (randn(8, 64, 56, 56),)),
    "maxpool": (lambda x: F.max_pool2d(x, 3, 2, 1), lambda: (randn(8, 64, 56, 56),)),
    "adapt": (lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1), lambda: (randn(32, 512, 7, 7),)),
    "adapt7": (lambda x: F.adaptive_avg_pool2d(x, 7), lambda: (randn(8, 64, 30, 30),)),
    "cumsum0": (lambda x: x.cumsum(0), lambda: (randn(1000, 1000),)),
    "cumprod": (lambda x: (x * 0.01 + 1).cumprod(-1), lambda: (randn(1000, 1000),)),
    "cummax": (lambda x: x.cummax(-1).values, lambda: (randn(1000, 1000),)),
    "logcumsumexp": (lambda x: x.logcumsumexp(-1), lambda: (randn(500, 1000),)),
    "softmax0": (lambda x: x.softmax(0), lambda: (randn(500, 2000),)),
    "softmax_mid": (lambda x: x.softmax(1), lambda: (randn(32, 128, 256),)),
    "softmax_mask": (
        lambda x, m: x.masked_fill(m, -1000000000.0).softmax(-1),
        lambda: (
            randn(8, 8, 128, 128),
            randn(128, 128) > 0,
        ),
    ),
    "xent": (
        lambda x, y: F.cross_entropy(x, y),
        lambda: (
            randn(2048, 1000),
            randint(1000, (2048,)),
        ),
    ),
    "xent_smooth": (
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
        lambda: (
            randn(2048, 1000),
            randint(1000, (2048,)),
        ),
    ),
    "bce": (
        lambda x, y: F.binary_cross_entropy_with_logits(x, y),
        lambda: (
            randn(1000, 1000),
            torch.rand(1000, 1000),
        ),
    ),
    "huber": (
        lambda x, y: F.smooth_l1_loss(x, y),
        lambda: (
            randn(1000, 1000),
            randn(1000, 1000),
        ),
    ),
    "kl": (
        lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
        lambda: (
            randn(1000, 1000),
            randn(1000, 1000),
        ),
    ),
    "bn_train": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        lambda: (
            randn(16, 64, 56, 56),
            randn(64),
            randn(64),
        ),
    ),
    "gn": (
        lambda x, w, b: F.group_norm(x, 8, w, b),
        lambda: (
            randn(16, 64, 56, 56),
            randn(64),
            randn(64),
        ),
    ),
    "in": (lambda x: F.instance_norm(x), lambda: (randn(16, 64, 56, 56),)),
    "rms": (
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-06) * w,
        lambda: (
            randn(512, 4096),
            randn(4096),
        ),
    ),
    "l2norm": (lambda x: F.normalize(x, dim=-1), lambda: (randn(4096, 512),)),
    "l2norm1": (lambda x: F.normalize(x, dim=1), lambda: (randn(16, 256, 32, 32),)),
    "cosine": (
        lambda a, b: F.cosine_similarity(a, b, dim=-1),
        lambda: (
            randn(4096, 512),
            randn(4096, 512),
        ),
    ),
    "rope": (
        rope,
        lambda: (
            randn(4, 8, 256, 64),
            randn(256, 64),
            randn(256, 64),
        ),
    ),
    "rope_inter": (
        rope_interleaved,
        lambda: (
            randn(4, 8, 256, 64),
            randn(256, 32),
            randn(256, 32),
        ),
    ),
    "swiglu": (lambda x: F.silu(x[..., :1024]) * x[..., 1024:], lambda: (randn(512, 2048),)),
    "glu1": (lambda x: F.glu(x, 1), lambda: (randn(16, 128, 400),)),
    "quant": (
        lambda x: torch.clamp((x / 0.1).round() + 3, 0, 255).to(torch.uint8),
        lambda: (randn(1000, 1000),),
    ),
    "dequant": (
        lambda q, s: (q.float() - 3) * s,
        lambda: (
            randint(255, (1000, 1000), dtype=torch.uint8),
            randn(1000, 1),
        ),
    ),
    "fakequant": (
        lambda x: (
            (x / x.abs().amax(-1, keepdim=True) * 127).round().clamp(-128, 127)
            * x.abs().amax(-1, keepdim=True)
            / 127
        ),
        lambda: (randn(1000, 1000),),
    ),
    "argmax": (lambda x: (x * 2).argmax(-1), lambda: (randn(1000, 1000),)),
    "argmax0": (lambda x: (x * 2).argmax(0), lambda: (randn(1000, 1000),)),
    "var0": (lambda x: x.var(0), lambda: (randn(2000, 500),)),
    "std_all": (lambda x: x.std(), lambda: (randn(1000, 1000),)),
    "minmax": (lambda x: (x - x.min()) / (x.max() - x.min()), lambda: (randn(1000, 1000),)),
    "count": (lambda x: (x > 0.5).sum(-1), lambda: (randn(1000, 1000),)),
    "anyall": (lambda x: (x > 3).any(-1) | (x < 0.1).all(-1), lambda: (randn(1000, 1000),)),
    "median_mask": (
        lambda x: torch.where(x > x.mean(-1, keepdim=True), x, 0).sum(0),
        lambda: (randn(1000, 1000),),
    ),
    "outer": (
        lambda a, b: torch.outer(a, b).tanh(),
        lambda: (
            randn(1000),
            randn(1000),
        ),
    ),
    "pairwise": (
        lambda a, b: (a[:, None] - b[None]).pow(2).sum(-1),
        lambda: (
            randn(200, 64),
            randn(300, 64),
        ),
    ),
    "pairwise_l1": (
        lambda a, b: (a[:, None] - b[None]).abs().sum(-1),
        lambda: (
            randn(200, 3),
            randn(1000, 3),
        ),
    ),
    "triu": (lambda x: x.triu(1) + x.tril(-1).mT, lambda: (randn(4, 512, 512),)),
    "tri_mean": (lambda x: x.tril().sum(-1), lambda: (randn(1000, 1000),)),
    "complex": (
        lambda a, b: (a * b.conj()).abs(),
        lambda: (
            torch.randn(500, 1000, dtype=torch.complex64),
            torch.randn(500, 1000, dtype=torch.complex64),
        ),
    ),
    "erfgelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), lambda: (randn(1000, 1000),)),
    "mish": (lambda x: F.mish(x), lambda: (randn(1000, 1000),)),
    "logsig": (lambda x: F.logsigmoid(x), lambda: (randn(1000, 1000),)),
    "sincos": (lambda x: torch.cat([x.sin(), x.cos()], -1), lambda: (randn(1000, 500),)),
    "pow": (lambda x: x.abs().pow(1.7), lambda: (randn(1000, 1000),)),
    "atan2": (
        lambda a, b: torch.atan2(a, b),
        lambda: (
            randn(1000, 1000),
            randn(1000, 1000),
        ),
    ),
    "int_ops": (
        lambda a, b: (a * 31 + b) % 97 // 3,
        lambda: (
            randint(10000, (1000, 1000)),
            randint(10000, (1000, 1000)),
        ),
    ),
    "int32_hash": (
        lambda a: (a ^ a >> 16) * 73244475 & 2147483647,
        lambda: (randint(1 << 30, (1000, 1000)),),
    ),
    "u8_blend": (
        lambda a, b: (a.int() * 3 + b.int() >> 2).to(torch.uint8),
        lambda: (
            randint(255, (1000, 1000), dtype=torch.uint8),
            randint(255, (1000, 1000), dtype=torch.uint8),
        ),
    ),
    "bf16_gelu": (lambda x: F.gelu(x), lambda: (randn(1000, 1000).bfloat16(),)),
    "bf16_ln": (lambda x: F.layer_norm(x, (1000,)), lambda: (randn(1000, 1000).bfloat16(),)),
    "bf16_softmax": (lambda x: x.softmax(-1), lambda: (randn(1000, 1000).bfloat16(),)),
    "f16_add": (
        lambda a, b: a * b + a,
        lambda: (
            randn(1000, 1000).half(),
            randn(1000, 1000).half(),
        ),
    ),
    "f64": (lambda x: (x.sin() * x).sum(-1), lambda: (randn(1000, 500).double(),)),
    "bucketize": (
        lambda x, b: torch.bucketize(x, b),
        lambda: (
            randn(1000, 500),
            torch.linspace(-3, 3, 50),
        ),
    ),
    "histc": (lambda x: torch.histc(x, 50, -3, 3), lambda: (randn(1000, 500),)),
    "one_hot_sum": (lambda i: F.one_hot(i, 50).sum(1), lambda: (randint(50, (500, 100)),)),
    "unfold1d": (lambda x: x.unfold(-1, 16, 4).mean(-1), lambda: (randn(64, 8000),)),
    "movavg": (lambda x: (x[:, :-2] + x[:, 1:-1] + x[:, 2:]) / 3, lambda: (randn(500, 4000),)),
    "stencil2d": (
        lambda x: x[1:-1, 1:-1] * 4 - x[:-2, 1:-1] - x[2:, 1:-1] - x[1:-1, :-2] - x[1:-1, 2:],
        lambda: (randn(1500, 1500),),
    ),
    "game": (neighbours, lambda: ((randn(500, 500) > 0).float(),)),
    "nms_iou": (
        lambda b: (
            (torch.min(b[:, None, 2:], b[None, :, 2:]) - torch.max(b[:, None, :2], b[None, :, :2]))
            .clamp(min=0)
            .prod(-1)
        ),
        lambda: (torch.rand(500, 4),),
    ),
    "adam": (
        lambda w, g, m, v: w - 0.001 * (m * 0.9 + g * 0.1) / ((v * 0.99 + g * g * 0.01).sqrt() + 1e-08),
        lambda: (
            randn(1000, 1000),
            randn(1000, 1000),
            randn(1000, 1000),
            randn(1000, 1000).abs(),
        ),
    ),
    "grid_sample": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        lambda: (
            randn(2, 8, 64, 64),
            torch.rand(2, 64, 64, 2) * 2 - 1,
        ),
    ),
    "repeat_int": (lambda x: x.repeat_interleave(3, 1) * 2, lambda: (randn(500, 500),)),
    "einsum_diag": (lambda x: torch.einsum("bii->b", x), lambda: (randn(500, 100, 100),)),
    "bmm_small": (
        lambda a, b: torch.bmm(a, b).relu(),
        lambda: (
            randn(500, 8, 8),
            randn(500, 8, 8),
        ),
    ),
    "dotrows": (
        lambda a, b: (a * b).sum(-1),
        lambda: (
            randn(4096, 64),
            randn(4096, 64),
        ),
    ),
    "short_rows": (lambda x: x.softmax(-1), lambda: (randn(20000, 5),)),
    "short_rows3": (lambda x: x / x.norm(dim=-1, keepdim=True), lambda: (randn(50000, 3),)),
    "cross": (
        lambda a, b: torch.linalg.cross(a, b),
        lambda: (
            randn(50000, 3),
            randn(50000, 3),
        ),
    ),
    "dropout_mask": (
        lambda x, m: x * m.float() / 0.9,
        lambda: (
            randn(1000, 1000),
            torch.rand(1000, 1000) < 0.9,
        ),
    ),
    "meshgrid": (
        lambda a, b: (a[:, None] ** 2 + b[None] ** 2).sqrt(),
        lambda: (
            randn(1000),
            randn(1000),
        ),
    ),
    "mandel": (
        lambda x, y: (x * x - y * y + 0.3) * (2 * x * y + 0.5),
        lambda: (
            randn(1000, 1000),
            randn(1000, 1000),
        ),
    ),
    "where_chain": (
        lambda x: torch.where(x < -1, -x, torch.where(x > 1, x.exp(), x * x)),
        lambda: (randn(1000, 1000),),
    ),
    "cdist": (
        lambda a, b: torch.cdist(a, b),
        lambda: (
            randn(300, 16),
            randn(300, 16),
        ),
    ),
    "logsumexp": (lambda x: x.logsumexp(-1), lambda: (randn(1000, 1000),)),
    "lse01": (lambda x: x.logsumexp((0, 1)), lambda: (randn(100, 100, 100),)),
    "mean_mid": (lambda x: x.mean(1), lambda: (randn(64, 200, 64),)),
    "mean_chan": (lambda x: x.mean((2, 3)), lambda: (randn(16, 256, 14, 14),)),
    "se": (
        lambda x, w: x * (x.mean((2, 3)) @ w).sigmoid()[:, :, None, None],
        lambda: (
            randn(16, 256, 14, 14),
            randn(256, 256),
        ),
    ),
}
