"""Finance, graphs, reinforcement learning, geometry and optimizer steps."""

# ruff: noqa: N802, N803 (names are those of their formulas)
from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from users.corpus import program

# -------------------------------------------------------------------- finance


@program
def black_scholes_greeks():
    def N(x):
        return 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    def f(S, K, T, r, sigma):
        sq = sigma * T.sqrt()
        d1 = (torch.log(S / K) + (r + 0.5 * sigma**2) * T) / sq
        d2 = d1 - sq
        pdf = torch.exp(-0.5 * d1 * d1) / math.sqrt(2 * math.pi)
        disc = torch.exp(-r * T)
        call = S * N(d1) - K * disc * N(d2)
        put = call - S + K * disc
        return (
            call,
            put,
            N(d1),
            pdf / (S * sq),
            S * pdf * T.sqrt(),
            -S * pdf * sigma / (2 * T.sqrt()) - r * K * disc * N(d2),
        )

    n = 400_000
    return f, (
        80 + 40 * torch.rand(n),
        80 + 40 * torch.rand(n),
        0.1 + torch.rand(n),
        0.03,
        0.1 + 0.4 * torch.rand(n),
    )


@program
def drawdown_report():
    """Portfolio equity, max drawdown by cummax, Sharpe, Sortino, VaR/ES."""

    def f(rets, w):
        p = rets @ w
        eq = torch.cumprod(1 + p, 0)
        peak, _ = torch.cummax(eq, 0)
        dd = eq / peak - 1
        downside = p.clamp(max=0).square().mean(0).sqrt()
        s = p.sort(dim=0).values[: len(p) // 20]
        return torch.stack(
            [
                eq[-1] - 1,
                dd.amin(0),
                p.mean(0) / p.std(0) * 252**0.5,
                p.mean(0) / downside * 252**0.5,
                -s[-1],
                -s.mean(0),
            ]
        ), dd

    return f, (torch.randn(504, 10) * 0.01 + 0.0004, torch.rand(10, 5).softmax(0))


@program
def asian_option_mc():
    """Monte-Carlo Asian call with antithetic paths and control variate."""

    def f(z, S0, K, r, sigma):
        z = torch.cat([z, -z])
        dt = 1.0 / z.shape[1]
        steps = (r - 0.5 * sigma**2) * dt + sigma * math.sqrt(dt) * z
        path = S0 * steps.cumsum(1).exp()
        pay = (path.mean(1) - K).clamp(min=0) * math.exp(-r)
        geo = (path.log().mean(1).exp() - K).clamp(min=0) * math.exp(-r)
        gc = geo - geo.mean()
        beta = (gc * (pay - pay.mean())).mean() / gc.square().mean()
        adj = pay - beta * gc
        return adj.mean(), adj.std() / len(adj) ** 0.5, beta

    return f, (torch.randn(20000, 50), 100.0, 102.0, 0.02, 0.25)


# --------------------------------------------------------------------- graphs


@program
def gcn_two_layers():
    """Symmetric-normalised GCN with index_add message passing."""

    def f(x, src, dst, w1, w2):
        n = x.shape[0]
        deg = torch.ones(n).index_add(0, dst, torch.ones(dst.shape[0]))
        dinv = deg.rsqrt()
        norm = (dinv[src] * dinv[dst]).unsqueeze(1)

        def prop(h):
            return torch.zeros_like(h).index_add(0, dst, h[src] * norm) + h * (dinv**2)[:, None]

        h = F.relu(prop(x @ w1))
        return F.log_softmax(prop(h @ w2), dim=-1)

    return f, (
        torch.randn(8000, 64),
        torch.randint(0, 8000, (60000,)),
        torch.randint(0, 8000, (60000,)),
        torch.randn(64, 32) / 8,
        torch.randn(32, 7) / 5,
    )


@program
def gat_edge_softmax():
    """GAT: per-edge scores, segment max via scatter_reduce, segment softmax."""

    def f(x, ei, W, a_s, a_d):
        src, dst = ei
        n, nh = x.shape[0], a_s.shape[0]
        h = (x @ W).view(n, nh, -1)
        e = F.leaky_relu((h * a_s).sum(-1)[src] + (h * a_d).sum(-1)[dst], 0.2)
        idx = dst[:, None].expand(-1, nh)
        mx = torch.full((n, nh), -1e9).scatter_reduce(0, idx, e, "amax")
        ex = (e - mx[dst]).exp()
        den = torch.zeros(n, nh).scatter_add(0, idx, ex)
        alpha = ex / (den[dst] + 1e-9)
        out = torch.zeros_like(h).index_add(0, dst, h[src] * alpha[..., None])
        return F.elu(out.flatten(1)), alpha

    return f, (
        torch.randn(60, 16),
        torch.randint(0, 60, (2, 240)),
        torch.randn(16, 32) / 4,
        torch.randn(4, 8),
        torch.randn(4, 8),
    )


# ------------------------------------------------------------------------- RL


@program
def gae_and_normalise():
    """GAE, 16 steps in a backward python loop."""

    def f(rewards, values, dones, last):
        T = rewards.shape[0]
        adv = torch.zeros_like(rewards)
        run = torch.zeros_like(last)
        for t in reversed(range(T)):
            nxt = last if t == T - 1 else values[t + 1]
            live = 1.0 - dones[t].float()
            delta = rewards[t] + 0.99 * nxt * live - values[t]
            run = delta + 0.99 * 0.95 * live * run
            adv[t] = run
        ret = adv + values
        return (adv - adv.mean()) / (adv.std() + 1e-8), ret

    return f, (torch.randn(16, 16), torch.randn(16, 16), torch.rand(16, 16) < 0.05, torch.randn(16))


@program
def ppo_clip_loss():
    """PPO with clipped value loss, entropy, approx KL, on a masked action space."""

    def f(logits, mask, actions, old_logp, adv, values, old_values, returns):
        logits = torch.where(mask, logits, torch.tensor(-1e8))
        logp_all = logits - logits.logsumexp(-1, keepdim=True)
        logp = logp_all.gather(-1, actions[:, None]).squeeze(-1)
        ent = -(logp_all.exp() * logp_all * mask).sum(-1).mean()
        lr = logp - old_logp
        ratio = lr.exp()
        pg = torch.max(-adv * ratio, -adv * ratio.clamp(0.8, 1.2)).mean()
        vclip = old_values + (values - old_values).clamp(-0.2, 0.2)
        vl = 0.5 * torch.max((values - returns) ** 2, (vclip - returns) ** 2).mean()
        kl = ((ratio - 1) - lr).mean()
        return pg - 0.01 * ent + 0.5 * vl, kl, ((ratio - 1).abs() > 0.2).float().mean()

    n, a = 512, 12
    mask = torch.rand(n, a) < 0.7
    mask[:, 0] = True
    act = torch.zeros(n, dtype=torch.long)
    return f, (
        torch.randn(n, a),
        mask,
        act,
        torch.randn(n) * 0.3 - 2,
        torch.randn(n),
        torch.randn(n),
        torch.randn(n),
        torch.randn(n),
    )


@program
def c51_projection():
    """Distributional RL projection of the Bellman target onto the atoms."""

    def f(next_dist, rewards, dones):
        n_atoms, vmin, vmax = 51, -10.0, 10.0
        dz = (vmax - vmin) / (n_atoms - 1)
        sup = torch.linspace(vmin, vmax, n_atoms)
        q = (next_dist * sup).sum(-1)
        best = q.argmax(1)
        p = next_dist.gather(1, best[:, None, None].expand(-1, 1, n_atoms)).squeeze(1)
        tz = (rewards[:, None] + 0.99 * (1 - dones)[:, None] * sup).clamp(vmin, vmax)
        b = ((tz - vmin) / dz).clamp(0, n_atoms - 1)
        tri = (1 - (b[:, :, None] - torch.arange(n_atoms)).abs()).clamp(min=0)
        return (p[:, :, None] * tri).sum(1), q

    return f, (torch.randn(64, 6, 51).softmax(-1), torch.randn(64), (torch.rand(64) < 0.1).float())


# ------------------------------------------------------------------- geometry


@program
def quaternion_slerp_rotate():
    """Slerp between unit quaternions, to matrices, rotate a point cloud."""

    def f(q0, q1, t, pts):
        q0, q1 = F.normalize(q0, dim=-1), F.normalize(q1, dim=-1)
        dot = (q0 * q1).sum(-1, keepdim=True)
        q1 = torch.where(dot < 0, -q1, q1)
        th = torch.acos(dot.abs().clamp(max=0.9999))
        q = (torch.sin((1 - t) * th) * q0 + torch.sin(t * th) * q1) / torch.sin(th)
        w, x, y, z = q.unbind(-1)
        R = torch.stack(
            [
                1 - 2 * (y * y + z * z),
                2 * (x * y - w * z),
                2 * (x * z + w * y),
                2 * (x * y + w * z),
                1 - 2 * (x * x + z * z),
                2 * (y * z - w * x),
                2 * (x * z - w * y),
                2 * (y * z + w * x),
                1 - 2 * (x * x + y * y),
            ],
            -1,
        ).view(-1, 3, 3)
        return torch.einsum("nij,pj->npi", R, pts), R

    return f, (torch.randn(24, 4), torch.randn(24, 4), torch.rand(24, 1), torch.randn(50, 3))


@program
def ray_spheres_shading():
    """A tiny ray caster: nearest of 12 spheres, Lambert + Phong, checker floor."""

    def f(centers, radii, colors, light):
        h, w = 120, 160
        y, x = torch.meshgrid(torch.linspace(0.75, -0.75, h), torch.linspace(-1, 1, w), indexing="ij")
        d = F.normalize(torch.stack([x, y, -torch.ones_like(x)], -1), dim=-1)
        b = d @ centers.T
        c = (centers**2).sum(-1) - radii**2
        disc = b * b - c
        t = torch.where(disc > 0, b - disc.clamp(min=0).sqrt(), torch.full_like(b, 1e6))
        t = torch.where(t > 1e-3, t, torch.full_like(t, 1e6))
        tmin, idx = t.min(-1)
        hit = (tmin < 1e5)[..., None]
        p = d * tmin[..., None]
        n = (p - centers[idx]) / radii[idx][..., None]
        L = F.normalize(light, dim=0)
        diff = (n * L).sum(-1, keepdim=True).clamp(min=0)
        refl = 2 * (n * L).sum(-1, keepdim=True) * n - L
        spec = (-(refl * d).sum(-1, keepdim=True)).clamp(min=0) ** 32
        sky = 0.5 + 0.5 * d[..., 1:2] * torch.tensor([0.3, 0.5, 1.0])
        return torch.where(hit, colors[idx] * (0.1 + 0.9 * diff) + 0.4 * spec, sky).clamp(0, 1)

    cen = torch.rand(12, 3) * torch.tensor([4.0, 3.0, 3.0]) - torch.tensor([2.0, 1.5, 6.0])
    return f, (cen, torch.rand(12) * 0.5 + 0.2, torch.rand(12, 3), torch.tensor([1.0, 1.5, 0.8]))


@program
def sdf_raymarch():
    """Smooth-union SDF scene, sphere tracing with a fixed number of steps."""

    def sdf(p):
        s = p.norm(dim=-1) - 0.8
        q = p.abs() - 0.55
        box = q.clamp(min=0).norm(dim=-1) + q.amax(-1).clamp(max=0)
        tor = torch.hypot(torch.hypot(p[..., 0], p[..., 2]) - 1.1, p[..., 1]) - 0.15
        k = 0.2
        hmix = (0.5 + 0.5 * (box - s) / k).clamp(0, 1)
        u = torch.lerp(box, s, hmix) - k * hmix * (1 - hmix)
        return torch.minimum(u, tor)

    def f(origin, dirs):
        t = torch.zeros(dirs.shape[:-1])
        for _ in range(10):
            dist = sdf(origin + t[..., None] * dirs)
            t = (t + 0.9 * dist).clamp(max=6.0)
        p = origin + t[..., None] * dirs
        e = 4e-2 * torch.eye(3)
        n = torch.stack([sdf(p + e[i]) - sdf(p - e[i]) for i in range(3)], -1)
        return t, n / (n.norm(dim=-1, keepdim=True) + 1e-6)

    y, x = torch.meshgrid(torch.linspace(-0.8, 0.8, 128), torch.linspace(-0.8, 0.8, 128), indexing="ij")
    return f, (
        torch.tensor([0.3, 0.8, 3.0]),
        F.normalize(torch.stack([x, y - 0.25, -torch.full_like(x, 1.6)], -1), dim=-1),
    )


@program
def barycentric_raster_chamfer():
    """Soft z-buffer over a handful of triangles, and chamfer of the vertices."""

    def f(tri, col, ref):
        H = W = 24
        ys = (torch.arange(H) + 0.5) / H
        xs = (torch.arange(W) + 0.5) / W
        px, py = xs[None, :, None], ys[:, None, None]
        (ax, ay, az), (bx, by, bz), (cx, cy, cz) = (tri[:, i].unbind(-1) for i in range(3))
        den = (by - cy) * (ax - cx) + (cx - bx) * (ay - cy)
        l0 = ((by - cy) * (px - cx) + (cx - bx) * (py - cy)) / den
        l1 = ((cy - ay) * (px - cx) + (ax - cx) * (py - cy)) / den
        l2 = 1 - l0 - l1
        inside = torch.sigmoid(torch.minimum(torch.minimum(l0, l1), l2) * 60)
        z = l0 * az + l1 * bz + l2 * cz
        wgt = inside * torch.exp(-z / 0.1)
        img = (wgt[..., None] * col).sum(2) / (wgt.sum(2, keepdim=True) + 0.05)
        d = (tri.reshape(-1, 1, 3) - ref[None]).square().sum(-1)
        return img, d.min(1)[0].mean() + d.min(0)[0].mean()

    return f, (torch.rand(10, 3, 3), torch.rand(10, 3), torch.rand(200, 3))


# ----------------------------------------------------------------- optimisers


@program
def adamw_inplace_on_clones():
    """Textbook AdamW with in-place ops, on clones of the state."""

    def f(params, grads, ms, vs, step):
        out = []
        total = torch.sqrt(sum(g.pow(2).sum() for g in grads))
        clip = (1.0 / (total + 1e-6)).clamp(max=1.0)
        for p, g, m, v in zip(params, grads, ms, vs):
            p, g, m, v = p.clone(), g * clip, m.clone(), v.clone()
            p.mul_(1 - 1e-3 * 0.01)
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            bc1 = 1 - 0.9**step
            bc2 = 1 - 0.999**step
            p.addcdiv_(m, v.sqrt().div_(bc2**0.5).add_(1e-8), value=-1e-3 / bc1)
            out += [p, m, v]
        return out

    shapes = [(1024, 512), (1024,), (512, 1024), (512,), (2000, 128)]
    return f, (
        [torch.randn(s) for s in shapes],
        [torch.randn(s) for s in shapes],
        [torch.randn(s) * 0.1 for s in shapes],
        [torch.rand(s) for s in shapes],
        7,
    )


@program
def lion_with_ema():
    """Lion update, cautious mask, and an EMA copy."""

    def f(p, g, m, ema):
        c = 0.9 * m + 0.1 * g
        upd = torch.sign(c)
        mask = (upd * g > 0).to(g.dtype)
        mask = mask / mask.mean().clamp(min=1e-3)
        new_p = p * (1 - 1e-4) - 3e-4 * upd * mask
        return new_p, torch.lerp(g, m, 0.99), ema * 0.999 + new_p * 0.001

    return f, tuple(torch.randn(64, 96) for _ in range(4))


@program
def adafactor_and_newton_schulz():
    """Factored second moment, plus Muon's Newton-Schulz orthogonalisation."""

    def f(g, row, col, mom):
        g2 = g * g + 1e-30
        row = 0.99 * row + 0.01 * g2.mean(1)
        col = 0.99 * col + 0.01 * g2.mean(0)
        u = g * (row / row.mean()).rsqrt()[:, None] * col.rsqrt()[None, :]
        u = u / (u.square().mean().sqrt() / 1.0).clamp(min=1.0)
        X = 0.95 * mom + u
        X = X / (X.norm() + 1e-7)
        for _ in range(5):
            A = X @ X.T
            X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
        return X * max(1, g.shape[0] / g.shape[1]) ** 0.5, row, col

    return f, (torch.randn(192, 384), torch.rand(192), torch.rand(384), torch.randn(192, 384))
