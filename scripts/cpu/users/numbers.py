"""Quantised, integer, half and complex numbers, embeddings and routing."""

# ruff: noqa: N803, RUF059 (names are those of their formulas)
from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from users.corpus import program

# ----------------------------------------------------- quantisation, bit tricks


@program
def fake_quant_per_channel_conv():
    """QAT forward: per-channel int8 weights, per-tensor asymmetric activations."""

    def f(x, w):
        s_w = w.abs().amax((1, 2, 3), keepdim=True) / 127
        wq = (w / s_w).round().clamp(-127, 127)
        lo, hi = x.min().clamp(max=0), x.max().clamp(min=0)
        s_x = (hi - lo) / 255
        zp = (-lo / s_x).round()
        xq = (x / s_x + zp).round().clamp(0, 255)
        xd = (xq - zp) * s_x
        y = F.conv2d(xd, wq * s_w, padding=1, stride=2)
        err = ((x - xd) ** 2).mean()
        return F.hardswish(y), 10 * torch.log10((x**2).mean() / err), wq.to(torch.int8)

    # values near the quantisation grid, so that no last-bit difference changes a rounding
    x = torch.randint(-99, 155, (4, 24, 48, 48)) + 0.6 * (torch.rand(4, 24, 48, 48) - 0.5)
    x[0, 0, 0, 0], x[0, 0, 0, 1] = -100, 155
    w = torch.randint(-126, 127, (48, 24, 3, 3)) + 0.6 * (torch.rand(48, 24, 3, 3) - 0.5)
    w[:, 0, 0, 0] = 127
    return f, (x * 0.02, w * 0.001)


@program
def int4_group_dequant_matmul():
    """Weights packed two nibbles a byte, group scales and zeros, GPTQ-like."""

    def f(x, packed, scales, zeros):
        lo = packed & 0xF
        hi = packed >> 4
        q = torch.stack([lo, hi], dim=-1).reshape(packed.shape[0], -1)
        q = q.view(q.shape[0], -1, 32).float()
        w = ((q - zeros[..., None]) * scales[..., None]).flatten(1)
        return F.gelu(x @ w.t(), approximate="tanh")

    return f, (
        torch.randn(4, 512),
        torch.randint(0, 256, (768, 256), dtype=torch.uint8),
        torch.rand(768, 16) * 0.02,
        torch.randint(0, 16, (768, 16)).float(),
    )


@program
def morton_popcount_hash():
    """Z-order codes, popcount, Gray code and a 32-bit mixing hash, on int64."""

    def spread(v):
        v = (v | (v << 8)) & 0x00FF00FF
        v = (v | (v << 4)) & 0x0F0F0F0F
        v = (v | (v << 2)) & 0x33333333
        return (v | (v << 1)) & 0x55555555

    def f(xy):
        x, y = xy[:, 0], xy[:, 1]
        code = spread(x) | (spread(y) << 1)
        gray = code ^ (code >> 1)
        v = code - ((code >> 1) & 0x55555555)
        v = (v & 0x33333333) + ((v >> 2) & 0x33333333)
        pop = (((v + (v >> 4)) & 0x0F0F0F0F) * 0x01010101 & 0xFFFFFFFF) >> 24
        hsh = (code * 0x45D9F3B) & 0xFFFFFFFF
        hsh = (((hsh >> 16) ^ hsh) * 0x45D9F3B) & 0xFFFFFFFF
        hsh = (hsh >> 16) ^ hsh
        u = (hsh & 0xFFFFFF).float() / 16777216.0
        return code, gray, pop.to(torch.int32), u, (hsh % 64 == 0)

    return f, (torch.randint(0, 65536, (3000, 2)),)


@program
def game_of_life_and_hist():
    """Eight generations of Conway on bools, then a row/col integer histogram."""

    def f(board):
        b = board
        for _ in range(8):
            x = b.to(torch.int32)
            rows = x + x.roll(1, 0) + x.roll(-1, 0)
            nb = rows + rows.roll(1, 1) + rows.roll(-1, 1) - x
            b = (nb == 3) | (b & (nb == 2))
        cnt = b.sum(1)
        hist = (cnt.clamp(max=63)[:, None] == torch.arange(64)).sum(0)
        return b, hist, torch.flip(b, (0,)).logical_xor(b).sum()

    return f, (torch.rand(128, 128) < 0.35,)


# --------------------------------------------------------------- half precision


@program
def bf16_mlp_gelu():
    m = (
        nn.Sequential(nn.Linear(192, 384), nn.GELU(), nn.Linear(384, 192), nn.LayerNorm(192))
        .bfloat16()
        .eval()
    )
    m.requires_grad_(False)

    def f(x):
        return x + m(x)

    return f, (torch.randn(256, 192).bfloat16(),)


@program
def fp16_softmax_upcast():
    """fp16 scores, fp32 softmax with softcap, back to fp16."""

    def f(s, bias):
        x = s.float() + bias.float()
        x = 30.0 * torch.tanh(x / 30.0)
        p = torch.softmax(x, -1)
        ent = -(p * (p + 1e-9).log()).sum(-1)
        return p.half(), ent.half()

    return f, (torch.randn(4, 64, 64).half() * 8, torch.randn(64, 64).half())


@program
def bf16_rms_rope():
    """HF style RMSNorm (fp32 inside) and rotate_half on bf16."""

    def rms(x, w):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return w * h.to(x.dtype)

    def half_rot(x):
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)

    def f(q, k, wq, wk, pos):
        inv = 1e4 ** (-torch.arange(0, 64, 2).float() / 64)
        fr = torch.outer(pos.float(), inv)
        emb = torch.cat([fr, fr], -1)
        cos, sin = emb.cos().bfloat16(), emb.sin().bfloat16()
        q, k = rms(q, wq), rms(k, wk)
        return q * cos + half_rot(q) * sin, k * cos + half_rot(k) * sin

    return f, (
        torch.randn(1, 8, 256, 64).bfloat16(),
        torch.randn(1, 4, 256, 64).bfloat16(),
        torch.ones(64).bfloat16(),
        torch.ones(64).bfloat16(),
        torch.arange(256),
    )


@program
def fp16_loss_scaled_unscale():
    """GradScaler by hand: unscale fp16 grads, detect inf, skip with where."""

    def f(master, g16, scale):
        g = g16.float() / scale
        bad = ~torch.isfinite(g).all()
        norm = torch.nan_to_num(g, 0.0, 0.0, 0.0).norm()
        step = 0.1 * g / torch.clamp(norm, min=1.0)
        new = torch.where(bad, master, master - step)
        return new, new.half(), torch.where(bad, scale * 0.5, scale), bad

    return f, (torch.randn(100, 60), (torch.randn(100, 60) * 100).half(), torch.tensor(1024.0))


@program
def bf16_attention_small():
    def f(x, w):
        q, k, v = (x @ w).split(32, dim=-1)
        s = (q @ k.mT).float() * 32**-0.5
        m = torch.ones(s.shape[-2:], dtype=torch.bool).tril()
        p = s.where(m, -torch.inf).softmax(-1).to(v.dtype)
        return p @ v

    return f, (torch.randn(4, 48, 32).bfloat16(), torch.randn(32, 96).bfloat16() / 6)


@program
def fp16_image_norm_stack():
    """uint8 HWC frames -> fp16 NCHW, ImageNet stats, flip TTA, 2x pooled."""

    def f(frames):
        x = frames.permute(0, 3, 1, 2).to(torch.float16) / 255
        mean = torch.tensor([0.485, 0.456, 0.406], dtype=torch.float16)[:, None, None]
        std = torch.tensor([0.229, 0.224, 0.225], dtype=torch.float16)[:, None, None]
        x = (x - mean) / std
        x = torch.cat([x, x.flip(-1)])
        small = x.float().unflatten(-1, (-1, 2)).mean(-1).unflatten(-2, (-1, 2)).mean(-2)
        return x, small.half(), x.float().mean((2, 3))

    return f, (torch.randint(0, 256, (4, 128, 128, 3), dtype=torch.uint8),)


# ------------------------------------------------ embeddings, routing, shuffles


@program
def embed_bag_positional():
    """Token + sinusoidal + bucketed segment embeddings, masked mean pool."""

    def f(tok, seg, table, seg_table, pad_id: int):
        b, t = tok.shape
        d = table.shape[1]
        pos = torch.arange(t).unsqueeze(1)
        div = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        pe = torch.zeros(t, d)
        pe[:, 0::2] = torch.sin(pos * div)
        pe[:, 1::2] = torch.cos(pos * div)
        x = F.embedding(tok, table, padding_idx=pad_id) * math.sqrt(d) + pe + seg_table[seg]
        x = F.layer_norm(x, (d,))
        m = (tok != pad_id).unsqueeze(-1)
        return x, (x * m).sum(1) / m.sum(1).clamp(min=1)

    tok = torch.randint(1, 5000, (32, 128))
    tok[:, 100:] = 0
    return f, (tok, torch.randint(0, 3, (32, 128)), torch.randn(5000, 128), torch.randn(3, 128), 0)


@program
def t5_bias_logbuckets():
    """T5 relative position buckets and the looked-up bias."""

    def f(table, scores):
        q, k = scores.shape[-2:]
        rel = torch.arange(k)[None, :] - torch.arange(q)[:, None]
        nb, md = 16, 128
        ret = (rel > 0).long() * nb
        n = rel.abs()
        exact = nb // 2
        large = (
            exact
            + (torch.log(n.float().clamp(min=1) / exact) / math.log(md / exact) * (nb - exact) + 1e-4).long()
        )
        large = torch.min(large, torch.full_like(large, nb - 1))
        bucket = ret + torch.where(n < exact, n, large)
        return torch.softmax(scores + table[bucket].permute(2, 0, 1), -1), bucket

    return f, (torch.randn(32, 4), torch.randn(2, 4, 50, 50))


@program
def moe_top2_dense():
    """Top-2 routing, every expert run densely, load-balance and z losses."""

    def f(x, wg, w1, w2):
        logits = x @ wg
        probs = logits.softmax(-1)
        topv, topi = probs.topk(2, -1)
        topv = topv / topv.sum(-1, keepdim=True)
        comb = torch.zeros_like(probs).scatter(1, topi, topv)
        h = F.silu(torch.einsum("td,edh->eth", x, w1))
        y = torch.einsum("eth,ehd->etd", h, w2)
        out = torch.einsum("etd,te->td", y, comb)
        load = F.one_hot(topi, probs.shape[1]).float().sum(1).mean(0)
        aux = probs.shape[1] * (load * probs.mean(0)).sum() / 2
        return out, aux, logits.logsumexp(-1).square().mean()

    return f, (
        torch.randn(96, 64),
        torch.randn(64, 8) / 8,
        torch.randn(8, 64, 64) / 8,
        torch.randn(8, 64, 64) / 8,
    )


@program
def subpixel_upsampler():
    """ESPCN: replicate pad, convs, pixel_shuffle, channel shuffle, residual."""
    m = nn.ModuleList([nn.Conv2d(3, 24, 5), nn.Conv2d(24, 24, 3, groups=4), nn.Conv2d(24, 12, 3)]).eval()
    m.requires_grad_(False)

    def f(x):
        h = torch.tanh(m[0](F.pad(x, (2,) * 4, mode="replicate")))
        h = torch.tanh(m[1](F.pad(h, (1,) * 4, mode="replicate")))
        n, c, hh, ww = h.shape
        h = h.view(n, 4, c // 4, hh, ww).transpose(1, 2).reshape(n, c, hh, ww)
        up = F.pixel_shuffle(m[2](F.pad(h, (1,) * 4, mode="circular")), 2)
        return (up + F.interpolate(x, scale_factor=2, mode="nearest")).clamp(0, 1), F.pixel_unshuffle(
            up, 4
        ).mean((2, 3))

    return f, (torch.rand(1, 3, 72, 72),)


@program
def einsum_tensor_network():
    """MPS contraction, a bilinear pooling and a triangular distance average."""

    def f(cores, phys, a, b, W):
        v = torch.ones(phys.shape[1], 1)
        for i, c in enumerate(cores):
            v = torch.einsum("bl,lpr,bp->br", v, c, phys[i])
            v = v / v.abs().amax(1, keepdim=True)
        z = torch.einsum("bi,oij,bj->bo", a, W, b)
        z = torch.sign(z) * z.abs().sqrt()
        iu = torch.triu(torch.ones(a.shape[0], a.shape[0]), 1)
        g = ((a[:, None] - a[None]).abs().sum(-1) * iu).sum() / iu.sum()
        return v, F.normalize(z, dim=-1), g

    dims = [1, 4, 8, 4, 1]
    return f, (
        [torch.rand(dims[i], 2, dims[i + 1]) for i in range(4)],
        torch.rand(4, 12, 2),
        torch.randn(12, 10),
        torch.randn(12, 12),
        torch.randn(16, 10, 12),
    )


# -------------------------------------------------------------------- complex


@program
def mandelbrot_complex():
    """Smooth escape-time Mandelbrot on a complex grid, 12 iterations."""

    def f(re, im):
        c = torch.complex(re, im)
        z = torch.zeros_like(c)
        n = torch.zeros(re.shape)
        for _ in range(12):
            z = z * z + c
            mag = z.real**2 + z.imag**2
            alive = mag < 16.0
            n = n + alive.float()
            z = torch.where(alive, z, torch.full_like(z, 5.0))
        return n, torch.angle(z)

    y, x = torch.meshgrid(torch.linspace(-1.2, 1.2, 360), torch.linspace(-2, 0.7, 400), indexing="ij")
    return f, (x.contiguous(), y.contiguous())


@program
def fft_phase_correlation():
    """Hilbert envelope and cross-spectrum coherence through FFTs."""

    def f(x, y):
        n = x.shape[-1]
        X, Y = torch.fft.rfft(x), torch.fft.rfft(y)
        cross = X * Y.conj()
        shift = torch.fft.irfft(cross / (cross.abs() + 1e-6), n)
        coh = cross.mean(0).abs() ** 2 / (X.abs().square().mean(0) * Y.abs().square().mean(0) + 1e-9)
        full = torch.fft.fft(x)
        hmask = torch.zeros(n)
        hmask[0] = 1
        hmask[1 : n // 2] = 2
        hmask[n // 2] = 1
        env = torch.fft.ifft(full * hmask).abs()
        return shift, coh, env

    x = torch.randn(8, 256)
    return f, (x, x.roll(5, 1) + 0.2 * torch.randn(8, 256))
