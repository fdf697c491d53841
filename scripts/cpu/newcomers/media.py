"""Audio, mixed precision, photographs, finance, particles, grids, molecules."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from newcomers.corpus import program, training

# ------------------------------------------------------------------------------------------ 1, 2: audio


def _mel_filters(n_mels, n_freqs, rate):
    def to_mel(f):
        return 2595.0 * torch.log10(1.0 + f / 700.0)

    freqs = torch.linspace(0, rate / 2, n_freqs)
    mels = torch.linspace(0.0, to_mel(torch.tensor(rate / 2)).item(), n_mels + 2)
    edges = 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
    slopes = edges[None, :] - freqs[:, None]
    width = edges[1:] - edges[:-1]
    return torch.minimum(-slopes[:, :-2] / width[:-1], slopes[:, 2:] / width[1:]).clamp(min=0)


@program
def mel_pcen_frontend():
    """Waveform to framed power spectrum to mel to PCEN, the smoother being a truncated exponential FIR."""
    n_fft, hop = 512, 160
    window = torch.hann_window(n_fft)
    s = 0.1
    taps = s * (1 - s) ** torch.arange(31).flip(0).float()

    def f(wav, fb):
        x = torch.cat([wav[:, :1], wav[:, 1:] - 0.97 * wav[:, :-1]], dim=1)
        x = F.pad(x.unsqueeze(1), (n_fft // 2, n_fft // 2), mode="reflect").squeeze(1)
        frames = x.unfold(-1, n_fft, hop) * window
        power = torch.fft.rfft(frames).abs().pow(2)
        mel = (power @ fb).transpose(1, 2)
        b, m, t = mel.shape
        smooth = F.conv1d(F.pad(mel.reshape(b * m, 1, t), (30, 0), mode="replicate"), taps.view(1, 1, -1))
        smooth = smooth.view(b, m, t)
        gain = torch.exp(-0.98 * (math.log(1e-4) + torch.log1p(smooth / 1e-4)))
        return (mel * gain + 2.0).pow(0.5) - 2.0**0.5

    t = torch.arange(11025) / 16000
    wav = torch.sin(2 * math.pi * torch.tensor([[220.0], [431.0], [1203.0]]) * t) + 0.1 * torch.randn(
        3, 11025
    )
    return f, (wav, _mel_filters(64, 257, 16000))


@program
def yin_pitch_tracks():
    """YIN: difference function, cumulative mean normalisation, minimum and parabolic refinement."""
    rate, lo, lags, width = 8000, 20, 160, 280

    def f(frames):
        shifted = frames.unfold(-1, width, 1)[:, :lags]
        diff = (frames[:, None, :width] - shifted).square().sum(-1)
        tau = torch.arange(1, lags)
        cmnd = diff[:, 1:] * tau / diff[:, 1:].cumsum(-1).clamp(min=1e-8)
        searched = cmnd.clone()
        searched[:, : lo - 1] = float("inf")
        best, at = searched[:, :-1].min(dim=-1)
        left, right = cmnd.gather(1, at[:, None] - 1)[:, 0], cmnd.gather(1, at[:, None] + 1)[:, 0]
        shift = 0.5 * (left - right) / (left - 2 * best + right + 1e-8)
        pitch = rate / (at + 1 + shift)
        voiced = best < 0.3
        return torch.where(voiced, pitch, torch.zeros_like(pitch)) / 100, best, voiced

    t = torch.arange(443) / rate
    f0 = torch.linspace(90, 310, 37)[:, None]
    tone = sum(torch.sin(2 * math.pi * k * f0 * t) / k for k in range(1, 5))
    return f, (tone + 0.2 * torch.randn(37, 443) * torch.linspace(0, 3, 37)[:, None],)


# --------------------------------------------------------------------------------- 3, 4: mixed precision


class _Mixer(nn.Module):
    def __init__(self, tokens=49, dim=96, classes=23):
        super().__init__()
        self.n1, self.n2, self.n3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.t1, self.t2 = nn.Linear(tokens, 64), nn.Linear(64, tokens)
        self.c1, self.c2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        y = self.t2(F.gelu(self.t1(self.n1(x).transpose(1, 2)))).transpose(1, 2)
        x = x + y
        x = x + self.c2(F.gelu(self.c1(self.n2(x))))
        return self.head(self.n3(x).mean(1))


@program
def autocast_mixer_block():
    """An MLP mixer's block and head under bfloat16 autocast."""
    net = _Mixer().requires_grad_(False).eval()

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net(x)

    return f, (torch.randn(3, 49, 96),)


@training
def bf16_master_weight_step():
    """float32 master weights, bfloat16 forward pass, momentum in float32, one SGD step."""
    shapes = [(64, 37), (64,), (64, 64), (64,), (11, 64), (11,)]
    params = [(torch.randn(s) / 8).requires_grad_() for s in shapes]
    momentum = [torch.randn(s) * 1e-3 for s in shapes]

    def loss(x, y):
        w1, b1, w2, b2, w3, b3 = (p.to(torch.bfloat16) for p in params)
        h = F.silu(F.linear(x.bfloat16(), w1, b1))
        h = h + F.silu(F.linear(h, w2, b2))
        return F.cross_entropy(F.linear(h, w3, b3).float(), y)

    def step(x, y):
        value = loss(x, y)
        value.backward()
        new = []
        with torch.no_grad():
            for p, m in zip(params, momentum):
                buf = m * 0.9 + p.grad + 0.01 * p
                new.append(p - 0.05 * buf)
                p.grad = None
        return (value.detach(), *new)

    return step, (torch.randn(129, 37), torch.randint(0, 11, (129,))), loss


# ------------------------------------------------------------------------ 5, 6: computational photography


@program
def durand_local_tonemap():
    """HDR to LDR: bilateral base and detail in log luminance, base compressed, gamma."""
    r, sigma_s, sigma_r = 3, 2.0, 0.4
    ax = torch.arange(-r, r + 1).float()
    spatial = torch.exp(-(ax[:, None] ** 2 + ax[None, :] ** 2) / (2 * sigma_s**2)).reshape(1, -1, 1)

    def f(hdr):
        n, _, h, w = hdr.shape
        lum = 0.2126 * hdr[:, 0:1] + 0.7152 * hdr[:, 1:2] + 0.0722 * hdr[:, 2:3]
        log_lum = torch.log10(lum + 1e-6)
        patches = F.unfold(F.pad(log_lum, (r, r, r, r), mode="replicate"), 2 * r + 1)
        centre = log_lum.reshape(n, 1, h * w)
        weight = spatial * torch.exp(-((patches - centre) ** 2) / (2 * sigma_r**2))
        base = ((weight * patches).sum(1) / weight.sum(1)).view(n, 1, h, w)
        detail = log_lum - base
        hi, lo = base.amax((2, 3), keepdim=True), base.amin((2, 3), keepdim=True)
        out = 10 ** ((base - hi) * (1.2 / (hi - lo)) + detail)
        return (hdr / (lum + 1e-6) * out).clamp(0, 1).pow(1 / 2.2)

    return f, (torch.exp(2 * F.interpolate(torch.randn(1, 3, 15, 20), (113, 151), mode="bilinear")),)


@program
def bayer_demosaic_srgb8():
    """RGGB raw to an 8-bit sRGB thumbnail: black level, white balance, bilinear demosaic, matrix, curve."""
    k_g = torch.tensor([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 4.0
    k_rb = torch.tensor([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 4.0
    kernels = torch.stack([k_rb, k_g, k_rb])[:, None]
    ccm = torch.tensor([[1.7, -0.6, -0.1], [-0.3, 1.6, -0.3], [0.0, -0.7, 1.7]])

    def f(raw, gains):
        x = ((raw.float() - 256) / (4095 - 256)).clamp(0, 1)
        h, w = x.shape
        planes = torch.zeros(3, h, w)
        planes[0, 0::2, 0::2] = x[0::2, 0::2] * gains[0]
        planes[1, 0::2, 1::2] = x[0::2, 1::2]
        planes[1, 1::2, 0::2] = x[1::2, 0::2]
        planes[2, 1::2, 1::2] = x[1::2, 1::2] * gains[1]
        rgb = F.conv2d(F.pad(planes[None], (1, 1, 1, 1), mode="reflect"), kernels, groups=3)[0]
        rgb = torch.einsum("ij,jhw->ihw", ccm, rgb).clamp(0, 1)
        srgb = torch.where(rgb <= 0.0031308, rgb * 12.92, 1.055 * rgb.clamp(min=1e-6) ** (1 / 2.4) - 0.055)
        img = (srgb * 255 + 0.5).to(torch.uint8)
        return F.avg_pool2d(img.float() / 255, 6)

    smooth = F.interpolate(torch.rand(1, 1, 12, 16), (606, 810), mode="bicubic")[0, 0]
    raw = (smooth * 3000 + 400 + 40 * torch.randn(606, 810)).clamp(0, 4095).to(torch.int16)
    return f, (raw, torch.tensor([1.9, 1.5]))


# ----------------------------------------------------------------------------------------- 7, 8: finance


@training
def heston_pathwise_delta():
    """A call under Heston by full-truncation Euler, and its sensitivities through the paths."""
    strike, rate, steps, dt = 102.0, 0.02, 16, 1 / 32

    def loss(s0, v0, kappa, theta, xi, rho, z):
        x = torch.log(s0).expand(z.shape[-1])
        v = v0.expand(z.shape[-1])
        for t in range(steps):
            vp = v.clamp(min=1e-6)
            root = torch.sqrt(vp * dt)
            zv = rho * z[t, 0] + torch.sqrt(1 - rho**2) * z[t, 1]
            x = x + (rate - 0.5 * vp) * dt + root * z[t, 0]
            v = v + kappa * (theta - vp) * dt + xi * root * zv
        payoff = torch.relu(torch.exp(x) - strike)
        return math.exp(-rate * steps * dt) * payoff.mean()

    def step(*args):
        price = loss(*args)
        return (price.detach(), *torch.autograd.grad(price, args[:-1]))

    market = [torch.tensor(v, requires_grad=True) for v in (100.0, 0.04, 1.5, 0.05, 0.4, -0.6)]
    return step, (*market, torch.randn(steps, 2, 2047)), loss


@program
def ledoit_wolf_shrinkage():
    """Shrunk covariance of returns in float64, then minimum-variance weights and their risk shares."""

    def f(returns):
        t, n = returns.shape
        x = returns - returns.mean(0)
        sample = x.T @ x / t
        mu = torch.diagonal(sample).mean()
        d2 = (sample - mu * torch.eye(n, dtype=x.dtype)).square().sum() / n
        sq = x.square()
        b2 = ((sq.T @ sq / t) - sample.square()).sum() / (n * t)
        shrink = torch.minimum(b2, d2) / d2
        sigma = (1 - shrink) * sample + shrink * mu * torch.eye(n, dtype=x.dtype)
        w = torch.linalg.solve(sigma, torch.ones(n, dtype=x.dtype))
        w = w / w.sum()
        vol = torch.sqrt(w @ sigma @ w * 252)
        shares = w * (sigma @ w) * 252 / vol**2
        scale = sigma.diagonal().rsqrt()
        return shrink, w, vol, shares, sigma * scale[:, None] * scale[None, :]

    factors = torch.randn(253, 5, dtype=torch.float64) @ torch.randn(5, 47, dtype=torch.float64)
    return f, (0.004 * factors + 0.01 * torch.randn(253, 47, dtype=torch.float64),)


# --------------------------------------------------------------------------------------- 9, 10: particles


@training
def cloth_spring_forces():
    """Two substeps of a mass-spring cloth over a sphere, forces being the energy's gradient."""
    rows, cols = 23, 29
    ids = torch.arange(rows * cols).view(rows, cols)
    pairs = [(ids[:, :-1], ids[:, 1:]), (ids[:-1], ids[1:]), (ids[:-1, :-1], ids[1:, 1:])]
    i = torch.cat([a.reshape(-1) for a, _ in pairs])
    j = torch.cat([b.reshape(-1) for _, b in pairs])
    y, x = torch.meshgrid(torch.arange(rows) * 0.1, torch.arange(cols) * 0.1, indexing="ij")
    rest_pos = torch.stack([x - 1.4, y - 1.1, torch.full_like(x, 1.0)], -1).reshape(-1, 3)
    rest = (rest_pos[i] - rest_pos[j]).norm(dim=-1)

    def energy(pos):
        length = (pos[i] - pos[j]).norm(dim=-1)
        springs = 50.0 * (length - rest).square().sum()
        gravity = 0.098 * pos[:, 2].sum()
        depth = torch.relu(0.9 - pos.norm(dim=-1))
        return springs + gravity + 200.0 * depth.square().sum()

    def step(pos, vel):
        for _ in range(2):
            leaf = pos.detach().requires_grad_()
            (grad,) = torch.autograd.grad(energy(leaf), leaf)
            vel = 0.995 * (vel - 0.005 / 0.1 * grad)
            vel = torch.where(ids.reshape(-1, 1) % (cols - 1) == 0, 0.0, vel)
            pos = leaf.detach() + 0.005 * vel
        return pos, vel

    pos = rest_pos + 0.01 * torch.randn(rows * cols, 3)
    args = (pos, 0.1 * torch.randn(rows * cols, 3))
    return step, args, energy, (pos.clone().requires_grad_(),)


@program
def sph_density_pressure():
    """Smoothed particles in the plane: poly6 density, Tait pressure, spiky and viscous accelerations."""
    h, mass, rho0 = 0.12, 1.0, 1.0
    poly6 = 4 / (math.pi * h**8)
    spiky = -30 / (math.pi * h**5)

    def f(pos, vel):
        norm = rho0 / 300.0
        d = pos[:, None, :] - pos[None, :, :]
        r2 = (d * d).sum(-1)
        near = r2 < h * h
        w = torch.where(near, (h * h - r2).clamp(min=0) ** 3, torch.zeros_like(r2))
        rho = mass * poly6 * norm * w.sum(1)
        p = torch.relu(3.0 * ((rho / rho0) ** 7).clamp(max=50.0) - 3.0)
        r = torch.sqrt(r2 + 1e-9)
        slope = spiky * norm * torch.where(near, (h - r).clamp(min=0) ** 2, torch.zeros_like(r)) / r
        coefficient = -(p[:, None] / rho[:, None] ** 2 + p[None, :] / rho[None, :] ** 2) * slope
        acc = (coefficient[..., None] * d).sum(1)
        lap = torch.where(near, h - r, torch.zeros_like(r)) / rho[None, :]
        visc = 0.05 * (lap[..., None] * (vel[None] - vel[:, None])).sum(1)
        gravity = torch.tensor([0.0, -9.8])
        return rho, p, acc * 1e-3 + visc + gravity

    return f, (torch.rand(307, 2), 0.3 * torch.randn(307, 2))


# ------------------------------------------------------------------------------------ 11, 12: grid solvers


@program
def fdtd_tm_pulse():
    """Maxwell's equations on a Yee grid, transverse magnetic, a pulse beside a dielectric, walls conduct."""

    def f(ez, hx, hy, eps):
        ez, hx, hy = ez.clone(), hx.clone(), hy.clone()
        c = 0.5
        for t in range(12):
            hx -= c * (ez[:, 1:] - ez[:, :-1])
            hy += c * (ez[1:, :] - ez[:-1, :])
            curl = hy[1:, 1:-1] - hy[:-1, 1:-1] - (hx[1:-1, 1:] - hx[1:-1, :-1])
            ez[1:-1, 1:-1] += c / eps[1:-1, 1:-1] * curl
            ez[40, 30] += math.exp(-(((t - 6) / 3) ** 2))
            ez[0] = 0
            ez[-1] = 0
        energy = (eps * ez * ez).sum() + (hx * hx).sum() + (hy * hy).sum()
        return ez, hx, hy, energy

    eps = torch.ones(321, 257)
    eps[60:190, 20:170] = 4.0
    ez = F.interpolate(torch.randn(1, 1, 12, 10), (321, 257), mode="bilinear")[0, 0] * 0.1
    return f, (ez, torch.zeros(321, 256), torch.zeros(320, 257), eps)


@program
def crank_nicolson_thomas():
    """259 rods of 33 nodes a step ahead by Crank-Nicolson, the tridiagonal systems by Thomas, in float64."""

    def f(u, k, dt):
        n = u.shape[1]
        face = 0.5 * (k[:, 1:] + k[:, :-1]) * dt / 2
        west, east = F.pad(face, (1, 0)), F.pad(face, (0, 1))
        diag = 1 + west + east
        left, right = F.pad(u[:, :-1], (1, 0)), F.pad(u[:, 1:], (0, 1))
        rhs = west * left + (2 - diag) * u + east * right
        cp, dp = [-east[:, 0] / diag[:, 0]], [rhs[:, 0] / diag[:, 0]]
        for i in range(1, n):
            m = 1 / (diag[:, i] + west[:, i] * cp[-1])
            cp.append(-east[:, i] * m)
            dp.append((rhs[:, i] + west[:, i] * dp[-1]) * m)
        x = [dp[-1]]
        for i in range(n - 2, -1, -1):
            x.append(dp[i] - cp[i] * x[-1])
        return torch.stack(x[::-1], dim=1)

    u = torch.randn(259, 33, dtype=torch.float64)
    return f, (u, 0.5 + torch.rand(259, 33, dtype=torch.float64), 0.8)


# -------------------------------------------------------------------------------- 13, 14: molecular dynamics


@program
def lennard_jones_periodic():
    """A Lennard-Jones fluid in a periodic box: switched energy, forces, virial pressure, temperature."""
    box, r_on, r_cut = 9.1, 2.2, 2.5

    def f(pos, vel):
        n = pos.shape[0]
        d = pos[:, None] - pos[None]
        d = d - box * torch.round(d / box)
        r2 = d.square().sum(-1) + torch.eye(n)
        inside = (r2 < r_cut**2) & ~torch.eye(n, dtype=torch.bool)
        inv6 = r2.reciprocal() ** 3
        pair = 4 * (inv6 * inv6 - inv6)
        x = ((r2 - r_on**2) / (r_cut**2 - r_on**2)).clamp(0, 1)
        switch = 1 - x * x * (3 - 2 * x)
        energy = 0.5 * torch.where(inside, pair * switch, 0.0).sum(1)
        strength = torch.where(inside, 24 * (2 * inv6 * inv6 - inv6) / r2 * switch, 0.0)
        forces = (strength.unsqueeze(-1) * d).sum(1)
        temperature = vel.square().sum() / (3 * n)
        virial = 0.5 * (strength * r2).sum()
        pressure = (n * temperature + virial / 3) / box**3
        return energy, forces, pressure, temperature

    axis = torch.arange(7) * 1.3
    lattice = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    return f, (lattice + 0.06 * torch.randn(343, 3), torch.randn(343, 3))


@training
def dihedral_torsion_forces():
    """Bond, angle and torsion energy of three chains of 61 beads, and the forces by autograd."""

    def energy(pos):
        b = pos[:, 1:] - pos[:, :-1]
        length = torch.linalg.vector_norm(b, dim=-1)
        u = b / length[..., None]
        cos_angle = -(u[:, :-1] * u[:, 1:]).sum(-1)
        n = torch.cross(b[:, :-1], b[:, 1:], dim=-1)
        n1, n2 = n[:, :-1], n[:, 1:]
        m = torch.cross(n1, u[:, 1:-1], dim=-1)
        phi = torch.atan2((m * n2).sum(-1), (n1 * n2).sum(-1))
        bonds = 10.0 * (length - 1.0).square().sum(-1)
        angles = 3.0 * (cos_angle + 0.4).square().sum(-1)
        torsion = sum(
            k * (1 + torch.cos(q * phi - s)) for q, k, s in ((1, 0.8, 0.0), (2, 0.3, 3.14), (3, 0.5, 0.3))
        )
        return (bonds + angles + torsion.sum(-1)).sum()

    def step(pos):
        e = energy(pos)
        (grad,) = torch.autograd.grad(e, pos)
        forces = -grad
        return e.detach(), forces, forces.norm(dim=-1).amax(dim=1)

    i = torch.arange(61.0)
    helix = torch.stack([0.8 * torch.cos(i), 0.8 * torch.sin(i), 0.6 * i], -1)
    return step, ((helix + 0.1 * torch.randn(3, 61, 3)).requires_grad_(),), energy
