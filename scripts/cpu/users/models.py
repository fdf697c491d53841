"""Pointwise chains, losses, norms and attention, as users write them: see the package."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from users.corpus import program

# ------------------------------------------------------------------ pointwise


@program
def snake_and_friends():
    """A zoo of unusual activations, averaged (someone's ablation notebook)."""

    def f(x, a):
        snake = x + torch.sin(a * x).square() / (a + 1e-6)
        relu2 = F.relu(x) ** 2
        mish = x * torch.tanh(F.softplus(x))
        soft_exp = torch.where(x > 0, x, torch.expm1(x))
        bent = (torch.sqrt(x * x + 1) - 1) / 2 + x
        isru = x * torch.rsqrt(1 + 0.1 * x * x)
        return torch.stack([snake, relu2, mish, soft_exp, bent, isru]).mean(0)

    return f, (torch.randn(256, 1024), torch.rand(1024) + 0.5)


@program
def planck_curve():
    """Blackbody radiance at several temperatures, normalised to the peak."""

    def f(lam_nm, temp):
        h, c, k = 6.62607015e-34, 2.99792458e8, 1.380649e-23
        lam = lam_nm * 1e-9
        ex = (h * c / k) / (lam[None, :] * temp[:, None])
        log_b = -5 * torch.log(lam[None, :] * 1e6) - torch.log(torch.expm1(ex.clamp(max=80.0)))
        b = torch.exp(log_b - log_b.amax(dim=1, keepdim=True))
        return b, lam_nm[b.argmax(dim=1)]

    return f, (torch.linspace(200, 3000, 400), torch.tensor([3000.0, 4000, 5000, 5778, 8000]))


# --------------------------------------------------------------------- losses


@program
def focal_loss_dense():
    """RetinaNet style sigmoid focal loss over a big anchor grid."""

    def focal(logits, targets, alpha=0.25, gamma=2.0):
        p = torch.sigmoid(logits)
        ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        p_t = p * targets + (1 - p) * (1 - targets)
        a_t = alpha * targets + (1 - alpha) * (1 - targets)
        loss = a_t * ce * (1 - p_t) ** gamma
        npos = targets.sum().clamp(min=1)
        return loss.sum() / npos

    return focal, (torch.randn(4, 9 * 40 * 40, 20), (torch.rand(4, 9 * 40 * 40, 20) < 0.01).float())


@program
def soft_dice_plus_boundary():
    """Segmentation: soft Dice per class plus a boundary-weighted CE."""

    def f(logits, labels):
        c = logits.shape[1]
        prob = logits.softmax(1)
        onehot = F.one_hot(labels, c).permute(0, 3, 1, 2).to(prob.dtype)
        inter = (prob * onehot).sum((2, 3))
        card = (prob + onehot).sum((2, 3))
        dice = 1 - (2 * inter + 1) / (card + 1)
        edge = F.max_pool2d(onehot, 3, 1, 1) - onehot
        w = 1 + 4 * edge.amax(1)
        ce = F.cross_entropy(logits, labels, reduction="none")
        return dice.mean(), (w * ce).sum() / w.sum()

    return f, (torch.randn(2, 5, 96, 96), torch.randint(0, 5, (2, 96, 96)))


@program
def info_nce_symmetric():
    """CLIP loss."""

    def f(img, txt, log_scale):
        img = img / img.norm(dim=-1, keepdim=True)
        txt = txt / txt.norm(dim=-1, keepdim=True)
        logits = log_scale.exp() * img @ txt.t()
        lab = torch.arange(img.size(0), device=img.device)
        acc = (logits.argmax(1) == lab).float().mean()
        return (F.cross_entropy(logits, lab) + F.cross_entropy(logits.t(), lab)) / 2, acc

    return f, (torch.randn(64, 128), torch.randn(64, 128), torch.tensor(2.6593))


@program
def ctc_forward_scores():
    """Alpha recursion of CTC in log space, written by hand, T=18."""

    def f(log_probs, ext):
        # log_probs: T,B,C   ext: B,S  labels interleaved with blank (0)
        T, B, _ = log_probs.shape
        S = ext.shape[1]
        neg = -1e4
        emit = log_probs.gather(2, ext[None].expand(T, -1, -1))
        skip_ok = torch.zeros(B, S, dtype=torch.bool)
        skip_ok[:, 2:] = (ext[:, 2:] != 0) & (ext[:, 2:] != ext[:, :-2])
        alpha = torch.full((B, S), neg)
        alpha[:, :2] = emit[0, :, :2]
        for t in range(1, T):
            a1 = F.pad(alpha[:, :-1], (1, 0), value=neg)
            a2 = F.pad(alpha[:, :-2], (2, 0), value=neg)
            a2 = torch.where(skip_ok, a2, torch.full_like(a2, neg))
            alpha = torch.logsumexp(torch.stack([alpha, a1, a2]), dim=0) + emit[t]
        return -torch.logaddexp(alpha[:, -1], alpha[:, -2])

    lab = torch.randint(1, 20, (8, 7))
    ext = torch.zeros(8, 15, dtype=torch.long)
    ext[:, 1::2] = lab
    return f, (torch.randn(18, 8, 20).log_softmax(-1), ext)


@program
def quantile_huber():
    """QR-DQN loss: pairwise TD errors, Huber, asymmetric weights."""

    def f(theta, target, tau):
        u = target[:, None, :] - theta[:, :, None]
        k = 1.0
        hub = torch.where(u.abs() <= k, 0.5 * u * u, k * (u.abs() - 0.5 * k))
        w = (tau[None, :, None] - (u.detach() < 0).float()).abs()
        return (w * hub / k).mean(dim=2).sum(dim=1)

    n = 64
    return f, (torch.randn(256, n), torch.randn(256, n) * 2, (torch.arange(n) + 0.5) / n)


@program
def batch_hard_triplet():
    """Hardest positive / hardest negative in the batch."""

    def f(emb, labels):
        sq = emb.pow(2).sum(1)
        d2 = sq[:, None] - 2 * emb @ emb.T + sq[None, :]
        d = d2.clamp_min(1e-12).sqrt()
        same = labels[:, None] == labels[None, :]
        eye = torch.eye(len(labels), dtype=torch.bool)
        hard_pos = d.masked_fill(~(same & ~eye), float("-inf")).max(1).values
        hard_neg = d.masked_fill(same, float("inf")).min(1).values
        loss = F.relu(hard_pos - hard_neg + 0.3)
        return loss.mean(), (loss > 0).float().mean()

    return f, (torch.randn(96, 32), torch.arange(96) % 12)


# ---------------------------------------------------------------------- norms


@program
def group_norm_silu_conv():
    """Diffusion U-Net block with GroupNorm written out and a time embedding."""

    def gn(x, groups, w, b):
        n, c, h, wd = x.shape
        y = x.reshape(n, groups, -1)
        mu = y.mean(-1, keepdim=True)
        var = y.var(-1, unbiased=False, keepdim=True)
        y = (y - mu) / torch.sqrt(var + 1e-5)
        return y.view(n, c, h, wd) * w[:, None, None] + b[:, None, None]

    def f(x, temb, w1, b1, w2, b2, k1, k2, tw):
        h = F.conv2d(F.silu(gn(x, 8, w1, b1)), k1, padding=1)
        h = h + (F.silu(temb) @ tw)[:, :, None, None]
        h = F.conv2d(F.silu(gn(h, 8, w2, b2)), k2, padding=1)
        return x + h

    c = 32
    return f, (
        torch.randn(2, c, 32, 32),
        torch.randn(2, 64),
        torch.rand(c),
        torch.randn(c),
        torch.rand(c),
        torch.randn(c),
        torch.randn(c, c, 3, 3) * 0.05,
        torch.randn(c, c, 3, 3) * 0.05,
        torch.randn(64, c) * 0.1,
    )


@program
def rmsnorm_swiglu_block():
    """Llama's MLP half."""

    class RMSNorm(nn.Module):
        def __init__(self, d, eps=1e-6):
            super().__init__()
            self.eps = eps
            self.weight = nn.Parameter(torch.ones(d) + 0.1 * torch.randn(d))

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight

    class Block(nn.Module):
        def __init__(self, d, h):
            super().__init__()
            self.norm = RMSNorm(d)
            self.w1 = nn.Linear(d, h, bias=False)
            self.w3 = nn.Linear(d, h, bias=False)
            self.w2 = nn.Linear(h, d, bias=False)

        def forward(self, x):
            y = self.norm(x)
            return x + self.w2(F.silu(self.w1(y)) * self.w3(y))

    m = Block(256, 688).eval().requires_grad_(False)
    return m, (torch.randn(4, 256, 256),)


@program
def adain_style():
    """AdaIN: swap the channel statistics, with a content/style weight."""

    def stats(x):
        v = x.flatten(2).var(dim=2, unbiased=True) + 1e-5
        return x.flatten(2).mean(dim=2)[:, :, None, None], v.sqrt()[:, :, None, None]

    def f(content, style, alpha):
        mc, sc = stats(content)
        ms, ss = stats(style)
        t = (content - mc) / sc * ss + ms
        out = alpha * t + (1 - alpha) * content
        gram = torch.bmm(out.flatten(2), out.flatten(2).transpose(1, 2)) / out[0].numel()
        return out, gram

    return f, (torch.randn(1, 64, 64, 64), torch.randn(1, 64, 48, 48) * 2 + 1, torch.tensor(0.7))


@program
def weight_norm_and_spectral():
    """Weight-normed conv1d followed by a spectrally normalised linear layer."""

    def f(x, v, g, b, w, u):
        vn = v.flatten(1).norm(dim=1)
        h = F.leaky_relu(F.conv1d(x, v * (g / vn)[:, None, None], b, padding=4, dilation=2), 0.2)
        for _ in range(3):
            z = F.normalize(w.t() @ u, dim=0, eps=1e-12)
            u = F.normalize(w @ z, dim=0, eps=1e-12)
        sigma = u @ (w @ z)
        return F.linear(h.mean(-1), w / sigma), sigma

    return f, (
        torch.randn(2, 8, 100),
        torch.randn(16, 8, 5),
        torch.rand(16),
        torch.randn(16),
        torch.randn(12, 16),
        F.normalize(torch.randn(12), dim=0),
    )


@program
def batchnorm_train_by_hand():
    """Training-mode batch norm; returns the new running stats as well."""

    def f(x, gamma, beta, rm, rv):
        dims = (0, 2, 3)
        mu = x.mean(dims)
        var = x.var(dims, unbiased=False)
        n = x.numel() / x.shape[1]
        y = (x - mu.view(1, -1, 1, 1)) / (var.view(1, -1, 1, 1) + 1e-5).sqrt()
        y = F.relu6(y * gamma.view(1, -1, 1, 1) + beta.view(1, -1, 1, 1))
        new_rm = torch.lerp(rm, mu, 0.1)
        new_rv = 0.9 * rv + 0.1 * var * n / (n - 1)
        ref = F.batch_norm(x, None, None, gamma, beta, training=True)
        return y, new_rm, new_rv, (F.relu6(ref) - y).abs().mean()

    return f, (
        torch.randn(16, 24, 28, 28) * 3 + 1,
        torch.rand(24) + 0.5,
        torch.randn(24),
        torch.zeros(24),
        torch.ones(24),
    )


# ------------------------------------------------------------------ attention


@program
def causal_padded_attention():
    """Multi-head attention from scratch: causal AND key padding masks."""

    def f(x, wqkv, wo, lengths):
        b, t, d = x.shape
        nh = 4
        q, k, v = (x @ wqkv).chunk(3, dim=-1)
        q, k, v = [z.view(b, t, nh, d // nh).transpose(1, 2) for z in (q, k, v)]
        s = q @ k.transpose(-2, -1) / math.sqrt(d // nh)
        causal = torch.tril(torch.ones(t, t, dtype=torch.bool))
        keep = torch.arange(t)[None, :] < lengths[:, None]
        s = s.masked_fill(~(causal & keep[:, None, None, :]), float("-inf"))
        p = torch.softmax(s, dim=-1)
        return (p @ v).transpose(1, 2).reshape(b, t, d) @ wo, p.mean(1)

    d = 128
    return f, (
        torch.randn(4, 128, d),
        torch.randn(d, 3 * d) / 11,
        torch.randn(d, d) / 11,
        torch.tensor([128, 100, 64, 17]),
    )


@program
def alibi_attention():
    def f(q, k, v):
        h, t = q.shape[1], q.shape[2]
        slopes = 2.0 ** (-8.0 * torch.arange(1, h + 1) / h)
        pos = torch.arange(t)
        dist = (pos[None, :] - pos[:, None]).float()
        bias = slopes[:, None, None] * dist
        bias = bias + torch.full((t, t), float("-inf")).triu(1)
        s = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5 + bias
        s = s - s.amax(-1, keepdim=True)
        e = s.exp()
        return torch.einsum("bhij,bhjd->bhid", e / e.sum(-1, keepdim=True), v)

    return f, tuple(torch.randn(1, 4, 40, 16) for _ in range(3))


@program
def rotary_gqa_decode():
    """One decode step with RoPE, grouped-query heads and a KV cache."""

    def rot(x, cos, sin):
        x1, x2 = x[..., ::2], x[..., 1::2]
        return torch.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], dim=-1).flatten(-2)

    def f(q, k_new, v_new, kc, vc, pos):
        d = q.shape[-1]
        inv = 1.0 / (10000 ** (torch.arange(0, d, 2).float() / d))
        ang = pos.float()[:, None] * inv
        cos, sin = ang.cos()[:, None, :], ang.sin()[:, None, :]
        q, k_new = rot(q, cos, sin), rot(k_new, cos, sin)
        k = torch.cat([kc, k_new[:, :, None]], dim=2).repeat_interleave(4, dim=1)
        v = torch.cat([vc, v_new[:, :, None]], dim=2).repeat_interleave(4, dim=1)
        s = (q[:, :, None] * k).sum(-1) / math.sqrt(d)
        return (s.softmax(-1)[..., None] * v).sum(2)

    return f, (
        torch.randn(2, 8, 64),
        torch.randn(2, 2, 64),
        torch.randn(2, 2, 64),
        torch.randn(2, 2, 63, 64),
        torch.randn(2, 2, 63, 64),
        torch.tensor([63, 63]),
    )


@program
def swin_shifted_window():
    """Swin window attention with cyclic shift and relative position bias."""
    ws, nh, shift, H = 7, 3, 3, 28

    def part(x):
        b, h, w, c = x.shape
        return x.view(b, h // ws, ws, w // ws, ws, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, ws * ws, c)

    coords = torch.stack(torch.meshgrid(torch.arange(ws), torch.arange(ws), indexing="ij")).flatten(1)
    rel = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0) + (ws - 1)
    rel_idx = rel[..., 0] * (2 * ws - 1) + rel[..., 1]

    def f(x, w, table, wo):
        b, h, wd, c = x.shape
        x = torch.roll(x, (-shift, -shift), (1, 2))
        reg = (torch.arange(H) >= H - ws).int() + (torch.arange(H) >= H - shift).int()
        ids = part((reg[:, None] * 3 + reg[None, :]).view(1, H, H, 1)).squeeze(-1)
        mask = torch.where(ids[:, :, None] == ids[:, None, :], 0.0, -100.0)
        win = part(x)
        qkv = F.linear(win, w).view(-1, ws * ws, 3, nh, c // nh).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        a = (q * (c // nh) ** -0.5) @ k.transpose(-1, -2)
        a = a + table[rel_idx.view(-1)].view(ws * ws, ws * ws, nh).permute(2, 0, 1)
        a = (a.view(b, -1, nh, ws * ws, ws * ws) + mask[None, :, None]).view(-1, nh, ws * ws, ws * ws)
        o = (a.softmax(-1) @ v).transpose(1, 2).reshape(-1, ws * ws, c)
        o = (
            F.linear(o, wo)
            .view(b, h // ws, wd // ws, ws, ws, c)
            .permute(0, 1, 3, 2, 4, 5)
            .reshape(b, h, wd, c)
        )
        return torch.roll(o, (shift, shift), (1, 2))

    c = 96
    return f, (
        torch.randn(2, H, H, c),
        torch.randn(3 * c, c) * 0.05,
        torch.randn((2 * ws - 1) ** 2, nh) * 0.02,
        torch.randn(c, c) * 0.05,
    )


@program
def causal_linear_attention():
    """elu+1 features with cumulative sums over time."""

    def f(q, k, v):
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), dim=2)
        z = 1 / (torch.einsum("bhld,bhld->bhl", q, k.cumsum(2)) + 1e-6)
        return torch.einsum("bhld,bhldm,bhl->bhlm", q, kv, z)

    return f, tuple(torch.randn(2, 4, 256, 32) for _ in range(3))
