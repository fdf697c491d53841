"""Training steps, and their losses alone, as users write them: see the package."""

# ruff: noqa: N803, E741 (names are those of their formulas)
from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from users.corpus import loss_of, program

# --------------------------------------------------------------- training steps


def _mlp_setup():
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    return net, (torch.randn(128, 64), torch.randint(0, 10, (128,)))


@program
def train_mlp_classifier():
    """MNIST-like MLP, label smoothing, autograd.grad over the parameters."""
    net, args = _mlp_setup()
    params = list(net.parameters())

    def step(x, y):
        loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
        grads = torch.autograd.grad(loss, params)
        return (loss.detach(), *grads)

    return step, args


@loss_of("train_mlp_classifier")
def _():
    net, args = _mlp_setup()
    return (lambda x, y: F.cross_entropy(net(x), y, label_smoothing=0.1)), args


def _cnn_setup():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1 = nn.Conv2d(3, 16, 3, padding=1)
            self.c2 = nn.Conv2d(16, 32, 3, padding=1)
            self.g, self.b = nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(16))
            self.fc = nn.Linear(32, 10)

        def forward(self, x):
            x = F.relu(F.batch_norm(self.c1(x), None, None, self.g, self.b, training=True))
            x = F.max_pool2d(x, 2)
            x = F.relu(self.c2(x))
            return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))

    return Net(), (torch.randn(48, 3, 32, 32), torch.randint(0, 10, (48,)))


@program
def train_cnn_backward():
    """CIFAR-like CNN with batch-stat BN; loss.backward, grads handed out and cleared."""
    net, args = _cnn_setup()
    params = list(net.parameters())

    def step(x, y):
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        grads = [p.grad for p in params]
        for p in params:
            p.grad = None
        return [loss.detach()] + grads

    return step, args


@loss_of("train_cnn_backward")
def _():
    net, args = _cnn_setup()
    return (lambda x, y: F.cross_entropy(net(x), y)), args


def _gpt_setup():
    class Block(nn.Module):
        def __init__(self, d, h):
            super().__init__()
            self.h = h
            self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
            a = (q @ k.transpose(-1, -2)) / math.sqrt(d // self.h)
            a = a.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf")).softmax(-1)
            x = x + self.proj((a @ v).transpose(1, 2).reshape(b, t, d))
            return x + self.mlp(self.ln2(x))

    class GPT(nn.Module):
        def __init__(self, vocab=200, d=64, t=48):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(t, d)
            self.blocks = nn.ModuleList([Block(d, 4) for _ in range(2)])
            self.ln = nn.LayerNorm(d)

        def forward(self, idx):
            x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
            for blk in self.blocks:
                x = blk(x)
            return self.ln(x) @ self.wte.weight.t()

    net = GPT()
    return net, (torch.randint(0, 200, (24, 49)),)


@program
def train_tiny_gpt():
    """nanoGPT step with tied embeddings, two blocks."""
    net, args = _gpt_setup()
    params = list(net.parameters())

    def step(seq):
        logits = net(seq[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), seq[:, 1:].flatten())
        return (loss.detach(),) + torch.autograd.grad(loss, params)

    return step, args


@loss_of("train_tiny_gpt")
def _():
    net, args = _gpt_setup()

    def loss(seq):
        return F.cross_entropy(net(seq[:, :-1]).flatten(0, 1), seq[:, 1:].flatten())

    return loss, args


def _logreg_loss(w, b, x, y):
    z = x @ w + b
    return F.binary_cross_entropy_with_logits(z, y) + 1e-3 * w.square().sum() + 1e-4 * w.abs().sum()


def _logreg_args():
    x = torch.randn(400, 30)
    y = (x[:, 0] - x[:, 3] + 0.5 * torch.randn(400) > 0).float()
    return torch.randn(30).mul_(0.1).requires_grad_(), torch.zeros((), requires_grad=True), x, y


@program
def train_logistic_elastic():
    """Elastic-net logistic regression, gradients to the two leaves."""

    def step(w, b, x, y):
        loss = _logreg_loss(w, b, x, y)
        gw, gb = torch.autograd.grad(loss, (w, b))
        return loss.detach(), w.detach() - 0.1 * gw, b.detach() - 0.1 * gb

    return step, _logreg_args()


@loss_of("train_logistic_elastic")
def _():
    return _logreg_loss, _logreg_args()


def _vae_setup():
    enc = nn.Sequential(nn.Linear(256, 96), nn.Tanh(), nn.Linear(96, 32))
    dec = nn.Sequential(nn.Linear(16, 96), nn.Tanh(), nn.Linear(96, 256))

    def loss_fn(x, eps):
        mu, lv = enc(x).chunk(2, -1)
        z = mu + torch.exp(0.5 * lv) * eps
        rec = F.binary_cross_entropy_with_logits(dec(z), x, reduction="sum") / x.shape[0]
        kl = -0.5 * (1 + lv - mu**2 - lv.exp()).sum(1).mean()
        return rec + 0.5 * kl

    return (
        loss_fn,
        list(enc.parameters()) + list(dec.parameters()),
        (torch.rand(256, 256), torch.randn(256, 16)),
    )


@program
def train_vae_elbo():
    """VAE with a given noise sample; beta = 0.5."""
    loss_fn, params, args = _vae_setup()

    def step(x, eps):
        loss = loss_fn(x, eps)
        return (loss.detach(), *torch.autograd.grad(loss, params))

    return step, args


@loss_of("train_vae_elbo")
def _():
    loss_fn, _, args = _vae_setup()
    return loss_fn, args


def _rnn_setup():
    d, h = 12, 48
    p = [
        (torch.randn(3 * h, d) * 0.2).requires_grad_(),
        (torch.randn(3 * h, h) * 0.14).requires_grad_(),
        torch.zeros(3 * h, requires_grad=True),
        (torch.randn(1, h) * 0.2).requires_grad_(),
    ]

    def loss_fn(wi, wh, b, wo, x, y):
        hid = torch.zeros(x.shape[1], wh.shape[1])
        preds = []
        for t in range(x.shape[0]):
            gi = F.linear(x[t], wi, b)
            gh = F.linear(hid, wh)
            ir, iz, inn = gi.chunk(3, 1)
            hr, hz, hn = gh.chunk(3, 1)
            r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
            n = torch.tanh(inn + r * hn)
            hid = (1 - z) * n + z * hid
            preds.append(F.linear(hid, wo).squeeze(-1))
        return F.smooth_l1_loss(torch.stack(preds), y)

    return loss_fn, p, (torch.randn(10, 32, d), torch.randn(10, 32))


@program
def train_gru_unrolled():
    """GRU written by hand, 10 unrolled steps, smooth L1, BPTT."""
    loss_fn, p, (x, y) = _rnn_setup()

    def step(wi, wh, b, wo, x, y):
        loss = loss_fn(wi, wh, b, wo, x, y)
        g = torch.autograd.grad(loss, [wi, wh, b, wo])
        norm = torch.stack([t.norm() for t in g]).norm()
        s = torch.clamp(1.0 / (norm + 1e-6), max=1.0)
        return [loss.detach(), norm] + [t * s for t in g]

    return step, (*p, x, y)


@loss_of("train_gru_unrolled")
def _():
    loss_fn, p, xy = _rnn_setup()
    return loss_fn, (*p, *xy)


def _dqn_setup():
    q, tgt = (
        nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        for _ in range(2)
    )
    tgt.requires_grad_(False)

    def loss_fn(s, a, r, s2, done, w):
        qa = q(s).gather(1, a[:, None]).squeeze(1)
        with torch.no_grad():
            best = q(s2).argmax(1, keepdim=True)
            y = r + 0.99 * (1 - done) * tgt(s2).gather(1, best).squeeze(1)
        td = qa - y
        return (w * F.huber_loss(qa, y, reduction="none")).mean(), td.detach().abs()

    n = 64
    args = (
        torch.randn(n, 8),
        torch.randint(0, 4, (n,)),
        torch.randn(n),
        torch.randn(n, 8),
        (torch.rand(n) < 0.1).float(),
        torch.rand(n),
    )
    return loss_fn, list(q.parameters()), args


@program
def train_double_dqn():
    """Double DQN step with importance weights; loss.backward."""
    loss_fn, params, args = _dqn_setup()

    def step(s, a, r, s2, done, w):
        loss, prio = loss_fn(s, a, r, s2, done, w)
        loss.backward()
        grads = [p.grad for p in params]
        for p in params:
            p.grad = None
        return [loss.detach(), prio] + grads

    return step, args


@loss_of("train_double_dqn")
def _():
    loss_fn, _, args = _dqn_setup()
    return (lambda *a: loss_fn(*a)[0]), args


def _unet_setup():
    class UNet(nn.Module):
        def __init__(self, c=12):
            super().__init__()
            self.d1 = nn.Conv2d(1, c, 3, padding=1)
            self.d2 = nn.Conv2d(c, 2 * c, 3, padding=1, stride=2)
            self.mid = nn.Conv2d(2 * c, 2 * c, 3, padding=2, dilation=2)
            self.gn = nn.GroupNorm(4, 2 * c)
            self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
            self.out = nn.Conv2d(2 * c, 1, 1)

        def forward(self, x):
            a = F.silu(self.d1(x))
            b = F.silu(self.d2(a))
            b = b + F.silu(self.gn(self.mid(b)))
            return self.out(torch.cat([a, self.up(b)], 1))

    net = UNet()

    def loss_fn(x0, t, noise):
        ab = torch.cos(t * math.pi / 2)[:, None, None, None] ** 2
        xt = ab.sqrt() * x0 + (1 - ab).sqrt() * noise
        w = (ab / (1 - ab)).clamp(max=5.0).flatten()
        return (w * (net(xt) - noise).square().mean((1, 2, 3))).mean()

    return (
        loss_fn,
        list(net.parameters()),
        (torch.randn(8, 1, 32, 32), torch.linspace(0.1, 0.9, 8), torch.randn(8, 1, 32, 32)),
    )


@program
def train_diffusion_unet():
    """Denoising step of a tiny conv U-Net with min-SNR weighting."""
    loss_fn, params, args = _unet_setup()

    def step(x0, t, noise):
        loss = loss_fn(x0, t, noise)
        return (loss.detach(), *torch.autograd.grad(loss, params))

    return step, args


@loss_of("train_diffusion_unet")
def _():
    loss_fn, _, args = _unet_setup()
    return loss_fn, args


def _matfac_loss(U, V, bu, bi, users, items, ratings):
    u, v = U[users], V[items]
    pred = 3.5 + bu[users] + bi[items] + (u * v).sum(-1)
    return F.mse_loss(pred, ratings) + 0.02 * (u.square().sum(-1) + v.square().sum(-1)).mean()


def _matfac_args():
    return (
        (torch.randn(500, 32) * 0.1).requires_grad_(),
        (torch.randn(800, 32) * 0.1).requires_grad_(),
        torch.zeros(500, requires_grad=True),
        torch.zeros(800, requires_grad=True),
        torch.randint(0, 500, (4096,)),
        torch.randint(0, 800, (4096,)),
        torch.randint(1, 6, (4096,)).float(),
    )


@program
def train_matrix_factorisation():
    """Recommender: biased MF, the gradient scatters into the tables."""

    def step(U, V, bu, bi, users, items, ratings):
        loss = _matfac_loss(U, V, bu, bi, users, items, ratings)
        return (loss.detach(), *torch.autograd.grad(loss, (U, V, bu, bi)))

    return step, _matfac_args()


@loss_of("train_matrix_factorisation")
def _():
    return _matfac_loss, _matfac_args()


def _nerf_setup():
    l1, l2, l3 = nn.Linear(39, 64), nn.Linear(64, 64), nn.Linear(64, 4)

    def loss_fn(o, d, ts, rgb):
        pts = o[:, None] + d[:, None] * ts[None, :, None]
        fr = 2.0 ** torch.arange(6)
        ang = (pts[..., None] * fr).flatten(-2)
        h = torch.cat([pts, ang.sin(), ang.cos()], -1)
        h = F.softplus(l2(F.relu(l1(h))), beta=5)
        out = l3(h)
        sigma, c = F.softplus(out[..., 0] - 1), torch.sigmoid(out[..., 1:])
        delta = torch.diff(ts, append=ts[-1:] + 0.1)
        alpha = 1 - torch.exp(-sigma * delta)
        T = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-6], 1), 1)[:, :-1]
        w = alpha * T
        return ((w[..., None] * c).sum(1) - rgb).square().mean() + 0.01 * (w * ts).sum(1).var()

    params = [p for l in (l1, l2, l3) for p in l.parameters()]
    return (
        loss_fn,
        params,
        (
            torch.randn(64, 3) * 0.1,
            F.normalize(torch.randn(64, 3), dim=-1),
            torch.linspace(0.5, 3.0, 24),
            torch.rand(64, 3),
        ),
    )


@program
def train_tiny_nerf():
    """Positional encoding, MLP, volume rendering by cumprod, autograd.grad."""
    loss_fn, params, args = _nerf_setup()

    def step(o, d, ts, rgb):
        loss = loss_fn(o, d, ts, rgb)
        return (loss.detach(), *torch.autograd.grad(loss, params))

    return step, args


@loss_of("train_tiny_nerf")
def _():
    loss_fn, _, args = _nerf_setup()
    return loss_fn, args
