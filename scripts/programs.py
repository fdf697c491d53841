"""The program zoo: what the tests compile, and what the benchmark times. Needs torch only.

``PROGRAMS`` are the programs every compiler here must get right, forward and backward;
``BENCHMARKS`` the ones ``scripts/bench.py`` times. ``build(name)`` makes a fresh callable and its
arguments, with the same values every time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Built = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Program:
    """One program. ``make(quick)`` gives a callable and its arguments; ``quick`` asks for small ones.

    ``train``: its gradients are wanted. ``breaks``: graph breaks it has of its own making.
    ``batches``: batch sizes to call it with one after the other (the first argument's rows).
    ``random``: it draws random numbers. ``mutates``: it changes its arguments.
    """

    name: str
    make: Callable[[bool], Built]
    train: bool = True
    breaks: int = 0
    batches: tuple[int, ...] = ()
    random: bool = False
    mutates: bool = False

    def build(self, quick: bool = False) -> Built:
        torch.manual_seed(0)
        return self.make(quick)


# -- modules -----------------------------------------------------------------------------------


class SimpleMLP(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


class TransformerLayer(nn.Module):
    """Attention and feed-forward, each with a residual, then a norm. Input [batch, length, d]."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d, heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.feed_forward = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x: Tensor) -> Tensor:
        attended, _ = self.attention(x, x, x)
        x = self.norm1(x + attended)
        return self.norm2(x + self.feed_forward(x))


class NormLinearGelu(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.gelu(self.linear(self.norm(x)))


class Prints(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        print("shape", tuple(x.shape))
        return torch.relu(x)


class ItemInIf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        if x.sum().item() > 0:
            return x * 2
        return x - 1


class LoopOverRows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        rows = []
        for i in range(x.shape[0]):
            rows.append(torch.tanh(self.linear(x[i])))
        return torch.stack(rows)


class StaticBranch(nn.Module):
    def __init__(self, double: bool) -> None:
        super().__init__()
        self.double = double

    def forward(self, x: Tensor) -> Tensor:
        if self.double:
            return x * 2 + 1
        return torch.sigmoid(x)


class DynamicModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(512, 256)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))


# -- functions ---------------------------------------------------------------------------------


def pointwise_chain(x: Tensor) -> Tensor:
    x = x * 2
    x = x + 1
    x = torch.sigmoid(x)
    x = x * x
    x = torch.tanh(x)
    return x / (x.abs() + 1)


def relu_mm(x: Tensor, w: Tensor) -> Tensor:
    return torch.relu(x @ w)


def mask_multiply(x: Tensor) -> Tensor:
    return x * (x > 0)


def softmax_rows(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=1)


def softmax_columns(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=0)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def rope(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary embedding of x [batch, heads, length, d] by angles [length, d]."""
    low, high = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-high, low), dim=-1) * sine


def row_and_column_sums(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(dim=0), x.sum(dim=1)


def dropout_residual_norm(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(residual + F.dropout(x, 0.1, training=True), x.shape[-1:], weight, bias)


def adamw_step(parameter: Tensor, gradient: Tensor, average: Tensor, square: Tensor) -> Tensor:
    """One AdamW step in place, at step 10 (lr 1e-3, betas 0.9 and 0.999, decay 0.01)."""
    parameter.mul_(1 - 1e-3 * 0.01)
    average.lerp_(gradient, 1 - 0.9)
    square.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
    denominator = (square.sqrt() / (1 - 0.999**10) ** 0.5).add_(1e-8)
    parameter.addcdiv_(average, denominator, value=-1e-3 / (1 - 0.9**10))
    return parameter


# -- the lists ---------------------------------------------------------------------------------


def _module(make: Callable[[], nn.Module], *shape: int) -> Callable[[bool], Built]:
    return lambda quick: (make(), (torch.randn(*shape),))


def _function(
    fn: Callable[..., Any], *shapes: tuple[int, ...], grad: bool = False
) -> Callable[[bool], Built]:
    """``quick`` divides a first extent of 256 or more by 16."""

    def make(quick: bool) -> Built:
        sized = [(s[0] // 16, *s[1:]) if quick and s[0] >= 256 and len(s) > 1 else s for s in shapes]
        return fn, tuple(torch.randn(*shape, requires_grad=grad) for shape in sized)

    return make


def _cross_entropy(quick: bool) -> Built:
    rows, classes = (64, 2000) if quick else (1024, 32000)
    return F.cross_entropy, (torch.randn(rows, classes), torch.randint(classes, (rows,)))


def _rope(quick: bool) -> Built:
    length = 128 if quick else 2048
    angles = torch.outer(torch.arange(length), 10000 ** (-torch.arange(64) / 64)).repeat(1, 2)
    return rope, (torch.randn(2, 16, length, 128), angles.cos(), angles.sin())


def _adamw(quick: bool) -> Built:
    count = 1 << (20 if quick else 24)
    drawn = [torch.randn(count) for _ in range(3)]
    return adamw_step, (*drawn, torch.rand(count) + 0.1)


PROGRAMS: tuple[Program, ...] = (
    Program("SimpleMLP(512)", _module(lambda: SimpleMLP(512), 64, 512)),
    Program("TransformerLayer(512, 8)", _module(lambda: TransformerLayer(512, 8), 16, 64, 512)),
    Program("TransformerLayer(1024, 16)", _module(lambda: TransformerLayer(1024, 16), 16, 64, 1024)),
    Program("pointwise chain", _function(pointwise_chain, (256, 512), grad=True)),
    Program("layer_norm, linear, gelu, residual", _module(lambda: NormLinearGelu(512), 64, 512)),
    Program("Linear(4096)", _module(lambda: nn.Linear(4096, 4096), 32, 4096)),
    Program("relu(mm)", _function(relu_mm, (128, 256), (256, 512), grad=True)),
    Program("break: print", _module(Prints, 16, 64), breaks=1),
    Program("break: item in if", _module(ItemInIf, 16, 64), breaks=1),
    Program("loop over rows", _module(LoopOverRows, 8, 64)),
    Program("static branch, true", _function(StaticBranch(True), (64, 128), grad=True)),
    Program("static branch, false", _function(StaticBranch(False), (64, 128), grad=True)),
    Program("mask multiply", _function(mask_multiply, (64, 128), grad=True)),
    Program("DynamicModel", _module(DynamicModel, 32, 512), batches=(32, 64, 128)),
)

_SIDE = 4096
_SQUARE = (_SIDE, _SIDE)
BENCHMARKS: tuple[Program, ...] = (
    Program("pointwise chain", _function(pointwise_chain, _SQUARE), train=False),
    Program("softmax, rows", _function(softmax_rows, _SQUARE), train=False),
    Program("softmax, columns", _function(softmax_columns, _SQUARE), train=False),
    Program("layer_norm", _function(layer_norm, _SQUARE, (_SIDE,), (_SIDE,)), train=False),
    Program("rms_norm", _function(rms_norm, _SQUARE, (_SIDE,)), train=False),
    Program("gelu", _function(F.gelu, _SQUARE), train=False),
    Program("swiglu", _function(swiglu, _SQUARE, _SQUARE), train=False),
    Program("rope", _rope, train=False),
    Program("cross_entropy", _cross_entropy, train=False),
    Program("row and column sums", _function(row_and_column_sums, _SQUARE), train=False),
    Program(
        "dropout, residual, layer_norm",
        _function(dropout_residual_norm, _SQUARE, _SQUARE, (_SIDE,), (_SIDE,)),
        train=False,
        random=True,
    ),
    Program("adamw step", _adamw, train=False, mutates=True),
    Program("TransformerLayer forward", _module(lambda: TransformerLayer(512, 8), 16, 64, 512), train=False),
    Program("TransformerLayer forward+backward", _module(lambda: TransformerLayer(512, 8), 16, 64, 512)),
)


def find(name: str, programs: tuple[Program, ...] = BENCHMARKS) -> Program:
    """The program of that name; KeyError if there is none."""
    for program in programs:
        if program.name == name:
            return program
    raise KeyError(name)


def varied(fn: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """``fn`` with its results multiplied by a constant: the same work, but new kernels."""

    def scaled(*args: Any) -> Any:
        result = fn(*args)
        return tuple(r * factor for r in result) if isinstance(result, tuple) else result * factor

    return scaled


def build(name: str, quick: bool = False) -> Built:
    """A benchmark program's callable and arguments: what ``nbcompile.bench.measure.cold`` calls by name."""
    return find(name).build(quick)
