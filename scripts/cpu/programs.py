"""Programs for a CPU that nobody tuned for: small ones (under a millisecond) and large, inference and steps.

``PROGRAMS`` by name: ``make()`` gives a function and its arguments, the same values every time. The first 31
are those of issue 18; the others are as many of our own, on shapes that nothing here was tuned on.
Needs torch only.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Built = tuple[Callable[..., Any], tuple[Any, ...]]
PROGRAMS: dict[str, Callable[[], Built]] = {}
ISSUE = 31
"""How many of them are the issue's."""


def program(make: Callable[[], Built]) -> Callable[[], Built]:
    PROGRAMS[make.__name__] = make
    return make


def build(name: str) -> Built:
    torch.manual_seed(zlib.crc32(name.encode()))
    return PROGRAMS[name]()


def half(name: str) -> int:
    """Which half of the programs this one is in, by its name alone."""
    return zlib.crc32(name.encode()) % 2


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape)


# -- the 31 of the issue -------------------------------------------------------------------------


@program
def transposed_add() -> Built:
    return lambda a, b: a + b.t(), (randn(4096, 4096), randn(4096, 4096))


@program
def transposed_add_small() -> Built:
    return lambda a, b: (a + b.t()).relu(), (randn(256, 256), randn(256, 256))


@program
def sinkhorn() -> Built:
    def f(c: Tensor) -> Tensor:
        u, v = torch.zeros(c.shape[0]), torch.zeros(c.shape[1])
        for _ in range(5):
            u = -torch.logsumexp(c + v[None], 1)
            v = -torch.logsumexp(c + u[:, None], 0)
        return c + u[:, None] + v[None]

    return f, (randn(64, 64),)


@program
def cdist() -> Built:
    def f(a: Tensor, b: Tensor) -> Tensor:
        squared = (a * a).sum(-1)[:, None] + (b * b).sum(-1)[None] - 2 * a @ b.t()
        return squared.clamp_min(0).sqrt()

    return f, (randn(128, 32), randn(128, 32))


@program
def lion_step() -> Built:
    def f(p: Tensor, g: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        return p * (1 - 1e-3) - 1e-3 * (m * 0.9 + g * 0.1).sign(), m * 0.99 + g * 0.01

    return f, (randn(256, 256), randn(256, 256), randn(256, 256))


@program
def focal_loss() -> Built:
    def f(x: Tensor, t: Tensor) -> Tensor:
        p = torch.sigmoid(x)
        loss = F.binary_cross_entropy_with_logits(x, t, reduction="none")
        return (loss * (1 - p * t - (1 - p) * (1 - t)) ** 2).mean()

    return f, (randn(64, 512), (torch.rand(64, 512) > 0.5).float())


@program
def gelu() -> Built:
    return lambda x: F.gelu(x), (randn(256, 1024),)


@program
def residual_block() -> Built:
    inner = nn.Sequential(
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32),
    ).eval()  # fmt: skip
    return lambda x: F.relu(inner(x) + x), (randn(1, 32, 28, 28),)


class ConvNeXtBlock(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(d, d, 7, padding=3, groups=d)
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


@program
def convnext_block() -> Built:
    return ConvNeXtBlock(64).eval(), (randn(1, 64, 14, 14),)


class LlamaBlock(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up = nn.Linear(d, 4 * d, bias=False), nn.Linear(d, 4 * d, bias=False)
        self.down = nn.Linear(4 * d, d, bias=False)
        self.first, self.second = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        parts = self.qkv(self.norm(x, self.first)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.out(y)
        z = self.norm(x, self.second)
        return x + self.down(F.silu(self.gate(z)) * self.up(z))


@program
def llama_block() -> Built:
    return LlamaBlock(256, 4).eval(), (randn(1, 64, 256),)


@program
def cumsum() -> Built:
    return lambda x: torch.cumsum(x, -1) * 2, (randn(1024, 4096),)


@program
def bilinear() -> Built:
    return lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False), (
        randn(1, 16, 64, 64),
    )


@program
def causal_softmax() -> Built:
    mask = torch.ones(128, 128).tril().bool()
    return lambda x: torch.where(mask, x * 0.1, float("-inf")).softmax(-1), (randn(4, 128, 128),)


@program
def channel_layer_norm() -> Built:
    def f(x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        return (x - mean) / ((x - mean).pow(2).mean(1, keepdim=True) + 1e-6).sqrt()

    return f, (randn(1, 64, 28, 28),)


@program
def adam_24_tensors() -> Built:
    def f(*tensors: Tensor) -> list[Tensor]:
        out = []
        for i in range(0, len(tensors), 4):
            p, g, m, v = tensors[i : i + 4]
            m, v = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
            out += [p - 1e-3 * m / (v.sqrt() + 1e-8), m, v]
        return out

    return f, tuple(randn(64, 64).abs() for _ in range(96))


@program
def sums_100() -> Built:
    return lambda x: [(x * i).sum() for i in range(100)], (randn(64, 64),)


@program
def tiny_1() -> Built:
    return lambda x: x.sin() + 1, (randn(16),)


def _chain(steps: int) -> Built:
    def f(x: Tensor, turn: Tensor) -> Tensor:
        for _ in range(steps):
            x = x.sin() @ turn
        return x

    return f, (randn(8, 8), torch.linalg.qr(randn(8, 8))[0])


@program
def tiny_5() -> Built:
    return _chain(5)


@program
def tiny_20() -> Built:
    return _chain(20)


@program
def layer_norm() -> Built:
    return lambda x, w, b: F.layer_norm(x, (768,), w, b), (randn(64, 768), randn(768), randn(768))


@program
def softmax() -> Built:
    return lambda x: torch.softmax(x * 2, -1), (randn(128, 512),)


@program
def transposed_layer_norm() -> Built:
    return lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (64,)).permute(0, 3, 1, 2).contiguous(), (
        randn(4, 64, 56, 56),
    )


@program
def group_norm_silu() -> Built:
    return lambda x, w, b: F.silu(F.group_norm(x, 8, w, b)), (randn(2, 64, 32, 32), randn(64), randn(64))


@program
def rope() -> Built:
    angles = torch.outer(torch.arange(256.0), 10000 ** (-torch.arange(0, 64, 2) / 64))
    cos, sin = angles.cos(), angles.sin()

    def f(x: Tensor) -> Tensor:
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    return f, (randn(1, 8, 256, 64),)


@program
def rms_norm_large() -> Built:
    return lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, (
        randn(4096, 2048),
        randn(2048),
    )


@program
def swiglu_large() -> Built:
    return lambda x: F.silu(x[:, :2048]) * x[:, 2048:], (randn(2048, 4096),)


@program
def batch_norm_eval_relu() -> Built:
    norm = nn.BatchNorm2d(64).eval()
    return lambda x: F.relu(norm(x)), (randn(8, 64, 56, 56),)


@program
def cross_entropy() -> Built:
    return lambda x, t: F.cross_entropy(x, t), (randn(256, 10000), torch.randint(10000, (256,)))


@program
def softmax_large() -> Built:
    return lambda x: torch.softmax(x, -1), (randn(4096, 4096),)


@program
def log_softmax_columns() -> Built:
    return lambda x: torch.log_softmax(x, 0), (randn(1024, 1000),)


@program
def pointwise_chain_large() -> Built:
    return lambda x, y: torch.tanh(x * y + 1) * torch.sigmoid(x) - y.abs().sqrt(), (
        randn(2048, 2048),
        randn(2048, 2048),
    )


# -- as many of our own -----------------------------------------------------------------------------


@program
def gru_cell() -> Built:
    cell = nn.GRUCell(128, 128).eval()
    return cell, (randn(16, 128), randn(16, 128))


@program
def cosine_similarity() -> Built:
    return lambda a, b: F.cosine_similarity(a, b, dim=-1), (randn(512, 256), randn(512, 256))


@program
def huber_loss() -> Built:
    return lambda a, b: F.huber_loss(a, b, delta=0.7), (randn(300, 300), randn(300, 300))


@program
def kl_divergence() -> Built:
    return lambda a, b: F.kl_div(a.log_softmax(-1), b.softmax(-1), reduction="batchmean"), (
        randn(100, 300),
        randn(100, 300),
    )


@program
def attention_scores() -> Built:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v

    return f, (randn(4, 100, 64), randn(4, 100, 64), randn(4, 100, 64))


@program
def heat_step() -> Built:
    def f(x: Tensor) -> Tensor:
        inner = x[1:-1, 1:-1]
        around = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        return F.pad(inner + 0.1 * (around - 4 * inner), (1, 1, 1, 1))

    return f, (randn(700, 700),)


@program
def game_of_life() -> Built:
    def f(x: Tensor) -> Tensor:
        n = sum(x.roll((i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
        return ((n == 3) | ((x == 1) & (n == 2))).to(x.dtype)

    return f, ((torch.rand(256, 256) > 0.5).int(),)


@program
def mandelbrot() -> Built:
    def f(x: Tensor, y: Tensor) -> Tensor:
        a, b, steps = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
        for _ in range(12):
            a, b = a * a - b * b + x, 2 * a * b + y
            steps = steps + (a * a + b * b < 4)
        return steps

    return f, (randn(400, 300), randn(400, 300))


@program
def instance_norm() -> Built:
    return lambda x: F.instance_norm(x), (randn(4, 32, 48, 48),)


@program
def pixel_shuffle_relu() -> Built:
    return lambda x: F.pixel_shuffle(x, 2).relu() + 1, (randn(2, 64, 40, 40),)


@program
def channel_shuffle() -> Built:
    return lambda x: x.view(4, 4, 16, 28, 28).transpose(1, 2).reshape(4, 64, 28, 28) * 2, (
        randn(4, 64, 28, 28),
    )


@program
def squeeze_excite() -> Built:
    down, up = nn.Linear(64, 16), nn.Linear(16, 64)

    def f(x: Tensor) -> Tensor:
        return x * torch.sigmoid(up(F.relu(down(x.mean((2, 3))))))[:, :, None, None]

    return f, (randn(2, 64, 30, 30),)


@program
def max_pool_relu() -> Built:
    return lambda x: F.relu(F.max_pool2d(x, 3, 2, 1)), (randn(2, 32, 64, 64),)


@program
def average_pool() -> Built:
    return lambda x: F.avg_pool2d(x * 2, 2), (randn(2, 32, 64, 64),)


@program
def embedding_mean() -> Built:
    return lambda w, i: w[i].mean(1), (randn(5000, 128), torch.randint(5000, (64, 20)))


@program
def one_hot_argmax() -> Built:
    return lambda x: F.one_hot(x.argmax(-1), 50).float() - x.softmax(-1), (randn(200, 50),)


@program
def variance_of_both() -> Built:
    return lambda x: (x - x.mean(0)) / (x.var(1, keepdim=True) + 1e-5).sqrt(), (randn(500, 400),)


@program
def l2_normalise() -> Built:
    return lambda x: x / x.norm(dim=-1, keepdim=True).clamp_min(1e-6), (randn(1000, 128),)


@program
def standardise_columns() -> Built:
    return lambda x: (x - x.mean(0)) / x.std(0), (randn(3000, 200),)


@program
def outer_gaussian() -> Built:
    return lambda a, b: torch.exp(-((a[:, None] - b[None]) ** 2) / 2), (randn(900), randn(1100))


@program
def pairwise_l1() -> Built:
    return lambda a, b: (a[:, None] - b[None]).abs().sum(-1), (randn(150, 40), randn(160, 40))


@program
def sgd_momentum() -> Built:
    def f(*tensors: Tensor) -> list[Tensor]:
        out = []
        for i in range(0, len(tensors), 3):
            p, g, m = tensors[i : i + 3]
            m = m * 0.9 + g + 1e-4 * p
            out += [p - 0.1 * m, m]
        return out

    return f, tuple(randn(100, 50) for _ in range(30))


@program
def clip_gradients() -> Built:
    def f(*tensors: Tensor) -> list[Tensor]:
        norm = torch.stack([t.norm() for t in tensors]).norm()
        return [t * (1.0 / norm.clamp_min(1.0)) for t in tensors]

    return f, tuple(randn(120, 80) for _ in range(12))


@program
def geglu() -> Built:
    return lambda x: F.gelu(x[..., :300]) * x[..., 300:], (randn(128, 600),)


@program
def hard_swish_quantised() -> Built:
    return lambda x: (F.hardswish(x) * 16).round().clamp(-128, 127).to(torch.int8), (randn(400, 512),)


@program
def alibi_softmax() -> Built:
    slopes = 2.0 ** -torch.arange(1.0, 9.0)
    distance = (torch.arange(96)[None] - torch.arange(96)[:, None]).float()
    return lambda x: (x + slopes[:, None, None] * distance).softmax(-1), (randn(8, 96, 96),)


@program
def mlp_small() -> Built:
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)).eval(), (randn(32, 64),)


@program
def transposed_copies() -> Built:
    return lambda x: x.permute(2, 0, 1).contiguous() * 2, (randn(300, 200, 48),)


@program
def sum_of_everything_large() -> Built:
    return lambda x: (x.sin() ** 2).sum(), (randn(3000, 3000),)


@program
def bfloat16_layer_norm() -> Built:
    return lambda x, w: F.layer_norm(x, (512,), w), (randn(512, 512).bfloat16(), randn(512).bfloat16())


@program
def row_scan_and_mask() -> Built:
    return lambda x: torch.where(x.cumsum(-1) > 0, x, 0.0), (randn(256, 1024),)
