"""Bioinformatics, graphs, time series."""

import torch
import torch.nn.functional as F

from guests.corpus import program, training

# --------------------------------------------------------------------------------- 43, 44: bioinformatics


@program
def kmer_minimizer_counts():
    """Canonical 5-mers of reads by two-bit codes, hashed minimizers of windows, and counts."""
    powers = 4 ** torch.arange(4, -1, -1)

    def f(reads):
        kmers = reads.unfold(1, 5, 1)
        forward = (kmers * powers).sum(-1)
        backward = ((3 - kmers).flip(-1) * powers).sum(-1)
        canonical = torch.minimum(forward, backward)
        hashed = (canonical * 2654435761) & 0xFFFFFFFF
        hashed = hashed ^ (hashed >> 15)
        least, where = hashed.unfold(1, 7, 1).min(-1)
        position = where + torch.arange(where.shape[1])
        new = F.pad(position.diff(dim=1) != 0, (1, 0), value=True)
        flat = canonical.flatten()
        counts = torch.zeros(1024, dtype=torch.long).index_add(0, flat, torch.ones_like(flat))
        return counts, torch.where(new, least, -1), new.sum(1)

    return f, (torch.randint(4, (3, 61)),)


@training
def pwm_scan_step():
    """Motif matrices slid over both strands of DNA, pooled softly, classified: one step of the motifs."""

    def loss(motifs, head, bias, dna, background, bound):
        onehot = F.one_hot(dna, 4).float().transpose(1, 2)
        logs = motifs.log_softmax(1) - background.log()[:, None]
        strands = torch.cat([logs, logs.flip((1, 2))])
        scores = F.conv1d(onehot, strands)
        best = torch.logsumexp(scores.unflatten(1, (2, -1)), dim=(1, 3)) - 5.0
        logits = F.softplus(best) @ head + bias
        spread = -(logs.exp() * logs).sum(1).mean()
        return F.binary_cross_entropy_with_logits(logits, bound, pos_weight=torch.tensor(2.5)) + 0.01 * spread

    def step(motifs, head, bias, *data):
        slopes, value = torch.func.grad_and_value(loss, argnums=(0, 1, 2))(motifs, head, bias, *data)
        return (value.detach(), *[slope.detach() for slope in slopes])

    leaves = (torch.randn(11, 4, 9), torch.randn(11) / 3, torch.zeros(()))
    data = (torch.randint(4, (37, 151)), torch.tensor([0.3, 0.2, 0.2, 0.3]), (torch.rand(37) < 0.3).float())
    return step, (*[leaf.requires_grad_() for leaf in leaves], *data), loss


# ------------------------------------------------------------------------------------------- 45, 46: graphs


@training
def gated_graph_step():
    """Two GatedGCN layers with edge gates and batch norm, cross entropy of the labelled nodes, gradients."""

    def norm(x, scale, shift):
        centred = x - x.mean(0)
        return centred * torch.rsqrt(centred.square().mean(0) + 1e-5) * scale + shift

    def loss(layers, head, nodes, edges, source, target, labels, known):
        h, e = nodes, edges
        for mix, scale, shift in layers:
            a, b, c, u, v = mix.unbind(0)
            edge = (h @ a)[target] + (h @ b)[source] + e @ c
            gate = edge.sigmoid()
            total = torch.zeros_like(h).index_add(0, target, gate)
            message = torch.zeros_like(h).index_add(0, target, gate * (h @ v)[source])
            h = h + F.relu(norm(h @ u + message / (total + 1e-6), scale[0], shift[0]))
            e = e + F.relu(norm(edge, scale[1], shift[1]))
        return F.cross_entropy(h @ head, labels.masked_fill(~known, -1), ignore_index=-1)

    def step(layers, head, *graph):
        value = loss(layers, head, *graph)
        leaves = [tensor for layer in layers for tensor in layer] + [head]
        return (value.detach(), *torch.autograd.grad(value, leaves))

    layers = [[torch.randn(5, 28, 28) / 6, torch.ones(2, 28), torch.zeros(2, 28)] for _ in range(2)]
    layers = [[tensor.requires_grad_() for tensor in layer] for layer in layers]
    source, target = torch.randint(211, (2, 907))
    graph = (torch.randn(211, 28), torch.randn(907, 28), source, target)
    known = torch.rand(211) < 0.4
    head = (torch.randn(28, 6) / 5).requires_grad_()
    return step, (layers, head, *graph, torch.randint(6, (211,)), known), loss


@program
def label_spreading_edges():
    """Labels spread over a weighted graph's edges three times from the known nodes, with the margins."""

    def f(source, target, weight, labels, known):
        n = labels.shape[0]
        degree = torch.zeros(n).index_add(0, target, weight) + 1e-6
        scaled = weight * torch.rsqrt(degree[source] * degree[target])
        start = F.one_hot(labels, 4).float() * known[:, None]
        y = start
        for _ in range(3):
            spread = torch.zeros_like(y).index_add_(0, target, scaled[:, None] * y[source])
            y = 0.85 * spread + 0.15 * start
        best = y.topk(2, dim=1).values
        return y, best[:, 0] - best[:, 1]

    source, target = torch.randint(61, (2, 240))
    return f, (source, target, torch.rand(240), torch.randint(4, (61,)), torch.rand(61) < 0.3)


# -------------------------------------------------------------------------------------- 47, 48: time series


@program
def theta_forecast_backtest():
    """The theta method: drift by least squares, smoothed levels of the doubled curvature, and sMAPE."""

    def f(series, alpha):
        train, test = series[:, :8], series[:, 8:]
        t = torch.arange(8.0)
        centred = t - t.mean()
        drift = (train * centred).sum(1) / centred.square().sum()
        line = train.mean(1, keepdim=True) + drift[:, None] * centred
        curve = 2 * train - line
        level = curve[:, 0]
        for value in curve.unbind(1)[1:]:
            level = level + alpha * (value - level)
        ahead = torch.arange(1, test.shape[1] + 1)
        forecast = 0.5 * (level[:, None] + line[:, -1:] + drift[:, None] * ahead)
        error = (forecast - test).abs()
        smape = (200 * error / (forecast.abs() + test.abs())).mean(1)
        return forecast, smape

    series = 20 + torch.randn(9, 13).cumsum(1)
    return f, (series, torch.linspace(0.1, 0.9, 9))


@training
def soft_dtw_band_step():
    """Soft-DTW of a barycentre to six series within a band, by antidiagonals: one step of the barycentre."""
    n, m, gamma, band = 14, 17, 0.1, 5
    rows = torch.arange(n)
    far = 1e4

    def loss(centre, series, weights):
        cost = torch.cdist(series, centre.expand(len(series), -1, -1)).square().transpose(1, 2)
        before = last = torch.full((len(series), n), far)
        for k in range(n + m - 1):
            column = k - rows
            allowed = (column >= 0) & (column < m) & ((column * n - rows * m).abs() <= band * n)
            here = cost[:, rows, column.clamp(0, m - 1)]
            shifted, corner = F.pad(last, (1, 0), value=far)[:, :-1], F.pad(before, (1, 0), value=far)[:, :-1]
            if k == 0:
                corner = F.pad(torch.zeros(len(series), 1), (0, n - 1), value=far)
            options = torch.stack([shifted, last, corner])
            soft = -gamma * torch.logsumexp(-options / gamma, dim=0)
            before, last = last, torch.where(allowed, here + soft, far)
        return (weights * last[:, -1]).sum() / weights.sum()

    def step(centre, series, weights):
        leaf = centre.detach().requires_grad_()
        value = loss(leaf, series, weights)
        value.backward()
        return value.detach(), leaf.grad, leaf.detach() - 0.1 * leaf.grad

    series = torch.sin(torch.linspace(0, 6, m)[:, None] + torch.randn(6, 1, 3)) + 0.1 * torch.randn(6, m, 3)
    return step, (series[:, :n].mean(0).requires_grad_(), series, torch.rand(6) + 0.5), loss
