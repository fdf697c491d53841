"""Convolutions channels-last on a GPU of this machine. Skipped where there is none."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import nbcompile
from tests.compiler.rewrite.layout_nets import NETS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")


def _results(run: Any, net: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Outputs, the gradients of their sum of squares, and buffers."""
    x = x.detach().clone().requires_grad_()
    made = run(x)
    outputs = list(made) if isinstance(made, tuple) else [made]
    inputs = [x, *net.parameters()]
    loss = torch.stack([item.float().square().sum() for item in outputs]).sum()
    return [*(item.detach() for item in outputs), *torch.autograd.grad(loss, inputs), *net.buffers()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NETS)
def test_as_near_to_float64_as_eager(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    make, shape = NETS[name]
    net = make().cuda().to(dtype)
    other, exact = copy.deepcopy(net), copy.deepcopy(net).double()
    x = torch.randn(8, *shape[1:], device="cuda").to(dtype)
    run = nbcompile.compile(other)
    got = _results(run, other, x)
    assert run.ran_compiled, run.eager_reason
    assert any("channels-last" in note for note in run.compilation.notes)
    wanted = _results(net, net, x)
    for ours, eager, true in zip(got, wanted, _results(exact, exact, x.double()), strict=True):
        assert ours.shape == eager.shape and ours.dtype == eager.dtype
        assert ours.stride() == eager.stride()
        if ours.is_floating_point():
            error, its = ((item.double() - true).norm() / (true.norm() + 1e-3) for item in (ours, eager))
            assert error <= 2 * its + 1e-2


def test_cudnn_is_given_what_it_wants() -> None:
    """No kernel of cuDNN that converts a layout runs in a compiled net."""
    torch.manual_seed(0)
    make, _ = NETS["residual"]
    net = make().cuda().bfloat16().eval()
    run = nbcompile.compile(net)
    x = torch.randn(8, 3, 64, 64, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        run(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            run(x)
            torch.cuda.synchronize()
    names = [item.key for item in profile.key_averages()]
    assert names and not [name for name in names if "nchwToNhwc" in name or "nhwcToNchw" in name], names
