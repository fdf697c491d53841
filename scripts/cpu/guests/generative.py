"""Rendering, normalising flows, diffusion."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from guests.corpus import program, training

# ---------------------------------------------------------------------------------------- 17, 18: rendering


@training
def hash_grid_encoding_step():
    """Instant-NGP's hashed grids of five resolutions, trilinear, under a small network, its gradients."""
    corners = torch.cartesian_prod(*[torch.arange(2)] * 3)
    primes = torch.tensor([1, 2654435761, 805459861])
    resolutions = [7, 12, 19, 32, 53]

    def encode(points, tables):
        features = []
        for table, resolution in zip(tables, resolutions):
            scaled = points * resolution
            low = scaled.floor()
            part = (scaled - low)[:, None]
            cell = low.long()[:, None] + corners
            mixed = cell * primes
            slot = (mixed[..., 0] ^ mixed[..., 1] ^ mixed[..., 2]) % table.shape[0]
            weight = torch.where(corners.bool(), part, 1 - part).prod(-1)
            features.append((table[slot] * weight[..., None]).sum(1))
        return torch.cat(features, dim=-1)

    def loss(tables, w1, w2, points, colours):
        hidden = F.relu(encode(points, tables) @ w1)
        return F.mse_loss(torch.sigmoid(hidden @ w2), colours) + 1e-5 * tables.square().sum()

    def step(tables, w1, w2, points, colours):
        value = loss(tables, w1, w2, points, colours)
        return (value.detach(), *torch.autograd.grad(value, (tables, w1, w2)))

    points = torch.rand(1003, 3)
    leaves = [torch.randn(5, 2039, 2) / 10, torch.randn(10, 33) / 3, torch.randn(33, 3) / 5]
    return step, (*[leaf.requires_grad_() for leaf in leaves], points, torch.sin(4 * points) / 2 + 0.5), loss


@program
def pdf_resample_composite():
    """Fine samples by inverting coarse cumulative weights, merged, composited into depths and opacities."""

    def f(t, density, u):
        weights = density * t.diff(dim=1) + 1e-5
        cdf = F.pad((weights / weights.sum(1, keepdim=True)).cumsum(1), (1, 0))
        at = torch.searchsorted(cdf, u, right=True).clamp(1, cdf.shape[1] - 1)
        c0, c1 = cdf.gather(1, at - 1), cdf.gather(1, at)
        t0, t1 = t.gather(1, at - 1), t.gather(1, at)
        fine = torch.lerp(t0, t1, (u - c0) / (c1 - c0))
        depth, order = torch.cat([t[:, :-1], fine], 1).sort(dim=1)
        sigma = torch.cat([density, density.gather(1, at - 1)], 1).gather(1, order)
        passed = F.pad((sigma[:, :-1] * depth.diff(dim=1)).cumsum(1), (1, 0))
        shares = -torch.exp(-passed).diff(dim=1)
        return (shares * depth[:, :-1]).sum(1), shares.sum(1)

    t = torch.linspace(2, 6, 16).expand(13, 16) + 0.1 * torch.rand(13, 16)
    return f, (t, 3 * F.relu(torch.randn(13, 15)), torch.rand(13, 9).sort(dim=1).values)


# -------------------------------------------------------------------------------- 19, 20: normalising flows


class MaskedLinear(nn.Linear):
    """A linear layer some of whose weights are held at zero."""

    def __init__(self, mask):
        super().__init__(mask.shape[1], mask.shape[0])
        self.register_buffer("mask", mask)

    def forward(self, x):
        return F.linear(x, self.weight * self.mask, self.bias)


@program
def made_autoregressive_inverse():
    """A masked autoregressive flow run backwards dimension by dimension, then its density forwards."""
    dims, width = 9, 60
    degree, hidden = torch.arange(1, dims + 1), torch.arange(width) % (dims - 1) + 1
    net = nn.Sequential(
        MaskedLinear((hidden[:, None] >= degree).float()),
        nn.ELU(),
        MaskedLinear((hidden[:, None] >= hidden).float()),
        nn.ELU(),
        MaskedLinear((degree.repeat(2)[:, None] > hidden).float()),
    )
    net.eval().requires_grad_(False)

    def f(z):
        x = torch.zeros_like(z)
        for i in range(dims):
            mean, log_scale = net(x).chunk(2, dim=1)
            x[:, i] = z[:, i] * torch.exp(log_scale[:, i].tanh()) + mean[:, i]
        mean, log_scale = net(x).chunk(2, dim=1)
        scale = log_scale.tanh()
        again = (x - mean) * torch.exp(-scale)
        log_p = -0.5 * again.square().sum(1) - scale.sum(1) - 0.5 * dims * math.log(2 * math.pi)
        return x, log_p, (again - z).abs().max()

    return f, (torch.randn(257, dims),)


def rational_quadratic(x, widths, heights, slopes, bound=3.0, least=1e-3):
    """A monotonic rational-quadratic spline of Durkan et al. with linear tails."""
    bins = widths.shape[-1]
    inside = x.abs() < bound
    clamped = x.clamp(-bound, bound)
    knots = []
    for raw in (widths, heights):
        share = least + (1 - least * bins) * raw.softmax(-1)
        knots.append(F.pad(share.cumsum(-1), (1, 0)) * 2 * bound - bound)
    xs, ys = knots
    slope = F.pad(least + F.softplus(slopes), (1, 1), value=1.0)
    k = ((clamped[..., None] >= xs[..., :-1]).sum(-1, keepdim=True) - 1).clamp(0, bins - 1)
    x0, x1 = xs.gather(-1, k)[..., 0], xs.gather(-1, k + 1)[..., 0]
    y0, y1 = ys.gather(-1, k)[..., 0], ys.gather(-1, k + 1)[..., 0]
    d0, d1 = slope.gather(-1, k)[..., 0], slope.gather(-1, k + 1)[..., 0]
    s = (y1 - y0) / (x1 - x0)
    t = (clamped - x0) / (x1 - x0)
    bend = s + (d0 + d1 - 2 * s) * t * (1 - t)
    y = y0 + (y1 - y0) * (s * t**2 + d0 * t * (1 - t)) / bend
    rise = s**2 * (d1 * t**2 + 2 * s * t * (1 - t) + d0 * (1 - t) ** 2)
    return torch.where(inside, y, x), torch.where(inside, rise.log() - 2 * bend.abs().log(), 0.0)


@training
def spline_flow_nll_step():
    """Two spline couplings of eight bins on six dimensions: the data's negative log-likelihood and a step."""
    bins = 8

    def loss(p, data):
        x, log_det = data, torch.zeros(data.shape[0])
        for layer in ("first", "second"):
            kept, moved = x.chunk(2, dim=1)
            hidden = F.silu(F.linear(kept, p[f"{layer}_in"]))
            raw = F.linear(hidden, p[f"{layer}_out"], p[f"{layer}_bias"]).unflatten(1, (3, 3 * bins - 1))
            moved, gain = rational_quadratic(moved, *raw.split([bins, bins, bins - 1], dim=-1))
            log_det = log_det + gain.sum(1)
            x = torch.cat([moved, kept], dim=1)
        log_p = torch.distributions.Normal(0.0, 1.0).log_prob(x).sum(1) + log_det
        return -log_p.mean()

    def step(p, data):
        value = loss(p, data)
        slopes = torch.autograd.grad(value, list(p.values()))
        return (value.detach(), *[w.detach() - 1e-2 * g for w, g in zip(p.values(), slopes)])

    p = {}
    for layer in ("first", "second"):
        p[f"{layer}_in"] = torch.randn(40, 3) / 2
        p[f"{layer}_out"] = torch.randn(3 * (3 * bins - 1), 40) / 10
        p[f"{layer}_bias"] = torch.zeros(3 * (3 * bins - 1))
    data = torch.randn(301, 6) * torch.tensor([1.0, 0.5, 2.0, 1.0, 0.3, 1.5])
    return step, ({name: tensor.requires_grad_() for name, tensor in p.items()}, data), loss


# ---------------------------------------------------------------------------------------- 21, 22: diffusion


class Denoiser(nn.Module):
    """A small convolutional noise predictor with a class's and a time's shift."""

    def __init__(self, channels=4, width=24):
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1)
        self.norm = nn.GroupNorm(6, width)
        self.time = nn.Linear(16, 2 * width)
        self.label = nn.Embedding(11, 16)
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, x, log_snr, label):
        angles = log_snr * torch.exp(torch.linspace(0, -3, 8))
        embedded = torch.cat([angles.sin(), angles.cos()]) + self.label(label)
        scale, shift = self.time(F.silu(embedded))[:, :, None, None].chunk(2, dim=1)
        h = self.stem(x)
        h = h + self.middle(F.silu(self.norm(h) * (1 + scale) + shift))
        return self.out(F.silu(h))


@program
def dpmpp_2m_guided():
    """Five DPM-Solver++(2M) steps with classifier-free guidance, rescaled and dynamically thresholded."""
    net = Denoiser().eval().requires_grad_(False)

    def f(x, labels, sigmas):
        both = torch.cat([labels, torch.full_like(labels, 10)])
        previous, last = None, None
        for i in range(len(sigmas) - 1):
            sigma, after = sigmas[i], sigmas[i + 1]
            alpha = torch.rsqrt(1 + sigma**2)
            noise = net(torch.cat([x, x]) * alpha, -2 * sigma.log(), both)
            wanted, free = noise.chunk(2)
            guided = free + 5.0 * (wanted - free)
            guided = guided * (wanted.std((1, 2, 3), keepdim=True) / guided.std((1, 2, 3), keepdim=True))
            clean = x - sigma * guided
            limit = torch.quantile(clean.abs().flatten(1), 0.98, dim=1).clamp(min=1).view(-1, 1, 1, 1)
            clean = clean.clamp(-limit, limit) / limit
            h = (sigma / after).log()
            target = clean
            if previous is not None:
                r = last / h
                target = (1 + 1 / (2 * r)) * clean - previous / (2 * r)
            x = after / sigma * x - torch.expm1(-h) * target
            previous, last = clean, h
        return x, previous

    sigmas = torch.linspace(14.6 ** (1 / 7), 0.03 ** (1 / 7), 6) ** 7
    return f, (14.6 * torch.randn(2, 4, 22, 22), torch.tensor([3, 7]), sigmas)


class DitBlock(nn.Module):
    """A diffusion transformer's block with adaptive layer norms."""

    def __init__(self, width=48, heads=4):
        super().__init__()
        self.heads = heads
        self.condition = nn.Linear(width, 6 * width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x, c):
        s1, b1, g1, s2, b2, g2 = self.condition(F.silu(c))[:, None].chunk(6, dim=-1)
        h = F.layer_norm(x, x.shape[-1:]) * (1 + s1) + b1
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + g1 * self.out(h)
        h = F.layer_norm(x, x.shape[-1:]) * (1 + s2) + b2
        return x + g2 * self.down(F.gelu(self.up(h), approximate="tanh"))


@training
def rectified_flow_adaln_step():
    """A rectified flow's velocity by a DiT block at logit-normal times, a step and its averaged weights."""
    net = DitBlock()

    def loss(p, tokens, noise, time):
        t = torch.sigmoid(time)[:, None]
        frequency = torch.exp(torch.linspace(0, -6, 24))
        c = torch.cat([(1000 * t * frequency).cos(), (1000 * t * frequency).sin()], dim=-1)
        mixed = (1 - t[..., None]) * tokens + t[..., None] * noise
        velocity = torch.func.functional_call(net, p, (mixed, c))
        return (velocity - (noise - tokens)).square().mean()

    def step(p, ema, *batch):
        value = loss(p, *batch)
        slopes = torch.autograd.grad(value, list(p.values()))
        new = [w.detach() - 0.05 * g for w, g in zip(p.values(), slopes)]
        return (value.detach(), *[torch.lerp(a, w, 0.01) for a, w in zip(ema, new)])

    p = {name: tensor.detach().requires_grad_() for name, tensor in net.named_parameters()}
    ema = [tensor.detach() + 0.01 * torch.randn_like(tensor) for tensor in p.values()]
    batch = (torch.randn(6, 49, 48), torch.randn(6, 49, 48), torch.randn(6))
    return step, (p, ema, *batch), loss, (p, *batch)
