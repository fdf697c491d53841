"""Programs between products, as models have them: see ``patterns.py``.

Tensors that have a gradient are those that :func:`r` makes with one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

BF16, F32 = torch.bfloat16, torch.float32


@dataclass
class Pattern:
    """A function and what makes its arguments; ``is_repeatable``: two calls give the same."""

    fn: Callable[..., Any]
    make: Callable[[], tuple[Any, ...]]
    is_repeatable: bool = True
    args: tuple[Any, ...] = ()
    _gradients: list[Tensor] = field(default_factory=list)

    def prepare(self) -> None:
        self.args, self._gradients = self.make(), []

    def gradients(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """Of the outputs, the same at each call."""
        if not self._gradients:
            self._gradients = [torch.randn_like(each) for each in outputs]
        return self._gradients


FIRST: dict[str, Pattern] = {}
Make = Callable[[], tuple[Any, ...]]


def noting(
    patterns: dict[str, Pattern],
) -> Callable[..., Callable[[Callable[..., Any]], Callable[..., Any]]]:
    def of(make: Make, is_repeatable: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def noted(fn: Callable[..., Any]) -> Callable[..., Any]:
            patterns[fn.__name__] = Pattern(fn, make, is_repeatable)
            return fn

        return noted

    return of


first = noting(FIRST)


def r(*shape: int, dtype: torch.dtype = BF16, g: bool = True) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_(g)


def below(most: int, *shape: int) -> Tensor:
    return torch.randint(0, most, shape, device="cuda")


def wide(*shape: int, g: bool = True) -> Tensor:
    return r(*shape, dtype=F32, g=g)


def channels_last(x: Tensor) -> Tensor:
    return x.detach().to(memory_format=torch.channels_last).requires_grad_(x.requires_grad)


@first(lambda: (r(16, 1000, 6144),))
def swiglu_chunk(x):
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


@first(lambda: (r(16, 1000, 2730 * 2),))
def geglu_odd(x):
    a, b = x.chunk(2, -1)
    return F.gelu(a) * b


@first(lambda: (r(16, 1000, 3072), r(16, 1000, 3072)))
def swiglu_two(a, b):
    return F.silu(a) * b


@first(lambda: (r(16, 512, 1024), r(16, 512, 1024), r(1024)))
def rms_residual(x, y, w):
    z = x + y
    f = z.float()
    return z, (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


@first(lambda: (r(8, 1024, 16, 64), r(1024, 64, g=False), r(1024, 64, g=False)))
def rotary(x, c, s):
    h = x.shape[-1] // 2
    t = torch.cat([-x[..., h:], x[..., :h]], -1)
    return (x * c[None, :, None] + t * s[None, :, None]).transpose(1, 2).contiguous()


@first(lambda: (r(8, 1024, 3 * 1024),))
def qkv_split(x):
    q, k, v = x.view(8, 1024, 3, 16, 64).unbind(2)
    return tuple(t.transpose(1, 2).contiguous() for t in (q * 0.125, k, v))


@first(lambda: (r(8, 12, 512, 512), r(12, 512, 512, dtype=F32)))
def attn_bias_softmax(s, b):
    return torch.softmax(s.float() * 0.125 + b, -1).to(s.dtype)


@first(lambda: (r(4096, 32000), below(32000, 4096)))
def ce(x, t):
    return F.cross_entropy(x.float(), t)


@first(lambda: (r(2048, 10000), below(10000, 2048)))
def ce_smooth(x, t):
    return F.cross_entropy(x.float(), t, label_smoothing=0.1)


@first(lambda: (r(2048, 8000), r(2048, 8000, g=False)))
def distill(s, t):
    return F.kl_div(F.log_softmax(s.float() / 2, -1), F.softmax(t.float() / 2, -1), reduction="batchmean") * 4


@first(lambda: (r(64, 21, 128, 128, dtype=F32), below(21, 64, 128, 128)))
def ce_images(x, t):
    return F.cross_entropy(x, t)


@first(
    lambda: (
        r(32, 24, 112, 112),
        *(r(24, dtype=F32) for _ in range(2)),
        r(24, dtype=F32, g=False),
        r(24, dtype=F32, g=False).abs(),
    )
)
def bn_24(x, w, b, m, v):
    return F.relu(F.batch_norm(x, m, v, w, b, True))


@first(
    lambda: (
        r(32, 256, 28, 28),
        r(32, 256, 28, 28),
        *(r(256, dtype=F32) for _ in range(2)),
        r(256, dtype=F32, g=False),
        r(256, dtype=F32, g=False).abs(),
    )
)
def bn_residual(x, y, w, b, m, v):
    return F.relu(F.batch_norm(x, m, v, w, b, True) + y)


@first(lambda: (channels_last(r(16, 128, 64, 64)), r(128), r(128)))
def gn_silu_cl(x, w, b):
    return F.silu(F.group_norm(x, 32, w, b))


@first(lambda: (r(16, 128, 64, 64), r(128), r(128)))
def gn_silu(x, w, b):
    return F.silu(F.group_norm(x, 32, w, b))


@first(lambda: (r(16, 64, 128, 128),))
def inorm(x):
    return F.leaky_relu(F.instance_norm(x), 0.2)


@first(lambda: (r(32, 96, 56, 56), r(96), r(96), r(96)))
def convnext_norm(x, w, b, g):
    y = F.layer_norm(x.permute(0, 2, 3, 1), (96,), w, b)
    return (y * g).permute(0, 3, 1, 2) + x


@first(lambda: (r(16, 1024, 1024), r(1024), r(1024), r(1024)))
def bias_gelu_ln(x, c, w, b):
    return F.layer_norm(F.gelu(x + c), (1024,), w, b)


@first(lambda: (r(32, 128, 56, 56), r(32, 128, 1, 1)))
def squeeze_excite(x, s):
    return x * torch.sigmoid(s)


@first(lambda: (r(32, 128, 56, 56),))
def hardswish_pool(x):
    return F.adaptive_avg_pool2d(F.hardswish(x), 1)


@first(lambda: (r(64, 64, 56, 56),))
def maxpool(x):
    return F.max_pool2d(F.relu(x), 3, 2, 1)


@first(lambda: (r(32, 64, 56, 56),))
def bilinear(x):
    return F.interpolate(x, scale_factor=2.0, mode="bilinear")


@first(lambda: (r(32, 64, 56, 56),))
def nearest(x):
    return F.interpolate(F.silu(x), scale_factor=2.0)


@first(lambda: (r(32, 256, 56, 56),))
def pixel_shuffle(x):
    return F.pixel_shuffle(x * 2, 2)


@first(lambda: (r(4096, 512, dtype=F32), r(4096, 512, dtype=F32)))
def cosine(a, b):
    return (1 - F.cosine_similarity(a, b, -1)).mean()


@first(lambda: (r(2048, 2048, dtype=F32),))
def info_nce(s):
    t = torch.arange(2048, device=s.device)
    return (F.cross_entropy(s * 10, t) + F.cross_entropy(s.t() * 10, t)) / 2


@first(lambda: (r(2048, 512, dtype=F32),))
def normalise_rows(x):
    return F.normalize(x, dim=-1)


@first(lambda: (r(1024, 4096, dtype=F32), r(1024, 1, dtype=F32)))
def weight_norm(v, g):
    return g * v / v.norm(dim=1, keepdim=True)


@first(lambda: (below(30000, 32, 512), r(30000, 768), r(512, 768), r(768), r(768)))
def embed_ln(i, t, pos, w, b):
    return F.layer_norm(F.embedding(i, t) + pos, (768,), w, b)


@first(lambda: (r(8, 512, 1024, dtype=F32), r(1024, dtype=F32)))
def mish_layer_scale(x, g):
    return x + F.mish(x) * g


@first(lambda: (r(32, 64, 64, 96), r(8, 8, 3, g=False)))
def window_partition(x, _):
    b, h, w, c = x.shape
    return F.layer_norm(x, (c,)).view(b, h // 8, 8, w // 8, 8, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, c)


@first(lambda: (r(64, 2000, dtype=F32), torch.rand(64, 2000, device="cuda")))
def focal(x, t):
    pr = torch.sigmoid(x)
    c = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    pt = pr * t + (1 - pr) * (1 - t)
    return (c * (1 - pt) ** 2).mean()


@first(lambda: (r(256, 64, 400, dtype=F32),))
def standardise_time(x):
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)


@first(lambda: (r(64, 512, 256), r(64, 512, 256)))
def gated_cat(x, y):
    return torch.cat([torch.tanh(x) * torch.sigmoid(y), x], -1)


@first(lambda: (r(16, 2048, 512), r(512, 4)))
def causal_conv(x, w):
    y = F.pad(x, (0, 0, 3, 0))
    return F.silu(sum(y[:, i : i + 2048] * w[:, i] for i in range(4)))


@first(lambda: (r(32, 196, 768), r(1, 1, 768)))
def cls_token_drop_path(x, c):
    y = torch.cat([c.expand(32, 1, 768), x], 1)
    return y * 0.5 + y.mean(1, keepdim=True)


@first(lambda: (r(64, 1024, 128, dtype=F32),))
def logcumsumexp_(x):
    return torch.logcumsumexp(x, 1)


@first(lambda: (r(64, 1024, 128, dtype=F32),))
def cumsum_decay(x):
    return torch.exp(-x.abs().cumsum(1) * 0.01)
