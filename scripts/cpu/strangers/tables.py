"""Recommenders, graphs and reinforcement learning: tables, edges and trajectories."""

import math

import torch
import torch.nn.functional as F

from strangers.corpus import program


@program
def dlrm_dot_interaction():
    """DLRM: embeddings of many tables by offset ids, pairwise dots, a top MLP."""

    def f(dense, ids, offsets, table, w_bot, w_top, b_top):
        x = torch.relu(dense @ w_bot)
        emb = F.embedding(ids + offsets, table)
        t = torch.cat([x.unsqueeze(1), emb], dim=1)
        z = torch.bmm(t, t.transpose(1, 2))
        n = t.shape[1]
        li, lj = torch.tril_indices(n, n, offset=-1)
        r = torch.cat([x, z[:, li, lj]], dim=1)
        return torch.sigmoid(torch.relu(r @ w_top).sum(1) * 0.1 + b_top)

    fields, d, b = 12, 32, 2048
    ids = torch.randint(0, 300, (b, fields))
    args = torch.randn(b, 13), ids, 300 * torch.arange(fields), 0.3 * torch.randn(300 * fields, d)
    return f, (*args, 0.3 * torch.randn(13, d), 0.1 * torch.randn(d + 13 * 12 // 2, 24), torch.zeros(1))


@program
def oblivious_trees_predict():
    """CatBoost-like symmetric trees: comparisons packed to leaf numbers, leaves gathered and summed."""

    def f(x, feature, threshold, leaves):
        depth = feature.shape[1]
        bits = (x[:, feature.view(-1)] > threshold.view(-1)).view(x.shape[0], -1, depth)
        powers = 2 ** torch.arange(depth - 1, -1, -1)
        leaf = (bits.long() * powers).sum(-1)
        tree = torch.arange(leaves.shape[0])
        margin = leaves[tree, leaf].sum(1)
        return torch.sigmoid(margin), leaf

    x = torch.randn(1500, 20)
    feats = torch.randint(0, 20, (100, 6))
    return f, (x, feats, torch.randn(100, 6), 0.1 * torch.randn(100, 64))


@program
def pna_scatter_aggregators():
    """Principal neighbourhood aggregation: mean, min, max and deviation by scatter, degree scalers."""

    def f(x, edge_index, weight):
        n = x.shape[0]
        src, dst = edge_index
        msg = x[src]
        idx = dst[:, None].expand_as(msg)
        deg = torch.zeros(n).scatter_add_(0, dst, torch.ones(dst.shape[0]))
        cnt = deg.clamp(min=1)[:, None]
        mean = torch.zeros_like(x).scatter_add_(0, idx, msg) / cnt
        sq = torch.zeros_like(x).scatter_add_(0, idx, msg * msg) / cnt
        std = (sq - mean * mean).relu().add(1e-5).sqrt()
        mx = torch.zeros_like(x).scatter_reduce(0, idx, msg, "amax", include_self=False)
        mn = torch.zeros_like(x).scatter_reduce(0, idx, msg, "amin", include_self=False)
        agg = torch.cat([mean, mn, mx, std], dim=-1)
        log_deg = (deg + 1).log()
        amp = (log_deg / log_deg.mean())[:, None]
        return F.relu(torch.cat([agg, agg * amp, agg / amp.clamp(min=0.1)], -1) @ weight)

    n, e, d = 700, 4000, 24
    return f, (torch.randn(n, d), torch.randint(0, n, (2, e)), torch.randn(12 * d, d) / 10)


@program
def pagerank_dangling():
    """Fifteen power iterations of PageRank with dangling nodes, float64, by scatter_add."""

    def f(src, dst, personal, damping=0.85):
        n = personal.shape[0]
        deg = torch.zeros_like(personal).scatter_add(0, src, torch.ones_like(src, dtype=personal.dtype))
        inv = torch.where(deg > 0, 1.0 / deg.clamp(min=1), torch.zeros_like(deg))
        dangling = deg == 0
        p = personal / personal.sum()
        r = p
        for _ in range(15):
            flow = torch.zeros_like(r).scatter_add(0, dst, (r * inv)[src])
            lost = (r * dangling).sum()
            r = damping * (flow + lost * p) + (1 - damping) * p
        return r, (r * n).log()

    n = 10007
    src, dst = torch.randint(0, n, (2, 60000))
    return f, (src, (dst * dst) // n, torch.rand(n, dtype=torch.float64) + 0.1)


@program
def vtrace_impala_targets():
    """IMPALA's V-trace targets and policy-gradient advantages, backwards over an unroll."""

    def f(behaviour_logp, target_logp, rewards, discounts, values, bootstrap):
        rho = torch.exp(target_logp - behaviour_logp)
        clipped = rho.clamp(max=1.0)
        cs = rho.clamp(max=1.0)
        values_next = torch.cat([values[1:], bootstrap[None]], dim=0)
        deltas = clipped * (rewards + discounts * values_next - values)
        acc = torch.zeros_like(bootstrap)
        out = []
        for t in range(rewards.shape[0] - 1, -1, -1):
            acc = deltas[t] + discounts[t] * cs[t] * acc
            out.append(acc)
        vs = torch.stack(out[::-1]) + values
        vs_next = torch.cat([vs[1:], bootstrap[None]], dim=0)
        return vs, clipped * (rewards + discounts * vs_next - values)

    t, b = 6, 16
    logp = -torch.rand(2, t, b) * 2
    disc = 0.99 * (torch.rand(t, b) > 0.05)
    return f, (logp[0], logp[1], torch.randn(t, b), disc, torch.randn(t, b), torch.randn(b))


@program
def sac_squashed_policy_loss():
    """SAC: tanh-squashed Gaussian log-probabilities, twin critics and temperature."""

    def f(mean, log_std, noise, q1, q2, log_alpha):
        log_std = -5 + 0.5 * (2 + 5) * (torch.tanh(log_std) + 1)
        u = mean + log_std.exp() * noise
        action = torch.tanh(u)
        logp = -0.5 * noise.pow(2) - log_std - 0.5 * math.log(2 * math.pi)
        logp = (logp - 2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1)
        alpha = log_alpha.exp()
        actor = (alpha * logp - torch.min(q1, q2)).mean()
        return action, actor, -(log_alpha * (logp - mean.shape[-1])).mean()

    m, s, n = torch.randn(3, 64, 6)
    return f, (m, s, n, torch.randn(64), torch.randn(64), torch.tensor(-1.2))


@program
def dreamer_symlog_two_hot():
    """DreamerV3's symlog two-hot targets, cross entropy and the decoded value."""

    def f(logits, value, bins):
        y = torch.sign(value) * torch.log1p(value.abs())
        below = (bins <= y[:, None]).sum(-1) - 1
        below = below.clamp(0, bins.shape[0] - 2)
        above = below + 1
        w = (y - bins[below]) / (bins[above] - bins[below])
        target = torch.zeros_like(logits)
        target.scatter_(1, below[:, None], (1 - w)[:, None]).scatter_(1, above[:, None], w[:, None])
        loss = -(target * F.log_softmax(logits, -1)).sum(-1)
        mean = (logits.softmax(-1) * bins).sum(-1)
        return loss, torch.sign(mean) * torch.expm1(mean.abs())

    return f, (torch.randn(64, 41), 20 * torch.randn(64), torch.linspace(-20, 20, 41))
