"""Small modules forward and backward through ``nbcompile.compile`` and Triton's interpreter, with the
schedules' own thresholds and with low ones, against eager and float64."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nbcompile
from tests.compiler.codegen.triton_running import small_chip
from tests.nightly import few

INTERPRET = {"cache": False, "verify": True, "interpret": True, "random": "eager"}
LOW = {
    "multiprocessors": 2, "SMALL_DATA": 1, "LONGEST_ROW": 16, "PART": 64, "LONGEST_SUM": 64,
    "LONGEST_COLUMN": 8, "WALK_BLOCK": 32, "serial_points": 512, "longest_column": 8, "TOTAL_BLOCK": 16,
}  # fmt: skip


class RmsNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float() if x.dtype != torch.float64 else x
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


class Attention(nn.Module):
    """Masked, with dropout, one head."""

    def __init__(self, size: int, p: float) -> None:
        super().__init__()
        self.project = nn.Linear(size, 3 * size)
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
        weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), -1)
        return F.dropout(weights, self.p) @ v


class Tagger(nn.Module):
    """Embedding, linear, cross entropy with targets to ignore."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 24, padding_idx=3)
        self.out = nn.Linear(24, 37)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        labels = torch.where(tokens % 5 == 0, -100, tokens % 37)
        return F.cross_entropy(
            self.out(self.table(tokens)).flatten(0, 1), labels.flatten(), label_smoothing=0.1
        )


Made = tuple[nn.Module, torch.Tensor]


def channels_last(module: nn.Module, x: torch.Tensor) -> Made:
    return module, x.to(memory_format=torch.channels_last)


MODULES: dict[str, Callable[[], Made]] = {
    "layer_norm": lambda: (nn.LayerNorm(70), torch.randn(9, 5, 70)),
    "layer_norm_gelu": lambda: (nn.Sequential(nn.LayerNorm([3, 24]), nn.GELU()), torch.randn(20, 3, 24)),
    "rms_norm": lambda: (RmsNorm(96), torch.randn(13, 96)),
    "group_norm": lambda: (nn.Sequential(nn.GroupNorm(3, 12), nn.SiLU()), torch.randn(4, 12, 7, 6)),
    "batch_norm": lambda: (nn.Sequential(nn.BatchNorm2d(5), nn.ReLU()), torch.randn(6, 5, 9, 8) * 2 + 3),
    "batch_norm_channels_last": lambda: channels_last(nn.BatchNorm2d(70), torch.randn(3, 70, 5, 6) + 1),
    "attention": lambda: (Attention(16, 0.0), torch.randn(3, 20, 16)),
    "attention_dropout": lambda: (Attention(16, 0.2), torch.randn(3, 20, 16)),
    "conv_bn_relu": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        torch.randn(4, 3, 10, 12),
    ),
    "residual": lambda: (nn.TransformerEncoderLayer(16, 2, 40, 0.0, batch_first=True), torch.randn(2, 9, 16)),
    "tagger": lambda: (Tagger(), torch.randint(50, (4, 11))),
}


def step(
    module: nn.Module, call: Callable[..., Any], x: torch.Tensor, weight: torch.Tensor
) -> list[torch.Tensor]:
    """The result, the gradients of input and parameters, and the buffers that the module leaves."""
    given = x.detach().clone().requires_grad_() if x.is_floating_point() else x
    torch.manual_seed(3)
    result = call(given)
    (result * weight.to(result.dtype)).sum().backward()
    gradients = [item.grad for item in (given, *module.parameters()) if item.requires_grad]
    return [result.detach(), *gradients, *module.buffers()]


@few(1)
@pytest.mark.parametrize("thresholds", ["own", "low"])
@pytest.mark.parametrize("name", MODULES)
def test_training_step(name: str, thresholds: str) -> None:
    torch.manual_seed(0)
    module, x = MODULES[name]()
    weight = torch.randn_like(module(x).detach())
    plain, wide = copy.deepcopy(module), copy.deepcopy(module).double()
    compiled = nbcompile.compile(module, options=INTERPRET)
    with small_chip(**LOW) if thresholds == "low" else contextlib.nullcontext():
        got = step(module, compiled, x, weight)
    assert compiled.ran_compiled, compiled.eager_reason
    assert compiled.compilation.kernels
    eager = step(plain, plain, x, weight)
    exact = step(wide, wide, x.double() if x.is_floating_point() else x, weight)
    for n, (mine, theirs, true) in enumerate(zip(got, eager, exact, strict=True)):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        if not mine.is_floating_point():
            assert torch.equal(mine, theirs)
            continue
        scale = float(true.abs().max())
        allowed = 2 * float((theirs.double() - true).abs().max()) + 2e-6 * (scale + 0.1)
        if "dropout" in name:  # in float64 other numbers are drawn
            true, allowed = theirs.double(), 1e-5 * (scale + 0.1)
        assert float((mine.double() - true).abs().max()) <= allowed, n
