"""Gradients of losses at NaN, infinity and zeros of both signs: what ATen's kernels give."""

from __future__ import annotations

import itertools
from math import inf, nan

import pytest
import torch
import torch.nn.functional as F

from nbcompile.compiler.capture.decompositions import decompositions
from nbcompile.options import Options
from tests.compiler.capture.helpers import compiled

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SPECIALS = (nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.3)


def same(target, *args):
    """Our rewrite against the kernel, signs of zeros included."""
    expected, found = target(*args), decompositions(Options())[target](*args)
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert found.stride() == expected.stride()
    zeros = expected == 0
    assert torch.equal(found.signbit()[zeros], expected.signbit()[zeros])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_smooth_l1_loss(dtype, reduction, beta):
    grad, x, y = torch.tensor(list(itertools.product(SPECIALS, repeat=3)), dtype=dtype).t().contiguous()
    for each in (grad, *map(torch.tensor, (1.0, inf, nan))):
        each = each.to(dtype)
        same(aten.smooth_l1_loss_backward.default, each.expand(x.shape), x, y, reduction, beta)


@pytest.mark.parametrize("shape", [(4, 3), (3,), (4, 3, 2, 5)], ids=str)
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss(shape, reduction, weighted):
    target = aten.nll_loss_backward.default if len(shape) < 4 else aten.nll_loss2d_backward.default
    draw = torch.Generator().manual_seed(0)
    labels = [shape[0], *shape[2:]] if len(shape) > 1 else []
    for dtype, ignored, special in itertools.product(DTYPES[:3], (-100, 1), SPECIALS):
        x = torch.randn(shape, generator=draw).to(dtype)
        classes = torch.randint(3, labels, generator=draw)
        classes.view(-1)[-1] = ignored
        grad = torch.randn([] if reduction else labels, generator=draw).to(dtype)
        grad.view(-1)[::2] = special
        weight = torch.tensor([0.5, 0, 2], dtype=dtype) if weighted else None
        same(target, grad, x, classes, weight, reduction, ignored, torch.tensor(3.0, dtype=dtype))


def smooth_l1(x):
    return F.smooth_l1_loss(x, torch.ones_like(x), reduction="none")


def nll(x):
    return F.nll_loss(x.view(8, 8), torch.arange(8), reduction="none")


@pytest.mark.parametrize("loss", [smooth_l1, nll])
def test_compiled(loss):
    gradients = []
    for run in (loss, compiled(loss)):
        x = torch.tensor(SPECIALS * 8, requires_grad=True)
        result = run(x)
        result.backward(torch.tensor(SPECIALS).flip(0).repeat(result.numel() // 8))
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients, equal_nan=True)
