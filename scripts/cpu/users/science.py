"""Physics, images, signals and statistics, as users write them: see the package."""

# ruff: noqa: N803, RUF059 (names are those of their formulas)
from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from users.corpus import program

# -------------------------------------------------------------------- physics


@program
def heat_explicit_slices():
    """FTCS heat equation on a plate with fixed edges, 20 steps."""

    def f(u0, alpha):
        u = u0.clone()
        for _ in range(20):
            lap = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
            inner = u[1:-1, 1:-1] + alpha[1:-1, 1:-1] * lap
            u = u.clone()
            u[1:-1, 1:-1] = inner
        return u

    u = torch.zeros(400, 400)
    u[60:120, 80:140] = 100.0
    u[0] = 25.0
    return f, (u, 0.1 + 0.1 * torch.rand(400, 400))


@program
def wave_with_sponge():
    """2D wave equation with a sponge layer and a Ricker source, conv laplacian."""

    def f(p, p_old, c, damp, kern):
        for i in range(8):
            t = (i - 4) * 0.5
            src = (1 - 2 * t * t) * math.exp(-t * t)
            lap = F.conv2d(p[None, None], kern[None, None], padding=1)[0, 0]
            new = (2 * p - p_old * (1 - damp) + c * c * 0.25 * lap) / (1 + damp)
            bump = torch.zeros_like(new)
            bump[20, 24] = src
            p, p_old = new + bump, p
        return p, 0.5 * ((p - p_old) ** 2).sum()

    n = 48
    r = torch.arange(n).float()
    edge = torch.minimum(r, n - 1 - r)
    d = (0.3 * (1 - torch.minimum(edge[:, None], edge[None, :]) / 8).clamp(min=0)) ** 2
    k = torch.tensor([[0.25, 0.5, 0.25], [0.5, -3.0, 0.5], [0.25, 0.5, 0.25]])
    return f, (torch.randn(n, n) * 0.01, torch.zeros(n, n), 0.8 + 0.2 * torch.rand(n, n), d, k)


@program
def nbody_leapfrog():
    """Softened gravity, leapfrog, energies at the end."""

    def acc(x, m):
        r = x[None, :, :] - x[:, None, :]
        d2 = (r * r).sum(-1) + 0.05**2
        return (m[None, :, None] * r * (d2**-1.5)[..., None]).sum(1)

    def f(x, v, m):
        dt = 0.01
        a = acc(x, m)
        for _ in range(3):
            v = v + 0.5 * dt * a
            x = x + dt * v
            a = acc(x, m)
            v = v + 0.5 * dt * a
        ke = 0.5 * (m * v.square().sum(1)).sum()
        pe = (
            -0.5
            * (
                m[:, None]
                * m[None, :]
                / torch.sqrt(torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") ** 2 + 0.05**2)
            ).sum()
        )
        return x, v, ke + pe

    return f, (torch.randn(320, 3), torch.randn(320, 3) * 0.3, torch.rand(320) / 320)


@program
def lattice_boltzmann_d2q9():
    """BGK with bounce-back on a cylinder, periodic in both axes."""
    cx = [0, 1, 0, -1, 0, 1, -1, -1, 1]
    cy = [0, 0, 1, 0, -1, 1, 1, -1, -1]
    opp = [0, 3, 4, 1, 2, 7, 8, 5, 6]
    w = torch.tensor([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
    C = torch.tensor([cx, cy], dtype=torch.float32)

    def f(pop, solid):
        tau = 0.6
        for _ in range(4):
            pop = torch.stack([torch.roll(pop[i], (cy[i], cx[i]), (0, 1)) for i in range(9)])
            bounced = pop[opp]
            rho = pop.sum(0)
            ux = torch.einsum("i,ixy->xy", C[0], pop) / rho
            uy = torch.einsum("i,ixy->xy", C[1], pop) / rho
            cu = C[0][:, None, None] * ux + C[1][:, None, None] * uy
            feq = w[:, None, None] * rho * (1 + 3 * cu + 4.5 * cu**2 - 1.5 * (ux**2 + uy**2))
            pop = torch.where(solid, bounced, pop - (pop - feq) / tau)
        curl = torch.roll(ux, -1, 0) - torch.roll(ux, 1, 0) - torch.roll(uy, -1, 1) + torch.roll(uy, 1, 1)
        return pop, curl.masked_fill(solid, 0.0)

    ny, nx = 80, 200
    pop = w[:, None, None] * torch.ones(9, ny, nx) + 0.01 * torch.rand(9, ny, nx)
    pop[1] += 0.05
    yy, xx = torch.meshgrid(torch.arange(ny), torch.arange(nx), indexing="ij")
    return f, (pop, (xx - 50) ** 2 + (yy - 40) ** 2 < 100)


@program
def ising_checkerboard():
    """Metropolis sweeps with prepared random fields; spins are int8."""

    def f(spins, rnd, field):
        h, w = spins.shape
        par = (torch.arange(h)[:, None] + torch.arange(w)[None, :]) % 2
        s = spins
        for sweep in range(2):
            for color in range(2):
                nb = s.roll(1, 0) + s.roll(-1, 0) + s.roll(1, 1) + s.roll(-1, 1)
                dE = 2 * s * (nb + field)
                flip = (dE <= 0) | (rnd[sweep, color] < torch.exp(-0.44 * dE.float()))
                s = torch.where(flip & (par == color), -s, s)
        return s, s.sum(dtype=torch.int64), s.float().mean(1)

    return f, (
        torch.randint(0, 2, (64, 64), dtype=torch.int8) * 2 - 1,
        torch.rand(2, 2, 64, 64),
        torch.randint(-1, 2, (64, 64), dtype=torch.int8),
    )


@program
def kuramoto_rk4():
    """Coupled oscillators on a weighted network, RK4, order parameter."""

    def f(theta, omega, K):
        def rhs(th):
            return omega + (K * torch.sin(th[None, :] - th[:, None])).mean(1)

        dt = 0.05
        orders = []
        for _ in range(4):
            k1 = rhs(theta)
            k2 = rhs(theta + dt / 2 * k1)
            k3 = rhs(theta + dt / 2 * k2)
            k4 = rhs(theta + dt * k3)
            theta = theta + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            orders.append(torch.hypot(theta.cos().mean(), theta.sin().mean()))
        return torch.remainder(theta, 2 * math.pi), torch.stack(orders)

    return f, (torch.rand(120) * 6.0, torch.randn(120) * 0.5, torch.rand(120, 120) * 4)


# ---------------------------------------------------------------------- image


@program
def sobel_canny_ish():
    """Gaussian blur, Sobel, orientation bins and non-max suppression."""

    def f(img, gauss, sob):
        g = (img * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
        g = F.conv2d(F.pad(g, (2, 2, 2, 2), mode="reflect"), gauss)
        d = F.conv2d(F.pad(g, (1, 1, 1, 1), mode="replicate"), sob)
        mag = torch.sqrt(d[:, 0] ** 2 + d[:, 1] ** 2 + 1e-12)
        horiz = d[:, 0].abs() > d[:, 1].abs()
        p = F.pad(mag, (1, 1, 1, 1))
        nx = torch.maximum(p[:, 1:-1, 2:], p[:, 1:-1, :-2])
        ny = torch.maximum(p[:, 2:, 1:-1], p[:, :-2, 1:-1])
        return mag * (mag >= torch.where(horiz, nx, ny)), torch.atan2(d[:, 1], d[:, 0]) * mag

    x = torch.arange(-2, 3).float()
    k = torch.exp(-(x[:, None] ** 2 + x[None, :] ** 2) / 2)
    s = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    return f, (
        torch.rand(2, 3, 360, 480),
        (k / k.sum()).view(1, 1, 5, 5),
        torch.stack([s, s.t()]).unsqueeze(1),
    )


@program
def median_and_box_unfold():
    """Denoise by a 3x3 median, local contrast with a box blur via unfold."""

    def f(img):
        n, c, h, w = img.shape
        patches = F.unfold(F.pad(img, (1, 1, 1, 1), mode="reflect"), 3).view(n, c, 9, h * w)
        med = patches.median(dim=2).values.view(n, c, h, w)
        box = F.unfold(img, 5, padding=2).view(n, c, 25, h, w).mean(2)
        sd = (F.avg_pool2d(img**2, 5, 1, 2) - F.avg_pool2d(img, 5, 1, 2) ** 2).clamp(min=0).add(1e-4).sqrt()
        return med, ((med - box) / sd).clamp(-3, 3)

    return f, (torch.rand(1, 1, 96, 128),)


@program
def rgb_hsv_saturate():
    """RGB -> HSV, shift the hue, boost saturation, -> RGB, sRGB gamma."""

    def f(rgb, hue_shift, sat):
        r, g, b = rgb.unbind(-3)
        mx, am = rgb.max(-3)
        mn = rgb.amin(-3)
        d = mx - mn
        safe = torch.where(d == 0, torch.ones_like(d), d)
        h = torch.stack([((g - b) / safe) % 6, (b - r) / safe + 2, (r - g) / safe + 4], -3)
        h = h.gather(-3, am.unsqueeze(-3)).squeeze(-3) / 6
        s = d / (mx + 1e-8)
        h = (h + hue_shift) % 1.0
        s = (s * sat).clamp(0, 1)
        n = torch.tensor([5.0, 3.0, 1.0]).view(3, 1, 1)
        k = (n + h.unsqueeze(-3) * 6) % 6
        out = mx.unsqueeze(-3) * (
            1 - s.unsqueeze(-3) * torch.minimum(torch.minimum(k, 4 - k), torch.ones_like(k)).clamp(min=0)
        )
        lin = torch.where(out <= 0.0031308, 12.92 * out, 1.055 * out.clamp(min=1e-8) ** (1 / 2.4) - 0.055)
        return lin.clamp(0, 1), h

    return f, (torch.rand(2, 3, 160, 200), 0.13, 1.4)


@program
def hist_equalize():
    """Classic histogram equalisation of a uint8 image with a CDF lookup."""

    def f(img):
        flat = img.flatten().long()
        hist = torch.zeros(256, dtype=torch.int64).scatter_add_(0, flat, torch.ones_like(flat))
        cdf = hist.cumsum(0)
        lo = cdf[flat.min()]
        lut = ((cdf - lo).float() * 255 / (img.numel() - lo)).round().clamp(0, 255).to(torch.uint8)
        return lut[flat].view_as(img), hist

    return f, ((torch.randn(120, 160) * 25 + 100).clamp(0, 255).to(torch.uint8),)


@program
def morphology_opening():
    """Top-hat, gradient and a geodesic-ish reconstruction through max_pool."""

    def dil(x, k=5):
        return F.max_pool2d(x, k, 1, k // 2)

    def ero(x, k=5):
        return -F.max_pool2d(-x, k, 1, k // 2)

    def f(x):
        opened = dil(ero(x))
        tophat = x - opened
        grad = dil(x, 3) - ero(x, 3)
        marker = ero(x, 7)
        for _ in range(6):
            marker = torch.minimum(dil(marker, 3), x)
        return tophat, grad, marker, (tophat > 0.4).sum((2, 3))

    return f, (torch.rand(1, 1, 24, 32),)


@program
def bilinear_warp_manual():
    """Rotate/scale an image with hand written bilinear gather; also upsample."""

    def f(img, angle, scale):
        c, h, w = img.shape
        ys = torch.linspace(-1, 1, h)
        xs = torch.linspace(-1, 1, w)
        gy, gx = torch.meshgrid(ys, xs, indexing="ij")
        ca, sa = torch.cos(angle) * scale, torch.sin(angle) * scale
        sx = ((ca * gx - sa * gy) + 1) * (w - 1) / 2
        sy = ((sa * gx + ca * gy) + 1) * (h - 1) / 2
        x0, y0 = sx.floor(), sy.floor()
        fx, fy = sx - x0, sy - y0
        out = torch.zeros_like(img)
        for dy in (0, 1):
            for dx in (0, 1):
                xi, yi = (x0 + dx).long(), (y0 + dy).long()
                ok = (xi >= 0) & (xi < w) & (yi >= 0) & (yi < h)
                wgt = (fx if dx else 1 - fx) * (fy if dy else 1 - fy) * ok
                out = out + wgt * img[:, yi.clamp(0, h - 1), xi.clamp(0, w - 1)]
        up = F.interpolate(out[None], scale_factor=2, mode="bilinear", align_corners=False)[0]
        return out, up

    return f, (torch.rand(3, 180, 220), torch.tensor(0.4), torch.tensor(1.1))


# --------------------------------------------------------------------- signal


@program
def mel_spectrogram_dft():
    """Frames, Hann window, DFT as a matmul, triangular filter bank, dB."""

    def f(wav, cosm, sinm, fb):
        frames = F.pad(wav, (200, 200)).unfold(-1, 400, 160)
        x = frames * torch.hann_window(400)
        power = (x @ cosm) ** 2 + (x @ sinm) ** 2
        mel = power @ fb
        db = 10 * torch.log10(mel.clamp(min=1e-10))
        db = torch.maximum(db, db.amax(dim=(-2, -1), keepdim=True) - 80)
        return (db - db.mean(1, keepdim=True)) / (db.std(1, keepdim=True) + 1e-5)

    n = torch.arange(400).double()
    k = torch.arange(201).double()
    ang = 2 * math.pi * n[:, None] * k[None, :] / 400
    cen = torch.linspace(2, 198, 42)
    fr = torch.arange(201).float()[:, None]
    fb = torch.minimum(
        (fr - cen[:-2]) / (cen[1:-1] - cen[:-2]), (cen[2:] - fr) / (cen[2:] - cen[1:-1])
    ).clamp(min=0)
    return f, (torch.randn(8, 32000), ang.cos().float(), ang.sin().float(), fb)


@program
def moving_stats_cumsum():
    """Rolling mean/std by cumulative sums, then a Bollinger-like z-score."""

    def f(x):
        w = 32
        xd = x.double()
        c1 = F.pad(xd.cumsum(-1), (1, 0))
        c2 = F.pad((xd * xd).cumsum(-1), (1, 0))
        m = (c1[..., w:] - c1[..., :-w]) / w
        v = (c2[..., w:] - c2[..., :-w]) / w - m * m
        z = (xd[..., w - 1 :] - m) / (v.clamp(min=0) + 1e-9).sqrt()
        return m.float(), z.float(), (z.abs() > 2).sum(-1)

    return f, (torch.randn(6, 1500).cumsum(-1),)


@program
def autocorr_pitch():
    """Short-time autocorrelation by direct sums, pitch by parabolic peak."""

    def f(sig):
        fr = sig.unfold(0, 512, 256)
        fr = fr - fr.mean(1, keepdim=True)
        lags = torch.arange(20, 120)
        idx = torch.arange(392)[None, :] + lags[:, None]
        shifted = fr[:, idx]
        ac = (fr[:, None, :392] * shifted).sum(-1)
        en = (fr[:, :392] ** 2).sum(-1)[:, None] * (shifted**2).sum(-1)
        nac = ac / (en + 1e-8).sqrt()
        best, i = nac[:, 1:-1].max(1)
        i = i + 1
        a, b, c = nac.gather(1, (i - 1)[:, None])[:, 0], best, nac.gather(1, (i + 1)[:, None])[:, 0]
        frac = 0.5 * (a - c) / (a - 2 * b + c - 1e-8)
        return 8000.0 / (lags[i] + frac), best

    t = torch.arange(8000) / 8000
    return f, (torch.sin(2 * math.pi * 150 * t * (1 + 0.2 * t)) + 0.1 * torch.randn(8000),)


@program
def biquad_and_zero_crossings():
    """Three FIR bands, envelope followers by decay matrices, zero crossing rate."""

    def f(x, taps, decay):
        bands = F.conv1d(x[:, None], taps[:, None], padding=taps.shape[1] // 2)
        rect = bands.abs()
        blocks = rect.unflatten(-1, (-1, 16)).amax(-1)
        n = blocks.shape[-1]
        i = torch.arange(n)
        lag = (i[:, None] - i[None, :]).clamp(min=0)
        M = torch.tril(decay[:, None, None] ** lag) * (1 - decay)[:, None, None]
        env = torch.einsum("kij,bkj->bki", M, blocks)
        zc = (torch.signbit(bands[..., 1:]) ^ torch.signbit(bands[..., :-1])).float().mean(-1)
        return env, zc

    return f, (
        torch.randn(3, 512),
        torch.randn(3, 31) * torch.hamming_window(31),
        torch.tensor([0.9, 0.8, 0.6]),
    )


# ----------------------------------------------------------------- statistics


@program
def robust_covariance():
    """Winsorise by quantiles, robust z by median/MAD, then correlation."""

    def f(X):
        lo, hi = torch.quantile(X, torch.tensor([0.02, 0.98]), dim=0)
        W = torch.minimum(torch.maximum(X, lo), hi)
        med = W.median(dim=0).values
        mad = (W - med).abs().median(dim=0).values
        Z = (W - med) / (1.4826 * mad)
        Zc = Z - Z.mean(0)
        cov = Zc.T @ Zc / (len(X) - 1)
        sd = cov.diagonal().sqrt()
        return cov / sd[:, None] / sd[None, :], Z.abs().amax(1)

    return f, (torch.randn(300, 12) @ torch.randn(12, 12),)


@program
def gmm_em_step():
    """EM for a diagonal Gaussian mixture: responsibilities and new params."""

    def f(x, mu, logvar, logpi):
        diff2 = (x[:, None, :] - mu[None]) ** 2
        ll = -0.5 * (diff2 * torch.exp(-logvar) + logvar + math.log(2 * math.pi)).sum(-1) + logpi
        norm = torch.logsumexp(ll, dim=1, keepdim=True)
        r = (ll - norm).exp()
        nk = r.sum(0) + 1e-6
        mu2 = (r.t() @ x) / nk[:, None]
        var2 = (r.t() @ (x * x)) / nk[:, None] - mu2**2
        return mu2, var2.clamp(min=1e-4).log(), (nk / nk.sum()).log(), norm.mean()

    return f, (
        torch.randn(20000, 8),
        torch.randn(16, 8),
        torch.zeros(16, 8),
        torch.full((16,), -math.log(16)),
    )


@program
def kde_mutual_information():
    """2-D kernel density on a grid and a mutual information estimate."""

    def f(x, y):
        g = torch.linspace(-3, 3, 48)
        n = x.numel()
        bw = n ** (-1 / 6)
        kx = torch.exp(-0.5 * ((g[:, None] - x[None]) / (bw * x.std())) ** 2)
        ky = torch.exp(-0.5 * ((g[:, None] - y[None]) / (bw * y.std())) ** 2)
        joint = kx @ ky.T
        joint = joint / joint.sum()
        px, py = joint.sum(1), joint.sum(0)
        return joint, torch.special.xlogy(joint, joint / (px[:, None] * py[None, :] + 1e-12)).sum()

    x = torch.randn(6000)
    return f, (x, 0.6 * x + 0.8 * torch.randn(6000))


@program
def bootstrap_spearman():
    """Rank correlation plus bootstrap interval of its mean difference by gather."""

    def f(x, y, idx):
        rx = x.argsort().argsort().float()
        ry = y.argsort().argsort().float()
        n = len(x)
        rho = 1 - 6 * ((rx - ry) ** 2).sum() / (n * (n * n - 1.0))
        d = x - y
        boot = d[idx].mean(1)
        srt = boot.sort().values
        k = boot.numel()
        return rho, srt[int(0.025 * k)], srt[int(0.975 * k)], boot.std()

    x = torch.randn(200)
    return f, (x, x + torch.randn(200), torch.randint(0, 200, (300, 200)))
