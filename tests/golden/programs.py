"""The programs whose kernels are kept as golden files: each is a function of tensors and its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional as F

from nbcompile.options import Options
from tests.compiler.codegen.running import NO_CACHE

NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class Program:
    """``function`` of the tensors that ``inputs`` draws. ``eager`` is false where the program draws
    other numbers than eager; ``dynamic`` compiles with symbolic sizes."""

    name: str
    function: Callable[..., Any]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    options: Options = NO_CACHE
    eager: bool = True
    dynamic: bool = False


PROGRAMS: list[Program] = []


def program(inputs: Callable[[], tuple[torch.Tensor, ...]], **how: Any) -> Callable[[Any], Any]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append(Program(function.__name__, function, inputs, **how))
        return function

    return register


def edgy(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal numbers, then NaN, infinities, zeros of both signs and large and small ones in the first row."""
    x = torch.randn(shape)
    edges = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 88.0, -88.0, 1e-30])
    x.view(-1)[: edges.numel()] = edges[: x.numel()]
    return x.to(dtype)


@program(lambda: (edgy(512, 768),))
def pointwise_chain(x):
    x = torch.sigmoid(x * 2 + 1)
    x = torch.tanh(x * x)
    return x / (x.abs() + 1)


@program(lambda: (edgy(512, 768), torch.randn(768), torch.randn(512, 1)))
def broadcast(x, bias, scale):
    return (x + bias) * scale


@program(lambda: (edgy(512, 768), torch.randn(768, 512)))
def transposed_read(x, y):
    return x.t() * y


@program(lambda: (edgy(4, 96, 100), torch.randn(4, 32, 100)))
def cat_pad(x, y):
    return torch.relu(F.pad(torch.cat([x, y], 1), (2, 3)))


@program(lambda: (edgy(512, 768),))
def softmax_rows(x):
    return torch.softmax(x, -1)


@program(lambda: (edgy(512, 768),))
def softmax_columns(x):
    return torch.softmax(x, 0)


@program(lambda: (edgy(100, 768),))
def softmax_short_columns(x):
    return torch.softmax(x, 0)


@program(lambda: (edgy(512, 768), torch.randn(768), torch.randn(768)))
def layer_norm_gelu(x, weight, bias):
    return x + F.gelu(F.layer_norm(x, (768,), weight, bias))


@program(lambda: (edgy(512, 768), torch.randn(512, 768), torch.randn(512, 768), torch.randn(768)))
def relu_layer_norm_gradient(normed, grad, x, weight):
    """As backward has it: what is chosen from is read whether it is chosen or not."""
    grad = torch.where(normed <= 0, 0.0, grad)
    scaled = grad * weight
    along = (scaled * x).mean(-1, keepdim=True)
    return scaled - x * along - scaled.mean(-1, keepdim=True), (grad * x).sum(0)


@program(lambda: (edgy(512, 768, dtype=torch.bfloat16), torch.randn(768, dtype=torch.bfloat16)))
def rms_norm_bf16(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


@program(lambda: (torch.randn(1024, 768),))
def full_sum(x):
    return x.exp().sum()


@program(lambda: (edgy(1024, 768),))
def row_and_column_sums(x):
    return x.amax(1), x.sum(0)


@program(lambda: (edgy(512, 768),))
def arg_max(x):
    return x.argmax(-1)


@program(lambda: (torch.randn(256, 1000), torch.randint(1000, (256,))))
def cross_entropy(logits, labels):
    return F.cross_entropy(logits, labels)


@program(lambda: (torch.randn(1000, 64), torch.randint(1000, (32, 16))))
def embedding(table, tokens):
    return torch.embedding(table, tokens) * 8.0


@program(lambda: (torch.randn(32, 16, 64), torch.randint(100, (32, 16))))
def embedding_gradient(grad, tokens):
    return torch.ops.aten.embedding_dense_backward(grad, tokens, 100, -1, False)


@program(lambda: (torch.randn(100, 64), torch.randint(-100, 100, (40,)), torch.randn(40, 64)))
def index_put_accumulate(x, rows, values):
    return torch.index_put(x, (rows,), values, accumulate=True)


@program(lambda: (torch.randn(512, 768),), options=replace(NO_CACHE, random="philox"), eager=False)
def dropout_philox(x):
    return torch.native_dropout(x, 0.1, True)[0] * 2


@program(lambda: tuple(torch.randn(4096) for _ in range(3)) + (torch.rand(4096),))
def adamw_in_place(weight, grad, mean, square):
    new_mean = mean * 0.9 + grad * 0.1
    new_square = square * 0.999 + grad * grad * 0.001
    new_weight = weight * 0.9999 - 1e-3 * new_mean / (new_square.sqrt() + 1e-8)
    weight.copy_(new_weight)
    mean.copy_(new_mean)
    square.copy_(new_square)


@program(lambda: (torch.randn(40, 64), torch.randn(100, 64), torch.randint(-100, 100, (40,))))
def added_rows_in_place(x, table, rows):
    more = x + table[rows]
    later = more.sum(0)[rows % 64]
    x.copy_(more)
    return later


@program(lambda: (edgy(64, 2048, dtype=torch.bfloat16),))
def swiglu_bf16(x):
    gate, value = x.chunk(2, -1)
    return F.silu(gate) * value


@program(lambda: (torch.randint(-50, 50, (300, 70)), torch.randint(-50, 50, (300, 70), dtype=torch.int32)))
def integers_and_bools(a, b):
    chosen = (a > b) & (a % 3 == 0)
    return torch.where(chosen, a // 2, b), chosen.sum(1), ~chosen


@program(lambda: (torch.randn(1, 700).expand(500, 700), torch.randn(500, 1).expand(500, 700)))
def expanded_inputs(x, y):
    return x * y + 1


@program(lambda: (torch.tensor(2.5), torch.randn(0, 5)))
def scalar_and_empty(x, y):
    return x.exp(), y + x, y.sum(0)


@program(lambda: (torch.randn(33, 129),), dynamic=True)
def dynamic_softmax(x):
    return torch.softmax(x * x.shape[0], -1)
