"""Optimizer steps over lists of tensors, attention and normalisation variants."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from strangers.corpus import program


def _tensors(shapes, scale=1.0):
    return tuple(scale * torch.randn(s) for s in shapes)


@program
def lamb_trust_ratios():
    """A LAMB step over six parameters: moments, decoupled decay, a trust ratio for each."""
    shapes = [(64, 32), (64,), (64, 64), (64,), (10, 64), (10,)]

    def f(*state, lr=2e-3, b1=0.9, b2=0.999, wd=0.01, step=10):
        n = len(state) // 4
        out = []
        for p, g, m, v in zip(state[:n], state[n : 2 * n], state[2 * n : 3 * n], state[3 * n :]):
            m = m * b1 + g * (1 - b1)
            v = v * b2 + g * g * (1 - b2)
            update = (m / (1 - b1**step)) / ((v / (1 - b2**step)).sqrt() + 1e-6) + wd * p
            w_norm, u_norm = p.norm(), update.norm()
            ratio = torch.where((w_norm > 0) & (u_norm > 0), w_norm.clamp(0, 10) / u_norm, torch.ones(()))
            out += [p - lr * ratio * update, m, v]
        return tuple(out)

    v = tuple(torch.rand(s) + 0.1 for s in shapes)
    return f, _tensors(shapes, 0.3) + _tensors(shapes) + _tensors(shapes, 0.1) + v


@program
def muon_bf16_orthogonalise():
    """Muon: Nesterov momentum, five quintic Newton-Schulz iterations in bfloat16, scaled update."""

    def zeropower(g, steps=5, eps=1e-7):
        a, b, c = 3.4445, -4.7750, 2.0315
        x = g.bfloat16()
        x = x / (x.norm() + eps)
        if g.size(0) > g.size(1):
            x = x.T
        for _ in range(steps):
            s = x @ x.T
            x = a * x + (b * s + c * s @ s) @ x
        if g.size(0) > g.size(1):
            x = x.T
        return x

    def f(p, g, buf):
        buf = torch.lerp(buf, g, 0.05)
        u = zeropower(torch.lerp(g, buf, 0.95))
        scale = max(1, g.size(0) / g.size(1)) ** 0.5
        return p * (1 - 0.02 * 0.01) - (0.02 * scale * u).to(p.dtype), buf

    args = torch.randn(3, 96, 64).to(torch.bfloat16)
    return f, tuple(args.unbind(0))


@program
def clip_global_norm_then_ema():
    """Gradients of five tensors clipped by their global norm, SGD with momentum, an average of weights."""
    shapes = [(32, 16), (32,), (16, 32), (16,), (1,)]

    def f(*state, max_norm=1.0, decay=0.999):
        n = len(state) // 4
        params, grads, bufs, ema = (state[i * n : (i + 1) * n] for i in range(4))
        total = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
        coef = torch.clamp(max_norm / (total + 1e-6), max=1.0)
        bufs = [0.9 * b + coef * g for b, g in zip(bufs, grads)]
        params = [p - 0.1 * b for p, b in zip(params, bufs)]
        ema = [decay * e + (1 - decay) * p for e, p in zip(ema, params)]
        return (total, *params, *bufs, *ema)

    return f, _tensors(shapes) + _tensors(shapes) + _tensors(shapes) + _tensors(shapes)


class _SelectiveScan(nn.Module):
    def __init__(self, d=48, n=8, rank=4):
        super().__init__()
        self.inp = nn.Linear(d, 2 * d, bias=False)
        self.conv = nn.Conv1d(d, d, 4, groups=d, padding=3)
        self.x_proj = nn.Linear(d, rank + 2 * n, bias=False)
        self.dt_proj = nn.Linear(rank, d)
        self.log_a = nn.Parameter(torch.log(torch.arange(1.0, n + 1)).repeat(d, 1))
        self.skip = nn.Parameter(torch.ones(d))
        self.out = nn.Linear(d, d, bias=False)
        self.n, self.rank = n, rank

    def forward(self, x):
        b, t_max, d = x.shape
        x, z = self.inp(x).chunk(2, -1)
        x = F.silu(self.conv(x.transpose(1, 2))[..., :t_max]).transpose(1, 2)
        dt, bb, cc = self.x_proj(x).split([self.rank, self.n, self.n], -1)
        dt = F.softplus(self.dt_proj(dt))
        da = torch.exp(dt[..., None] * -self.log_a.exp())
        dbx = dt[..., None] * bb[:, :, None, :] * x[..., None]
        h = x.new_zeros(b, d, self.n)
        ys = []
        for t in range(t_max):
            h = da[:, t] * h + dbx[:, t]
            ys.append(torch.einsum("bdn,bn->bd", h, cc[:, t]))
        return self.out((torch.stack(ys, 1) + self.skip * x) * F.silu(z))


@program
def mamba_selective_scan():
    """A Mamba block with its selective scan as a loop."""
    block = _SelectiveScan().requires_grad_(False)

    def f(x):
        return block(x)

    return f, (torch.randn(4, 32, 48),)


@program
def differential_attention_fp16():
    """Differential attention in float16: two softmaxes subtracted, normalised by head."""

    def f(q, k, v, lam, lambda_init=0.8):
        b, h2, t, d = q.shape
        att = (q * d**-0.5) @ k.transpose(-1, -2)
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
        att = F.softmax(att.masked_fill(mask, float("-inf")), dim=-1, dtype=torch.float32).type_as(att)
        att = att.view(b, h2 // 2, 2, t, t)
        lam = torch.exp((lam[0] * lam[1]).sum()) - torch.exp((lam[2] * lam[3]).sum()) + lambda_init
        out = (att[:, :, 0] - lam.type_as(att) * att[:, :, 1]) @ v
        var = out.float().pow(2).mean(-1, keepdim=True)
        out = (out.float() * torch.rsqrt(var + 1e-5)).type_as(v) * (1 - lambda_init)
        return out.transpose(1, 2).reshape(b, t, -1)

    q, k = torch.randn(2, 1, 8, 96, 32).half()
    return f, (q, k, torch.randn(1, 4, 96, 64).half(), 0.1 * torch.randn(4, 32))


@program
def latent_attention_decode_bf16():
    """DeepSeek's latent attention at decoding, up-projections absorbed, in bfloat16."""

    def f(q_nope, q_rope, c_kv, k_rope, w_uk, w_uv):
        q_abs = torch.einsum("bhd,hdc->bhc", q_nope, w_uk)
        scores = torch.einsum("bhc,btc->bht", q_abs, c_kv) + torch.einsum("bhr,btr->bht", q_rope, k_rope)
        scale = 1.0 / math.sqrt(q_nope.shape[-1] + q_rope.shape[-1])
        att = torch.softmax(scores.float() * scale, dim=-1).to(c_kv.dtype)
        ctx = torch.einsum("bht,btc->bhc", att, c_kv)
        return torch.einsum("bhc,hcd->bhd", ctx, w_uv).flatten(1)

    b, h, t, c = 2, 8, 200, 64
    args = _tensors([(b, h, 32), (b, h, 16), (b, t, c), (b, t, 16)]) + _tensors([(h, 32, c), (h, c, 32)], 0.1)
    return f, tuple(a.bfloat16() for a in args)


@program
def convnext_grn_channels_last():
    """Two ConvNeXt V2 blocks on a channels-last image, with global response normalisation."""

    def block(x, dw, w1, w2, gamma, beta):
        h = F.conv2d(x, dw, padding=3, groups=x.shape[1]).permute(0, 2, 3, 1)
        h = F.layer_norm(h, (h.shape[-1],), eps=1e-6)
        h = F.gelu(h @ w1)
        gx = torch.linalg.vector_norm(h, dim=(1, 2), keepdim=True)
        nx = gx / (gx.mean(dim=-1, keepdim=True) + 1e-6)
        h = gamma * (h * nx) + beta + h
        return x + (h @ w2).permute(0, 3, 1, 2)

    def f(x, dw, w1, w2, gamma, beta):
        for i in range(dw.shape[0]):
            x = block(x, dw[i], w1[i], w2[i], gamma[i], beta[i])
        return x

    c = 40
    x = torch.randn(2, c, 56, 56).to(memory_format=torch.channels_last)
    ws = 0.1 * torch.randn(2, c, 1, 7, 7), 0.15 * torch.randn(2, c, 4 * c), 0.08 * torch.randn(2, 4 * c, c)
    return f, (x, *ws, 0.1 * torch.randn(2, 4 * c), 0.1 * torch.randn(2, 4 * c))
