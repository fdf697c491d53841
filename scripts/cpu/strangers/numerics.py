"""Numerical methods: stencils, integrators, transforms, roots."""

import math

import torch
import torch.nn.functional as F

from strangers.corpus import program


@program
def gray_scott_roll():
    """Eight Gray-Scott reaction-diffusion steps with a nine-point Laplacian by roll."""

    def laplacian(z):
        cross = sum(torch.roll(z, s, d) for s in (1, -1) for d in (0, 1))
        diag = sum(torch.roll(z, (a, b), (0, 1)) for a in (1, -1) for b in (1, -1))
        return 0.2 * cross + 0.05 * diag - z

    def f(u, v):
        for _ in range(8):
            uvv = u * v * v
            u, v = (
                u + 0.16 * laplacian(u) - uvv + 0.035 * (1 - u),
                v + 0.08 * laplacian(v) + uvv - (0.035 + 0.06) * v,
            )
        return u, v

    u, v = torch.ones(331, 331), 0.05 * torch.rand(331, 331)
    u[100:150, 100:150], v[100:150, 100:150] = 0.5, 0.25
    return f, (u, v)


@program
def jacobi_poisson_3d():
    """Damped Jacobi sweeps of a 3-D Poisson problem by slices, float64, with the residual's norm."""

    def f(rhs):
        u = torch.zeros_like(rhs)
        for _ in range(6):
            p = F.pad(u[None, None], (1, 1, 1, 1, 1, 1))[0, 0]
            nb = p[2:, 1:-1, 1:-1] + p[:-2, 1:-1, 1:-1] + p[1:-1, 2:, 1:-1]
            nb = nb + p[1:-1, :-2, 1:-1] + p[1:-1, 1:-1, 2:] + p[1:-1, 1:-1, :-2]
            u = u + 0.8 * ((nb + rhs) / 6 - u)
        return u, torch.linalg.vector_norm(nb + rhs - 6 * u)

    return f, (torch.randn(56, 48, 50, dtype=torch.float64),)


@program
def dopri5_lotka_volterra():
    """Three Dormand-Prince steps of a batch of predator-prey systems, with the error estimate."""
    tab = [
        [1 / 5],
        [3 / 40, 9 / 40],
        [44 / 45, -56 / 15, 32 / 9],
        [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
        [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
        [35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
    ]
    err_w = [71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40]

    def rhs(y):
        x, z = y[..., 0], y[..., 1]
        return torch.stack([1.1 * x - 0.4 * x * z, 0.1 * x * z - 0.4 * z], dim=-1)

    def f(y):
        h = 0.1
        err = torch.zeros_like(y)
        for _ in range(3):
            ks = [rhs(y)]
            for row in tab:
                y_new = y + h * sum(c * k for c, k in zip(row, ks) if c != 0.0)
                ks.append(rhs(y_new))
            err = torch.maximum(err, (h * sum(c * k for c, k in zip(err_w, ks) if c != 0.0)).abs())
            y = y_new
        return y, err.amax(-1) < 1e-3

    return f, (torch.rand(1000, 2) * 5 + 1,)


@program
def dct_blocks_jpeg_basis():
    """An image's 8x8 blocks by two DCT matmuls, small coefficients shrunk softly, and back."""

    def f(img, basis, table):
        h, w = img.shape
        blocks = img.reshape(h // 8, 8, w // 8, 8).permute(0, 2, 1, 3) - 128.0
        coef = basis @ blocks @ basis.T
        thr = 0.5 * table
        coef = torch.sign(coef) * F.relu(coef.abs() - thr)
        rec = basis.T @ coef @ basis + 128.0
        out = rec.permute(0, 2, 1, 3).reshape(h, w).clamp(0, 255)
        mse = (out - img).pow(2).mean()
        return out, 10 * torch.log10(255.0**2 / mse)

    k = torch.arange(8.0)
    basis = torch.cos(math.pi * (k + 0.5) * k[:, None] / 8) * 0.5
    basis[0] /= math.sqrt(2)
    return f, (255 * torch.rand(480, 640), basis, 10 + 4 * (k + k[:, None]))


@program
def chebyshev_clenshaw_derivative():
    """A Chebyshev series and its derivative by Clenshaw's recurrence."""

    def clenshaw(c, x):
        b1, b2 = torch.zeros_like(x), torch.zeros_like(x)
        for k in range(c.shape[0] - 1, 0, -1):
            b1, b2 = c[k] + 2 * x * b1 - b2, b1
        return c[0] + x * b1 - b2

    def f(x, c):
        n = c.shape[0]
        d = [torch.zeros_like(c[0])] * (n + 1)
        for k in range(n - 2, -1, -1):
            d[k] = d[k + 2] + 2 * (k + 1) * c[k + 1]
        d = torch.stack(d[: n - 1])
        d = torch.cat([d[:1] / 2, d[1:]])
        return clenshaw(c, x), clenshaw(d, x)

    return f, (torch.linspace(-1, 1, 1009), torch.randn(9) * 0.7 ** torch.arange(9))


@program
def newton_kepler_orbits():
    """Kepler's equation by fixed Newton steps, then positions and velocities, float64."""

    def f(mean_anom, ecc, a):
        e_anom = mean_anom + ecc * torch.sin(mean_anom)
        for _ in range(5):
            g = e_anom - ecc * torch.sin(e_anom) - mean_anom
            e_anom = e_anom - g / (1 - ecc * torch.cos(e_anom))
        cos_e, sin_e = torch.cos(e_anom), torch.sin(e_anom)
        b = a * torch.sqrt(1 - ecc**2)
        r = a * (1 - ecc * cos_e)
        n = a.pow(-1.5)
        pos = torch.stack([a * (cos_e - ecc), b * sin_e], -1)
        vel = torch.stack([-a * a * n * sin_e / r, a * b * n * cos_e / r], -1)
        return pos, vel

    t = torch.rand(3, 4000, dtype=torch.float64)
    return f, (2 * math.pi * t[0], 0.7 * t[1], 1 + t[2])


@program
def schrodinger_split_step():
    """Split-step Fourier integration of the nonlinear Schrodinger equation (complex64)."""

    def f(psi, potential, k2, dt=0.01):
        lin = torch.exp(-0.5j * dt * k2)
        for _ in range(3):
            psi = psi * torch.exp(-0.5j * dt * (potential + psi.abs() ** 2))
            psi = torch.fft.ifft2(torch.fft.fft2(psi) * lin)
            psi = psi * torch.exp(-0.5j * dt * (potential + psi.abs() ** 2))
        density = psi.real**2 + psi.imag**2
        return psi, density.sum()

    x = torch.linspace(-4, 4, 192)
    r2 = x[:, None] ** 2 + x**2
    k = 2 * math.pi * torch.fft.fftfreq(192, 8 / 191)
    psi = torch.exp(-0.5 * r2) * torch.exp(1j * x)
    return f, (psi, 0.5 * r2, k[:, None] ** 2 + k**2)
