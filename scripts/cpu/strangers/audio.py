"""Audio and speech: front ends, separation losses, vocoder pieces."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from strangers.corpus import program


def _dct_matrix(n_mfcc, n_mels):
    n = torch.arange(n_mels, dtype=torch.float32)
    k = torch.arange(n_mfcc, dtype=torch.float32)[:, None]
    dct = torch.cos(math.pi / n_mels * (n + 0.5) * k)
    dct[0] *= 1.0 / math.sqrt(2.0)
    return dct * math.sqrt(2.0 / n_mels)


@program
def mfcc_lifter_deltas():
    """MFCCs from mel energies: log, DCT by matmul, liftering, delta and delta-delta, CMVN."""

    def compute_deltas(feat, win=2):
        denom = 2 * sum(i * i for i in range(1, win + 1))
        padded = F.pad(feat, (win, win), mode="replicate")
        t = feat.shape[-1]
        out = torch.zeros_like(feat)
        for i in range(1, win + 1):
            out = out + i * (padded[..., win + i : win + i + t] - padded[..., win - i : win - i + t])
        return out / denom

    def f(mel, dct):
        log_mel = 10.0 * torch.log10(mel.clamp(min=1e-10))
        log_mel = torch.maximum(log_mel, log_mel.amax(dim=(1, 2), keepdim=True) - 80.0)
        mfcc = torch.matmul(dct, log_mel)
        n = torch.arange(dct.shape[0], dtype=mfcc.dtype)
        lifter = 1 + 11 * torch.sin(math.pi * n / 22)
        mfcc = mfcc * lifter[None, :, None]
        d1 = compute_deltas(mfcc)
        d2 = compute_deltas(d1)
        feats = torch.cat([mfcc, d1, d2], dim=1)
        mean = feats.mean(-1, keepdim=True)
        std = feats.std(-1, keepdim=True)
        return (feats - mean) / (std + 1e-5)

    return f, (torch.rand(8, 80, 400) ** 2 + 1e-3, _dct_matrix(40, 80))


class _GatedLayer(nn.Module):
    def __init__(self, ch, skip, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(ch, 2 * ch, 3, dilation=dilation)
        self.res = nn.Conv1d(ch, ch, 1)
        self.skip = nn.Conv1d(ch, skip, 1)

    def forward(self, x):
        h = self.conv(F.pad(x, (self.pad, 0)))
        a, b = h.chunk(2, dim=1)
        h = torch.tanh(a) * torch.sigmoid(b)
        return (x + self.res(h)) * math.sqrt(0.5), self.skip(h)


class _WaveNet(nn.Module):
    def __init__(self, ch=24, skip=32, layers=5):
        super().__init__()
        self.inp = nn.Conv1d(1, ch, 1)
        self.layers = nn.ModuleList([_GatedLayer(ch, skip, 2**i) for i in range(layers)])
        self.out = nn.Sequential(nn.ReLU(), nn.Conv1d(skip, skip, 1), nn.ReLU(), nn.Conv1d(skip, 64, 1))

    def forward(self, wav):
        x = self.inp(wav)
        total = 0
        for layer in self.layers:
            x, s = layer(x)
            total = total + s
        return self.out(total * math.sqrt(1.0 / len(self.layers)))


@program
def wavenet_gated_stack():
    """A WaveNet with five dilated gated layers and skips."""
    net = _WaveNet().requires_grad_(False).eval()

    def f(wav):
        return F.log_softmax(net(wav), dim=1)

    return f, (torch.randn(2, 1, 1009),)


@program
def mu_law_expand_mix():
    """8-bit mu-law codes of several takes expanded, panned and soft-limited."""

    def f(codes, gains, pan):
        mu = 255.0
        x = codes.to(torch.float32) / mu * 2 - 1.0
        x = torch.sign(x) * (torch.exp(torch.abs(x) * math.log1p(mu)) - 1.0) / mu
        x = x * gains[:, None]
        theta = (pan + 1) * math.pi / 4
        left = (x * torch.cos(theta)[:, None]).sum(0)
        right = (x * torch.sin(theta)[:, None]).sum(0)
        mix = torch.stack([left, right])
        return mix / (1 + mix.abs().pow(3)).pow(1 / 3)

    codes = torch.randint(0, 256, (3, 400), dtype=torch.uint8)
    return f, (codes, torch.rand(3) + 0.3, torch.linspace(-0.9, 0.9, 3))


@program
def griffin_lim_iterations():
    """Two momentum Griffin-Lim iterations, the inverse STFT by irfft and fold (complex64)."""

    def istft(spec, window, n_fft=256, hop=64):
        frames = torch.fft.irfft(spec, n_fft, dim=0) * window[:, None]
        size = (1, n_fft + hop * (spec.shape[1] - 1))
        wav = F.fold(frames[None], size, (1, n_fft), stride=(1, hop)).flatten()
        norm = F.fold((window**2)[None, :, None].expand_as(frames[None]), size, (1, n_fft), stride=(1, hop))
        return (wav / norm.flatten().clamp(min=1e-8))[n_fft // 2 : -(n_fft // 2)]

    def f(mag, angles, window):
        prev = torch.zeros_like(angles)
        for _ in range(2):
            wav = istft(mag * angles, window)
            rebuilt = torch.stft(wav, 256, 64, window=window, return_complex=True)
            angles = rebuilt - 0.99 / 1.99 * prev
            angles = angles / (angles.abs() + 1e-3)
            prev = rebuilt
        return istft(mag * angles, window)

    win = torch.hann_window(256)
    mag = torch.stft(torch.randn(4096), 256, 64, window=win, return_complex=True).abs()
    phase = torch.polar(torch.ones_like(mag), 2 * math.pi * torch.rand_like(mag))
    return f, (mag, phase, win)
