"""XLA beside torch on one GPU: each has streams of its own, and neither waits for the host."""

from __future__ import annotations

import copy
import os

import pytest
import torch
from torch import nn

import nbcompile

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")


@pytest.fixture(autouse=True, scope="module")
def jax_has_a_gpu() -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # as nbcompile does, before jax starts
    jax = pytest.importorskip("jax")
    try:
        jax.devices("cuda")
    except RuntimeError:
        pytest.skip("this jax has no GPU")


def step(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.softmax(x @ w, -1)
    return y, (y * x).sum(0)


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(4096, 1024, device="cuda"), torch.randn(1024, 1024, device="cuda") / 32


def test_inputs_written_right_after_the_call() -> None:
    x, w = operands()
    ours, eagers = x.clone(), x.clone()
    compiled = nbcompile.compile(step, backend="xla")
    for _ in range(100):
        y, z = compiled(ours, w)
        ours.mul_(0.5).add_(y)
        y.add_(1)
        want, total = step(eagers, w)
        eagers.mul_(0.5).add_(want)
    assert not compiled.eager_reason
    torch.testing.assert_close(ours, eagers, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(z, total, rtol=1e-4, atol=1e-5)


def test_on_a_stream_of_the_users_own() -> None:
    _, w = operands()
    compiled = nbcompile.compile(step, backend="xla")
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(50):
            x = torch.randn(4096, 1024, device="cuda")
            y, _ = compiled(x, w)
            want, _ = step(x, w)
            x.zero_()
            torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-6)


def test_training() -> None:
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
    eagers = copy.deepcopy(ours)
    compiled = nbcompile.compile(ours, backend="xla")
    data = torch.randn(512, 256, device="cuda")
    for model, call in ((ours, compiled), (eagers, eagers)):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(20):
            (call(data) - data).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    for got, want in zip(ours.parameters(), eagers.parameters()):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
