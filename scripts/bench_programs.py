"""The twelve programs of the backends' table: what people compile, at sizes of 1 to 20 ms on two cores.

Inference, float32, without gradients. ``build(name, quick)`` makes a fresh callable and its arguments, with
the same values every time; ``quick`` asks for sizes at which compiling is all the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from programs import (
    Built,
    Program,
    TransformerLayer,
    find,
    pointwise_chain,
    rms_norm,
    rope,
    row_and_column_sums,
    softmax_rows,
    swiglu,
)


class GeluMLP(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class ConvBlock(nn.Module):
    """Convolution, batch_norm, relu and a pooling."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x))))))


class SmallResNet(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Residual(channels), Residual(channels))
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(torch.relu(self.stem(x))).mean((2, 3)))


class LSTMLoop(nn.Module):
    """An LSTM cell written out and unrolled over x [batch, length, d]."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.input, self.state = nn.Linear(d, 4 * d), nn.Linear(d, 4 * d)

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros_like(x[:, 0])
        for step in range(x.shape[1]):
            i, f, g, o = (self.input(x[:, step]) + self.state(h)).chunk(4, dim=-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


class WordModel(nn.Module):
    """Embedding, a linear layer back to the words, and the loss of the next ones."""

    def __init__(self, words: int, d: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(words, d), nn.Linear(d, words)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.head(torch.tanh(self.embedding(tokens))), targets)


class LlamaBlock(nn.Module):
    """rms_norm, rotary attention and swiglu on x [batch, length, d]."""

    def __init__(self, d: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, 3 * d, bias=False)
        self.down = nn.Linear(3 * d, d, bias=False)
        half = d // heads // 2
        angles = torch.outer(torch.arange(length), 10000 ** (-torch.arange(half) / half)).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, x: Tensor) -> Tensor:
        batch, length, d = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, d // self.heads).transpose(1, 2)
            for part in self.qkv(rms_norm(x, self.norm1)).chunk(3, dim=-1)
        )
        q, k = rope(q, self.cosine, self.sine), rope(k, self.cosine, self.sine)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, d))
        normed = rms_norm(x, self.norm2)
        return x + self.down(swiglu(self.gate(normed), self.up(normed)))


def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v


def integers_and_masks(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Comparisons, a running count, a gather and an argmax."""
    positive = (x > 0) & (index % 3 != 0)
    counts = positive.to(torch.int64).cumsum(1)
    return torch.where(positive, x, -x).gather(1, index), counts, x.argmax(1)


def _word_model(quick: bool) -> Built:
    words, d, rows = (50, 16, 8) if quick else (4000, 128, 256)
    return WordModel(words, d).eval(), (torch.randint(words, (rows,)), torch.randint(words, (rows,)))


def _attention(quick: bool) -> Built:
    shape = (1, 2, 8, 4) if quick else (2, 8, 256, 64)
    mask = torch.ones(shape[2], shape[2], dtype=torch.bool).tril()
    return masked_attention, (*(torch.randn(shape) for _ in range(3)), mask)


def _integers(quick: bool) -> Built:
    shape = (8, 16) if quick else (1024, 512)
    return integers_and_masks, (torch.randn(shape), torch.randint(shape[1], shape))


def _square(fn: Callable[..., object], side: int) -> Callable[[bool], Built]:
    return lambda quick: (fn, (torch.randn(16 if quick else side, 24 if quick else side),))


def _of(
    make: Callable[[bool], nn.Module], shape: tuple[int, ...], quick: tuple[int, ...]
) -> Callable[[bool], Built]:
    return lambda small: (make(small).eval(), (torch.randn(quick if small else shape),))


TWELVE: tuple[Program, ...] = tuple(
    Program(name, make, train=False)
    for name, make in {
        "pointwise chain": _square(pointwise_chain, 1536),
        "softmax": _square(softmax_rows, 2048),
        "row and column sums": _square(row_and_column_sums, 2048),
        "integers and masks": _integers,
        "gelu MLP": _of(lambda q: GeluMLP(8 if q else 256), (128, 256), (4, 8)),
        "masked attention": _attention,
        "transformer layer": _of(
            lambda q: TransformerLayer(*((8, 2) if q else (256, 4))), (2, 64, 256), (2, 4, 8)
        ),
        "Llama block": _of(
            lambda q: LlamaBlock(*((8, 2, 4) if q else (256, 4, 64))), (2, 64, 256), (2, 4, 8)
        ),
        "conv block": _of(lambda q: ConvBlock(3, 4 if q else 32), (2, 3, 96, 96), (1, 3, 8, 8)),
        "small ResNet": _of(lambda q: SmallResNet(4 if q else 32), (1, 3, 64, 64), (1, 3, 8, 8)),
        "LSTM loop": _of(lambda q: LSTMLoop(8 if q else 128), (16, 16, 128), (2, 3, 8)),
        "embedding and cross_entropy": _word_model,
    }.items()
)


def build(name: str, quick: bool = False) -> Built:
    """A program's callable and arguments, by name; KeyError if there is none."""
    return find(name, TWELVE).build(quick)
