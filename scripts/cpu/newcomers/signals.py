"""Wavelets, graphs, generative models, complex numbers, restoration, text."""

import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn

from newcomers.corpus import program, training

# ----------------------------------------------------------------------------- 53, 54: wavelets and analytic


@program
def haar_soft_threshold():
    """Three levels of a 2-D Haar transform of an odd-sized image, soft thresholds by the MAD, inverse."""

    def forward(x):
        a, b, c, d = x[..., 0::2, 0::2], x[..., 0::2, 1::2], x[..., 1::2, 0::2], x[..., 1::2, 1::2]
        return (a + b + c + d) / 2, torch.stack([a - b + c - d, a + b - c - d, a - b - c + d]) / 2

    def inverse(low, high):
        lh, hl, hh = high
        even = torch.stack([low + lh + hl + hh, low - lh + hl - hh], dim=-1).flatten(-2)
        odd = torch.stack([low + lh - hl - hh, low - lh - hl + hh], dim=-1).flatten(-2)
        return torch.stack([even, odd], dim=-2).flatten(-3, -2) / 2

    def f(img):
        h, w = img.shape[-2:]
        low = F.pad(img[None], (0, -w % 8, 0, -h % 8), mode="reflect")[0]
        bands = []
        for _ in range(3):
            low, high = forward(low)
            bands.append(high)
        sigma = bands[0][2].flatten(1).abs().median(dim=1).values / 0.6745
        for high in reversed(bands):
            t = sigma[:, None, None] * 2.5
            high = torch.sign(high) * torch.relu(high.abs() - t)
            low = inverse(low, high)
        return low[..., :h, :w], sigma

    smooth = F.interpolate(torch.rand(1, 3, 9, 13), (397, 501), mode="bilinear")[0]
    return f, (smooth + 0.1 * torch.randn(3, 397, 501),)


@program
def hilbert_instantaneous_frequency():
    """The analytic signal by a matrix, envelope, unwrapped phase, instantaneous frequency, its mean."""
    n = 255
    k = torch.arange(n)
    delta = k[:, None] - k[None, :]
    cot = 1 / torch.tan(math.pi * (delta + torch.eye(n)) / n)
    csc = 1 / torch.sin(math.pi * (delta + torch.eye(n)) / n)
    hilbert = torch.where(delta == 0, 0.0, (cot - torch.cos(math.pi * delta) * csc) / n)

    def f(x, matrix):
        x = x - x.mean(-1, keepdim=True)
        y = x @ matrix.T
        envelope = torch.sqrt(x * x + y * y)
        phase = torch.atan2(y, x)
        step = torch.diff(phase, dim=-1)
        step = torch.remainder(step + math.pi, 2 * math.pi) - math.pi
        unwrapped = torch.cat([phase[:, :1], step], dim=-1).cumsum(-1)
        frequency = F.avg_pool1d(step[:, None] / (2 * math.pi), 5, stride=1)[:, 0]
        centre = (step * envelope[:, 1:]).sum(-1) / envelope[:, 1:].sum(-1)
        return envelope, unwrapped[:, -1] - unwrapped[:, 0], frequency, centre

    t = k / n
    f0 = torch.linspace(12, 40, 13)[:, None]
    return f, ((1 + 0.3 * torch.sin(2 * math.pi * 3 * t)) * torch.cos(2 * math.pi * f0 * t), hilbert)


# ---------------------------------------------------------------------------------------- 55, 56: graphs


@program
def segment_attention_pool():
    """Attention pooling of 741 nodes in 17 graphs: softmax per segment, then mean, maximum and spread."""
    gate = nn.Sequential(nn.Linear(33, 16), nn.Tanh(), nn.Linear(16, 3)).requires_grad_(False)
    value = nn.Linear(33, 21).requires_grad_(False)

    def f(x, batch):
        n = 17
        s = gate(x)
        index = batch[:, None].expand_as(s)
        peak = torch.full((n, 3), float("-inf")).scatter_reduce(0, index, s, "amax", include_self=True)
        e = torch.exp(s - peak[batch])
        total = torch.zeros(n, 3).index_add_(0, batch, e)
        alpha = e / (total[batch] + 1e-16)
        v = value(x).view(-1, 3, 7)
        pooled = torch.zeros(n, 21).index_add_(0, batch, (alpha[..., None] * v).flatten(1))
        count = torch.zeros(n).scatter_add_(0, batch, torch.ones(x.shape[0])).clamp(min=1)[:, None]
        mean = torch.zeros(n, 33).index_add_(0, batch, x) / count
        square = torch.zeros(n, 33).index_add_(0, batch, x * x) / count
        return torch.cat([pooled, mean, (square - mean * mean).clamp(min=0).sqrt()], dim=1), alpha

    batch = torch.cat([torch.arange(17), torch.randint(0, 17, (724,))]).sort().values
    return f, (torch.randn(741, 33), batch)


@training
def rgcn_basis_step():
    """Two relational graph convolutions with shared bases, loss on labelled nodes, backward and SGD."""
    rel, bases, dims = 4, 3, (24, 32, 6)
    params = []
    for a, b in itertools.pairwise(dims):
        for shape in ((bases, a, b), (rel, bases), (a, b), (b,)):
            params.append((torch.randn(shape) / 5).requires_grad_())

    def layer(x, src, dst, kind, basis, coefficient, self_weight, bias):
        w = torch.einsum("rb,bio->rio", coefficient, basis)
        key = dst * rel + kind
        degree = torch.zeros(x.shape[0] * rel).index_add_(0, key, torch.ones(key.shape[0]))
        h = torch.zeros(x.shape[0] * rel, x.shape[1]).index_add(0, key, x[src])
        h = (h / degree.clamp(min=1)[:, None]).view(x.shape[0], rel, -1)
        return torch.einsum("nri,rio->no", h, w) + x @ self_weight + bias

    def loss(x, src, dst, kind, y, known):
        h = F.elu(layer(x, src, dst, kind, *params[:4]))
        logits = layer(h, src, dst, kind, *params[4:])
        per_node = F.cross_entropy(logits, y, reduction="none")
        return (per_node * known).sum() / known.sum()

    def step(*args):
        value = loss(*args)
        value.backward()
        with torch.no_grad():
            new = [p - 0.1 * p.grad for p in params]
        for p in params:
            p.grad = None
        return (value.detach(), *new)

    edges = (*torch.randint(0, 151, (2, 907)), torch.randint(0, 4, (907,)))
    return (
        step,
        (torch.randn(151, 24), *edges, torch.randint(0, 6, (151,)), (torch.rand(151) < 0.4).float()),
        loss,
    )


# ------------------------------------------------------------------------------- 57, 58: generative models


class _TinyDenoiser(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.inp = nn.Conv2d(3, width, 3, padding=1, padding_mode="circular")
        self.mid = nn.Conv2d(width, width, 3, padding=1, padding_mode="circular")
        self.emb = nn.Linear(16, 2 * width)
        self.norm = nn.GroupNorm(4, width, affine=False)
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, noise):
        angle = noise[:, None] * torch.exp(torch.linspace(0, 3, 8))
        scale, shift = self.emb(torch.cat([angle.cos(), angle.sin()], 1))[:, :, None, None].chunk(2, dim=1)
        h = self.inp(x)
        h = h + self.mid(F.silu(self.norm(h) * (1 + scale) + shift))
        return self.out(F.silu(h))


@program
def edm_heun_sampler():
    """Karras et al.'s preconditioned denoiser and three steps of Heun's sampler, clipped at the end."""
    net = _TinyDenoiser().requires_grad_(False)
    sigma_data = 0.5

    def denoise(x, sigma):
        c_skip = sigma_data**2 / (sigma**2 + sigma_data**2)
        c_out = sigma * sigma_data / (sigma**2 + sigma_data**2).sqrt()
        c_in = 1 / (sigma**2 + sigma_data**2).sqrt()
        return c_skip * x + c_out * net(c_in * x, (sigma.log() / 4).expand(x.shape[0]))

    def f(noise):
        ramp = torch.linspace(0, 1, 3)
        sigmas = (5.0 ** (1 / 7) + ramp * (0.02 ** (1 / 7) - 5.0 ** (1 / 7))) ** 7
        sigmas = torch.cat([sigmas, torch.zeros(1)])
        x = noise * sigmas[0]
        for i in range(3):
            d = (x - denoise(x, sigmas[i])) / sigmas[i]
            nxt = x + (sigmas[i + 1] - sigmas[i]) * d
            if i < 2:
                d2 = (nxt - denoise(nxt, sigmas[i + 1])) / sigmas[i + 1]
                nxt = x + (sigmas[i + 1] - sigmas[i]) * 0.5 * (d + d2)
            x = nxt
        return x.clamp(-1, 1) * 0.5 + 0.5

    return f, (torch.randn(3, 3, 17, 19),)


@training
def beta_tcvae_step():
    """A VAE whose KL is split into mutual information, total correlation and the rest, autograd.grad."""
    encoder = nn.Sequential(nn.Linear(121, 64), nn.ELU(), nn.Linear(64, 2 * 7))
    decoder = nn.Sequential(nn.Linear(7, 64), nn.ELU(), nn.Linear(64, 121))
    params = [*encoder.parameters(), *decoder.parameters()]

    def log_normal(x, mu, logvar):
        return -0.5 * (math.log(2 * math.pi) + logvar + (x - mu) ** 2 * torch.exp(-logvar))

    def loss(x, eps):
        mu, logvar = encoder(x).chunk(2, dim=-1)
        z = mu + eps * torch.exp(0.5 * logvar)
        recon = F.binary_cross_entropy_with_logits(decoder(z), x, reduction="none").sum(1)
        pairwise = log_normal(z[:, None], mu[None], logvar[None])
        log_n = math.log(x.shape[0] * 1000)
        log_qz = torch.logsumexp(pairwise.sum(2), dim=1) - log_n
        log_prod = (torch.logsumexp(pairwise, dim=1) - log_n).sum(1)
        log_q = log_normal(z, mu, logvar).sum(1)
        log_p = log_normal(z, torch.zeros_like(z), torch.zeros_like(z)).sum(1)
        return (recon + (log_q - log_qz) + 6 * (log_qz - log_prod) + (log_prod - log_p)).mean()

    def step(x, eps):
        value = loss(x, eps)
        return (value.detach(), *torch.autograd.grad(value, params))

    return step, (torch.rand(71, 121).round(), torch.randn(71, 7)), loss


# ----------------------------------------------------------------------------------- 59, 60: complex numbers


@program
def s4d_long_convolution():
    """S4D: the kernel of a diagonal complex system, a long convolution by FFT, skip, gate and mixing."""
    length, h, n = 301, 24, 16
    mix = nn.Conv1d(h, 2 * h, 1).requires_grad_(False)

    def f(u, log_dt, c, log_a_real, a_imag, skip):
        dt = torch.exp(log_dt)
        a = torch.complex(-torch.exp(log_a_real), a_imag)
        dta = a * dt[:, None]
        powers = torch.exp(dta[..., None] * torch.arange(length))
        c = torch.view_as_complex(c) * (torch.exp(dta) - 1.0) / a
        kernel = 2 * torch.einsum("hn,hnl->hl", c, powers).real
        size = 2 * length
        y = torch.fft.irfft(torch.fft.rfft(u, n=size) * torch.fft.rfft(kernel, n=size), n=size)[..., :length]
        return F.glu(mix(F.gelu(y + u * skip[:, None])), dim=1)

    log_dt = torch.rand(h) * math.log(100) + math.log(0.001)
    imag = math.pi * torch.arange(n).expand(h, n).contiguous()
    args = (log_dt, torch.randn(h, n, 2), torch.full((h, n), math.log(0.5)), imag, torch.randn(h))
    return f, (torch.randn(3, h, length), *args)


@program
def qubit_layers_statevector():
    """Two layers of a circuit on nine qubits, a batch of three: RY, RZ, controlled signs and flips, <Z>."""
    q = 9
    basis = torch.arange(2**q)
    bit = [(basis >> (q - 1 - i)) & 1 for i in range(q)]
    signs = torch.ones(2**q)
    for i in range(q):
        signs = signs * (1 - 2 * (bit[i] * bit[(i + 1) % q]))
    flip = torch.where(bit[0] == 1, basis ^ 1, basis)

    def f(ry, rz):
        b = ry.shape[0]
        state = torch.zeros(b, 2**q, dtype=torch.complex64)
        state[:, 0] = 1
        for layer in range(2):
            for i in range(q):
                half_angle = ry[:, layer, i] / 2
                c, s = torch.cos(half_angle), torch.sin(half_angle)
                rot = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2).to(torch.complex64)
                phase = torch.polar(torch.ones(b), rz[:, layer, i] / 2)
                gate = rot * torch.stack([phase.conj(), phase], -1)[:, :, None]
                view = state.view(b, 2**i, 2, -1)
                state = torch.einsum("bxy,bpyr->bpxr", gate, view).reshape(b, -1)
            state = (state * signs)[:, flip]
        probs = state.real**2 + state.imag**2
        z = torch.stack([(probs * (1 - 2 * x)).sum(1) for x in bit], dim=1)
        return z, probs, -(probs * torch.log2(probs + 1e-12)).sum(1)

    return f, (3 * torch.randn(3, 2, q), 3 * torch.randn(3, 2, q))


# ------------------------------------------------------------------------------- 61, 62: image restoration


@program
def patch_dct_fold_denoise():
    """Overlapping 8x8 patches, DCT by a matrix, shrinkage, folded back with the weights of sparsity."""
    k, i = torch.arange(8.0)[:, None], torch.arange(8.0)[None]
    dct = torch.cos(math.pi * (2 * i + 1) * k / 16) * math.sqrt(2 / 8)
    dct[0] /= math.sqrt(2)
    basis = torch.kron(dct, dct)

    def f(img, sigma):
        h, w = img.shape[-2:]
        x = F.pad(img, (4, 4 + (-w) % 4, 4, 4 + (-h) % 4), mode="reflect")
        patches = F.unfold(x, 8, stride=4)
        coefficients = basis @ patches
        gain = torch.relu(1 - (1.8 * sigma) ** 2 / (coefficients.square() + 1e-8))
        gain[:, 0] = 1.0
        restored = basis.T @ (coefficients * gain)
        weight = 1.0 / (1.0 + gain.sum(1, keepdim=True)).expand_as(restored)
        size = x.shape[-2:]
        total = F.fold(restored * weight, size, 8, stride=4) / F.fold(weight, size, 8, stride=4)
        return total[..., 4 : 4 + h, 4 : 4 + w].clamp(0, 1)

    clean = F.interpolate(torch.rand(1, 1, 10, 13), (301, 403), mode="bicubic")
    return f, (clean + 0.08 * torch.randn(1, 1, 301, 403), 0.08)


class _SubPixel(nn.Module):
    def __init__(self, scale=3):
        super().__init__()
        self.scale = scale
        self.c1, self.c2 = nn.Conv2d(1, 24, 5, padding=2), nn.Conv2d(24, 16, 3, padding=1)
        self.c3 = nn.Conv2d(16, scale**2, 3, padding=1)

    def forward(self, image):
        x = image.permute(0, 3, 1, 2)
        y = (x * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
        detail = F.pixel_shuffle(self.c3(torch.tanh(self.c2(torch.tanh(self.c1(y))))), self.scale)
        up = F.interpolate(x, scale_factor=self.scale, mode="bicubic", align_corners=False)
        return (up + 0.1 * detail).clamp(0, 1).permute(0, 2, 3, 1)


@program
def espcn_channels_last():
    """Threefold sub-pixel super-resolution of luma on an image whose channels come last, bicubic skip."""
    return _SubPixel().requires_grad_(False).eval(), (torch.rand(1, 47, 61, 3),)


# ------------------------------------------------------------------------------------------ 63, 64: text


@training
def crf_nll_step():
    """A linear-chain CRF over padded sentences: gold score, forward recursion, gradients, clipped."""
    emit = nn.Linear(30, 11)
    transition = nn.Parameter(0.1 * torch.randn(11, 11))
    start, end = nn.Parameter(torch.randn(11)), nn.Parameter(torch.randn(11))
    params = [*emit.parameters(), transition, start, end]

    def loss(x, tags, mask):
        e = emit(x)
        _b, t, _k = e.shape
        last = mask.sum(1) - 1
        picked = e.gather(2, tags[..., None])[..., 0] * mask
        moves = transition[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]
        gold = start[tags[:, 0]] + picked.sum(1) + moves.sum(1) + end[tags.gather(1, last[:, None])[:, 0]]
        alpha = start + e[:, 0]
        for i in range(1, t):
            nxt = torch.logsumexp(alpha[:, :, None] + transition, dim=1) + e[:, i]
            alpha = torch.where(mask[:, i, None], nxt, alpha)
        return (torch.logsumexp(alpha + end, dim=1) - gold).mean()

    def step(x, tags, mask):
        value = loss(x, tags, mask)
        grads = torch.autograd.grad(value, params)
        norm = torch.sqrt(sum(g.square().sum() for g in grads))
        scale = (5.0 / (norm + 1e-6)).clamp(max=1.0)
        return (value.detach(), *(g * scale for g in grads))

    lengths = torch.tensor([21, 4, 13, 1, 21, 17, 8, 11, 19])
    mask = torch.arange(21)[None] < lengths[:, None]
    return step, (torch.randn(9, 21, 30), torch.randint(0, 11, (9, 21)), mask), loss


@program
def utf8_decode_segments():
    """Bytes of UTF-8 to code points, counts by class and lengths of words, all by prefix sums."""
    text = "naïve café – größer 東京 Ωmega 🚀 tiny words; ".encode()
    data = torch.tensor(list(text * 40)[:1023], dtype=torch.uint8)

    def f(x):
        x = x.long()
        follows = (x & 0xC0) == 0x80
        lead = ~follows
        which = lead.long().cumsum(0) - 1
        extra = (x >= 0xC0).long() + (x >= 0xE0) + (x >= 0xF0)
        payload = torch.where(follows, x & 0x3F, torch.where(extra == 0, x, x & (0x3F >> extra)))
        n = x.shape[0]
        position = torch.arange(n)
        first = torch.zeros(n, dtype=torch.long).scatter_reduce(
            0, which, position, "amin", include_self=False
        )
        shift = 6 * (extra[first[which]] - (position - first[which]))
        points = torch.zeros(n, dtype=torch.long).scatter_add_(0, which, payload << shift.clamp(min=0))
        classes = torch.zeros(4, dtype=torch.long).scatter_add_(0, extra, lead.long())
        space = x == 32
        word = (space & ~torch.roll(space, 1)).long().cumsum(0)
        letters = torch.zeros(n, dtype=torch.long).index_add_(0, word, (lead & ~space).long())
        return points, classes, letters, letters.max()

    return f, (data,)
