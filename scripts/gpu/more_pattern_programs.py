"""More programs between products, written before any of them was timed: see ``patterns.py``."""

from __future__ import annotations

import torch
from pattern_programs import BF16, Pattern, below, noting, r, wide
from torch.nn import functional as F

SECOND: dict[str, Pattern] = {}
second = noting(SECOND)


@second(lambda: (r(8, 2048, 8192),))
def geglu_tanh(x):
    a, b = x.chunk(2, -1)
    return a * F.gelu(b, approximate="tanh")


@second(lambda: (r(8, 1024, 3072), r(1024, 64, g=False), r(1024, 64, g=False)))
def packed_rotary(x, c, s):
    q, k, v = x.view(8, 1024, 16, 192).split(64, -1)

    def turn(t):
        a, b = t.chunk(2, -1)
        return t * c[None, :, None] + torch.cat([-b, a], -1) * s[None, :, None]

    return turn(q).transpose(1, 2), turn(k).transpose(1, 2), v.transpose(1, 2).contiguous()


@second(lambda: (r(8, 12, 512, 512), r(12, 1, 1, g=False)))
def alibi_causal(s, m):
    i = torch.arange(512, device=s.device)
    d = i[None, :] - i[:, None]
    return torch.softmax((s.float() + m * d).masked_fill(d > 0, -torch.inf), -1).to(s.dtype)


@second(lambda: (r(16, 1000, 768), r(16, 1000, 768), r(768), r(768)), False)
def dropout_add_norm(x, y, w, b):
    return F.layer_norm(x + F.dropout(y, 0.1), (768,), w, b)


@second(lambda: (r(32, 197, 768), r(32, 197, 768), r(768), below(2, 32, 1, 1)))
def drop_path(x, y, g, keep):
    return x + y * g * keep.to(y.dtype) / 0.9


@second(lambda: (r(16, 1000, 3072), r(3072)))
def bias_gelu(x, b):
    return F.gelu(x + b)


@second(
    lambda: (below(30000, 32, 512), below(2, 32, 512), r(30000, 768), r(2, 768), r(512, 768), r(768), r(768))
)
def bert_embeddings(i, k, words, kinds, places, w, b):
    return F.layer_norm(F.embedding(i, words) + F.embedding(k, kinds) + places, (768,), w, b)


@second(lambda: (r(64, 512, 768), below(2, 64, 512)))
def masked_mean_normalised(x, m):
    m = m[..., None].to(x.dtype)
    return F.normalize((x * m).sum(1) / m.sum(1).clamp(min=1), dim=-1)


@second(lambda: (r(64, 16, 256, 32), r(64, 16, 256, 32), wide(16, 1, 1)))
def cosine_attention(q, k, t):
    return F.normalize(q, dim=-1) * t.clamp(max=4.6).exp().to(q.dtype), F.normalize(k, dim=-1)


@second(lambda: (r(2048, 49, 96), r(32, 56, 56, 96)))
def window_reverse_shifted(w, x):
    y = w.view(32, 8, 8, 7, 7, 96).permute(0, 1, 3, 2, 4, 5).reshape(32, 56, 56, 96)
    return x + torch.roll(y, (3, 3), (1, 2))


@second(lambda: (r(32, 56, 56, 96), r(384), r(384)))
def patch_merging(x, w, b):
    return F.layer_norm(
        torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1), (384,), w, b
    )


@second(lambda: (r(32, 40, 56, 56), wide(40), wide(40), wide(40, g=False), wide(40, g=False).abs()))
def bn_hardswish(x, w, b, m, v):
    return F.hardswish(F.batch_norm(x, m, v, w, b, True))


@second(lambda: (r(32, 96, 57, 57, g=False), *(wide(96, g=False) for _ in range(3)), wide(96, g=False).abs()))
def bn_silu_inference(x, w, b, m, v):
    return F.silu(F.batch_norm(x, m, v, w, b))


@second(lambda: (r(32, 256, 28, 28), r(256)))
def channel_attention(x, w):
    return x * torch.sigmoid(x.mean((2, 3), keepdim=True) * w[:, None, None])


@second(lambda: (r(32, 28, 28, 384), r(384), r(384)))
def response_norm(x, g, b):
    n = x.float().norm(dim=(1, 2), keepdim=True)
    n = n / (n.mean(-1, keepdim=True) + 1e-6)
    return g * (x * n.to(x.dtype)) + b + x


@second(lambda: (r(8, 1024, 2560), r(8, 1024, 2560), r(2560)))
def gated_rms(x, z, w):
    f = (x * F.silu(z)).float()
    return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * w


@second(lambda: (r(8, 2048, 80), wide(80), wide(80)))
def mamba_steps(dt, bias, log):
    dt = F.softplus(dt.float() + bias).clamp(1e-3, 1e-1)
    return dt, torch.exp(dt * -log.exp())


@second(lambda: (wide(4096, 1536), wide(4096, 1536), wide(4096, 512)))
def gru_cell(i, h, s):
    a, b, c = i.chunk(3, -1)
    d, e, f = h.chunk(3, -1)
    z = torch.sigmoid(b + e)
    return (1 - z) * torch.tanh(c + torch.sigmoid(a + d) * f) + z * s


@second(lambda: (wide(4096, 2048), wide(4096, 512)))
def lstm_cell(x, c):
    i, f, g, o = x.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


@second(lambda: (r(2048, 50257), torch.where(below(10, 2048) == 0, -100, below(50000, 2048))))
def cross_entropy_odd(x, t):
    return F.cross_entropy(x.float(), t)


@second(lambda: (wide(4096, 1203), (below(50, 4096, 1203) == 0).float(), wide(1203, g=False).abs()))
def weighted_binary(x, t, w):
    return F.binary_cross_entropy_with_logits(x, t, pos_weight=w)


@second(lambda: (wide(16, 4, 128, 128), below(4, 16, 128, 128)))
def dice(x, t):
    p = x.softmax(1)
    o = F.one_hot(t, 4).permute(0, 3, 1, 2)
    n = (p * o).sum((0, 2, 3))
    return 1 - (2 * n / (p.sum((0, 2, 3)) + o.sum((0, 2, 3)) + 1e-5)).mean()


@second(lambda: (wide(64, 100, 4), wide(64, 100, 4, g=False), below(2, 64, 100)))
def boxes(p, t, m):
    return (F.smooth_l1_loss(p, t, reduction="none").sum(-1) * m).sum() / m.sum().clamp(min=1)


@second(lambda: (wide(4096, 256), wide(4096, 256), wide(4096, 256)))
def triplet(a, b, c):
    return F.relu((a - b).pow(2).sum(-1) - (a - c).pow(2).sum(-1) + 0.2).mean()


@second(lambda: (wide(1 << 20), wide(1 << 20, g=False), wide(1 << 20, g=False)))
def clipped_policy(new, old, a):
    q = torch.exp(new - old)
    return -torch.min(q * a, q.clamp(0.8, 1.2) * a).mean()


@second(lambda: (r(8192, 1000, g=False), below(1000, 8192)))
def accuracy(x, t):
    return (x.argmax(-1) == t).float().mean()


@second(lambda: (r(8192, 4096, g=False),))
def quantise_rows(x):
    s = x.abs().amax(-1, keepdim=True).float() / 127
    return torch.round(x.float() / s).clamp(-128, 127).to(torch.int8), s


@second(
    lambda: (torch.randint(-128, 127, (4096, 4096), device="cuda", dtype=torch.int8), wide(4096, 1, g=False))
)
def dequantise(q, s):
    return (q.float() * s).to(BF16)


@second(
    lambda: (
        torch.randint(0, 255, (64, 224, 224, 3), device="cuda", dtype=torch.uint8),
        wide(3, g=False),
        wide(3, g=False),
    )
)
def images(x, m, s):
    return ((x.permute(0, 3, 1, 2).float() / 255 - m[:, None, None]) / s[:, None, None]).to(BF16)


@second(lambda: (wide(64, 3, 224, 224, g=False), wide(64, 1, 1, 1, g=False)))
def contrast(x, f):
    return (f * x + (1 - f) * x.mean((1, 2, 3), keepdim=True)).clamp(0, 1)


@second(lambda: (wide(32, 80, 3000, g=False).abs(),))
def log_mel(x):
    y = x.clamp(min=1e-10).log10()
    return (torch.maximum(y, y.amax((1, 2), keepdim=True) - 8) + 4) / 4


@second(lambda: (torch.arange(4096, device="cuda"), wide(1, g=False)))
def sinusoids(i, s):
    f = torch.exp(torch.arange(0, 1024, 2, device=i.device) * -0.009)
    a = i[:, None] * f
    return torch.cat([a.sin(), a.cos()], -1) * s


@second(lambda: (wide(65536, 3),))
def ray_encoding(x):
    y = x[..., None] * 2.0 ** torch.arange(10, device=x.device)
    return torch.cat([x, y.sin().flatten(1), y.cos().flatten(1)], -1)


@second(lambda: (r(1 << 24, g=False), wide(1 << 24, g=False)))
def moving_average(p, e):
    return e * 0.999 + p.float() * 0.001


@second(lambda: tuple(wide(1 << 24, g=False) for _ in range(4)))
def adam(p, g, m, v):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (v.abs().sqrt() + 1e-8), m, v


@second(lambda: (r(32, 64, 112, 112),))
def average_pool(x):
    return F.avg_pool2d(F.relu(x), 2)


@second(lambda: (r(32, 256, 28, 28), r(32, 256, 14, 14)))
def pyramid(x, y):
    return x + F.interpolate(y, scale_factor=2)


@second(lambda: (r(8, 128, 64, 64), r(8, 64, 64, 64), r(192), r(192)))
def skip_norm(x, y, w, b):
    return F.silu(F.group_norm(torch.cat([x, y], 1), 32, w, b))


@second(
    lambda: (r(8, 1024, 16, 64), torch.polar(torch.ones(1024, 32, device="cuda"), wide(1024, 32, g=False)))
)
def complex_rotary(x, f):
    return (
        torch.view_as_real(torch.view_as_complex(x.float().reshape(8, 1024, 16, 32, 2)) * f[None, :, None])
        .flatten(3)
        .to(x.dtype)
    )


@second(lambda: (r(64, 512, 384), r(64, 512, 384), r(64, 512, 384)))
def channels_first(x, y, z):
    return torch.stack([x, y, z], 1).transpose(2, 3).contiguous() * 0.5


@second(lambda: (r(32, 21, 65, 65),))
def resize_logits(x):
    return F.interpolate(x, size=(129, 129), mode="bilinear", align_corners=True).log_softmax(1)
