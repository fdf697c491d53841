"""Bayesian and classical statistics."""

import math

import torch

from strangers.corpus import program


@program
def kalman_filter_constant_velocity():
    """A batch of constant-velocity Kalman filters over a dozen steps, float64, with log-likelihood."""

    def f(z, a, q, h, r):
        b, t_max, m = z.shape
        n = a.shape[0]
        x = torch.zeros(b, n, 1, dtype=z.dtype)
        p = torch.eye(n, dtype=z.dtype).repeat(b, 1, 1) * 10
        eye = torch.eye(n, dtype=z.dtype)
        ll = torch.zeros(b, dtype=z.dtype)
        means = []
        for t in range(t_max):
            x = a @ x
            p = a @ p @ a.T + q
            s = h @ p @ h.T + r
            k = torch.linalg.solve(s, h @ p).transpose(1, 2)
            y = z[:, t].unsqueeze(-1) - h @ x
            x = x + k @ y
            p = (eye - k @ h) @ p
            maha = (y.transpose(1, 2) @ torch.linalg.solve(s, y)).view(b)
            ll = ll - 0.5 * (maha + torch.logdet(s) + m * math.log(2 * math.pi))
            means.append(x.squeeze(-1))
        return torch.stack(means, 1), ll

    a = torch.eye(4) + 0.1 * torch.diag(torch.ones(2), 2)
    args = torch.randn(32, 12, 2).cumsum(1), a, 0.05 * torch.eye(4), torch.eye(4)[:2], 0.3 * torch.eye(2)
    return f, tuple(t.double() for t in args)


@program
def gp_matern_posterior():
    """Gaussian-process regression with a Matern-5/2 ARD kernel: posterior and evidence, float64."""

    def matern52(x, y, ls, var):
        d2 = ((x / ls)[:, None, :] - (y / ls)[None, :, :]).pow(2).sum(-1)
        r = torch.sqrt(5.0 * d2 + 1e-12)
        return var * (1 + r + r * r / 3) * torch.exp(-r)

    def f(x, y, xs, ls, var, noise):
        k = matern52(x, x, ls, var) + noise * torch.eye(x.shape[0], dtype=x.dtype)
        ks = matern52(x, xs, ls, var)
        chol = torch.linalg.cholesky(k)
        alpha = torch.cholesky_solve(y[:, None], chol)
        mean = (ks.T @ alpha).squeeze(-1)
        v = torch.linalg.solve_triangular(chol, ks, upper=False)
        cov_diag = var - v.pow(2).sum(0)
        n = x.shape[0]
        mll = -0.5 * (y @ alpha).squeeze() - chol.diagonal().log().sum() - 0.5 * n * math.log(2 * math.pi)
        return mean, cov_diag, mll

    x = torch.rand(120, 3, dtype=torch.float64)
    args = torch.sin(4 * x.sum(1)), torch.rand(251, 3), torch.tensor([0.5, 0.8, 1.1]), torch.tensor(1.3)
    return f, (x, *(t.double() for t in args), torch.tensor(0.01, dtype=torch.float64))


@program
def welford_merge_running_stats():
    """RL-style running mean and variance merged with a batch, observation normalised and clipped."""

    def f(mean, var, count, batch):
        b_mean = batch.mean(dim=0)
        b_var = batch.var(dim=0, unbiased=False)
        n = batch.shape[0]
        delta = b_mean - mean
        tot = count + n
        new_mean = mean + delta * n / tot
        m2 = var * count + b_var * n + delta.square() * count * n / tot
        new_var = m2 / tot
        return new_mean, new_var, tot, torch.clamp((batch - new_mean) / torch.sqrt(new_var + 1e-8), -5, 5)

    return f, (torch.randn(17), torch.rand(17) + 0.5, torch.tensor(1000.0), 2 * torch.randn(8, 17))


@program
def crps_ensemble_interval_score():
    """Ensemble forecasts verified: fair CRPS, interval score, spread-skill and rank."""

    def f(ens, obs, weights):
        m = ens.shape[0]
        skill = (ens - obs).abs().mean(0)
        spread = (ens[:, None] - ens[None, :]).abs().sum((0, 1)) / (2 * m * (m - 1))
        crps = (skill - spread) * weights
        lo, hi = torch.quantile(ens, torch.tensor([0.1, 0.9]), dim=0)
        width = hi - lo
        interval = width + 10 * (lo - obs).clamp(min=0) + 10 * (obs - hi).clamp(min=0)
        rmse = (ens.mean(0) - obs).pow(2).mean().sqrt()
        rank = (ens < obs).sum(0)
        return crps.mean(), interval.mean(), ens.var(0).mean().sqrt() / rmse, rank

    lat = torch.linspace(-1.5, 1.5, 64).cos()[:, None]
    return f, (torch.randn(20, 64, 90), torch.randn(64, 90), (lat / lat.mean()).expand(64, 90))
