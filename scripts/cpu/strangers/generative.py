"""Generative models: diffusion steps, codebooks, flows, adversarial losses."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from strangers.corpus import program


class _Denoiser(nn.Module):
    def __init__(self, dim=16, hidden=96):
        super().__init__()
        self.hidden = hidden
        self.inp = nn.Linear(dim, hidden)
        self.emb = nn.Linear(hidden, hidden)
        self.mid = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, dim)

    def forward(self, x, t):
        half = self.hidden // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half) / half)
        args = t[:, None].float() * freqs[None]
        emb = torch.cat([torch.cos(args), torch.sin(args)], dim=-1)
        h = F.silu(self.inp(x) + self.emb(emb))
        h = h + F.silu(self.mid(h))
        return self.out(h)


@program
def ddim_sample_four_steps():
    """Four deterministic DDIM steps with an MLP denoiser and clipped x0."""
    net = _Denoiser().requires_grad_(False)

    def f(x, alphas_cumprod):
        steps = [999, 749, 499, 249]
        for i, t in enumerate(steps):
            a_t = alphas_cumprod[t]
            a_prev = alphas_cumprod[steps[i + 1]] if i + 1 < len(steps) else torch.tensor(1.0)
            eps = net(x, torch.full((x.shape[0],), t))
            x0 = ((x - (1 - a_t).sqrt() * eps) / a_t.sqrt()).clamp(-3, 3)
            x = a_prev.sqrt() * x0 + (1 - a_prev).sqrt() * eps
        return x

    return f, (torch.randn(64, 16), torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0))


@program
def vq_codebook_ema_update():
    """VQ-VAE's nearest code, straight-through output, perplexity and the codebook's moving averages."""

    def f(z, embed, cluster_size, embed_avg, decay=0.99):
        n_code = embed.shape[0]
        flat = z.permute(0, 2, 3, 1).reshape(-1, embed.shape[1])
        dist = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ embed.t() + embed.pow(2).sum(1)
        idx = dist.argmin(1)
        one_hot = F.one_hot(idx, n_code).type_as(flat)
        quant = F.embedding(idx, embed).view(z.shape[0], z.shape[2], z.shape[3], -1).permute(0, 3, 1, 2)
        commit = F.mse_loss(z, quant)
        probs = one_hot.mean(0)
        perplexity = torch.exp(-(probs * torch.log(probs + 1e-10)).sum())
        size = cluster_size * decay + (1 - decay) * one_hot.sum(0)
        avg = embed_avg * decay + (1 - decay) * (one_hot.t() @ flat)
        n = size.sum()
        smoothed = (size + 1e-5) / (n + n_code * 1e-5) * n
        return z + (quant - z), commit, perplexity, avg / smoothed[:, None]

    e = torch.randn(256, 32)
    return f, (torch.randn(2, 32, 24, 24), e, torch.ones(256) * 4, e * 4)


@program
def realnvp_coupling_nll():
    """Four affine coupling layers with alternating masks and the negative log-likelihood."""

    def f(x, w1, b1, w2, b2):
        log_det = torch.zeros(x.shape[0])
        d = x.shape[1]
        for i in range(w1.shape[0]):
            mask = (torch.arange(d) % 2 == i % 2).to(x.dtype)
            h = torch.relu(F.linear(x * mask, w1[i], b1[i]))
            s, t = F.linear(h, w2[i], b2[i]).chunk(2, dim=-1)
            s = 2 * torch.tanh(s / 2) * (1 - mask)
            t = t * (1 - mask)
            x = x * torch.exp(s) + t
            log_det = log_det + s.sum(-1)
        log_p = -0.5 * (x**2 + math.log(2 * math.pi)).sum(-1)
        return -(log_p + log_det).mean(), x

    d, h = 6, 32
    w1, b1 = 0.3 * torch.randn(4, h, d), 0.1 * torch.randn(4, h)
    w2, b2 = 0.2 * torch.randn(4, 2 * d, h), torch.zeros(4, 2 * d)
    return f, (torch.randn(200, d), w1, b1, w2, b2)


@program
def hinge_gan_feature_matching():
    """Hinge losses of a multi-scale discriminator, relativistic terms and feature matching."""

    def f(*outs):
        real, fake = outs[: len(outs) // 2], outs[len(outs) // 2 :]
        loss_d, loss_g, loss_fm, loss_rel = 0.0, 0.0, 0.0, 0.0
        for r, g in zip(real, fake):
            loss_fm = loss_fm + (r[:, 1:] - g[:, 1:]).abs().mean()
            r, g = r[:, 0], g[:, 0]
            loss_d = loss_d + F.relu(1.0 - r).mean() + F.relu(1.0 + g).mean()
            loss_g = loss_g - g.mean()
            loss_rel = loss_rel + F.softplus(-(r - g.mean(dim=0, keepdim=True))).mean()
        return loss_d / len(real), loss_g / len(real), 10.0 * loss_fm, loss_rel

    shapes = [(4, 4, 16, 16), (4, 4, 8, 8)]
    return f, tuple(torch.randn(*s) + 0.5 for s in shapes) + tuple(torch.randn(*s) - 0.5 for s in shapes)


@program
def sinkhorn_log_domain():
    """Entropic optimal transport between two clouds by thirty log-domain Sinkhorn iterations."""

    def f(x, y, a, b, eps=0.1):
        cost = ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)
        log_a, log_b = a.log(), b.log()
        u, v = torch.zeros_like(a), torch.zeros_like(b)
        for _ in range(30):
            u = eps * (log_a - torch.logsumexp((v[None, :] - cost) / eps, dim=1))
            v = eps * (log_b - torch.logsumexp((u[:, None] - cost) / eps, dim=0))
        plan = torch.exp((u[:, None] + v[None, :] - cost) / eps)
        return (plan * cost).sum(), plan

    a, b = torch.rand(2, 251) + 0.1
    return f, (torch.rand(251, 3), torch.rand(211, 3) + 0.2, a / a.sum(), b[:211] / b[:211].sum())
