"""Graphs without a tensor input work on the GPU that makes their tensors. Skipped where there is none."""

from __future__ import annotations

import pytest
import torch

import nbcompile
from nbcompile.options import Options

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")


def waves(device: str | None = None) -> torch.Tensor:
    return torch.arange(1024, device=device).float().sin()


def test_a_named_device() -> None:
    torch._dynamo.reset()
    got = torch.compile(lambda: waves("cuda"), backend="nbcompile")()
    assert got.device.type == "cuda"
    torch.testing.assert_close(got, waves("cuda"))


def test_the_default_device() -> None:
    torch._dynamo.reset()
    with torch.device("cuda"):
        got = torch.compile(waves, backend="nbcompile")()
        assert got.device.type == "cuda"
        torch.testing.assert_close(got, waves())


def test_kernels_are_made_for_the_gpu() -> None:
    run = nbcompile.compile(lambda: waves("cuda"), options={"cache": False, "verify": True})
    torch.testing.assert_close(run(), waves("cuda"))
    assert run.ran_compiled and run.compilation.environment.target.startswith("cuda")


def test_code_for_the_cpu_leaves_tensors_of_a_gpu_alone() -> None:
    options = Options(cache=False, target="cpu").to_dict()
    run = nbcompile.compile(lambda x: x.sin() + 1, options=options)
    x = torch.randn(64, device="cuda")
    torch.testing.assert_close(run(x), x.sin() + 1)
    assert not run.ran_compiled


def test_indices_and_rolls_stay_inside() -> None:
    x = torch.randn(64, 33, device="cuda")
    run = nbcompile.compile(lambda x: x.gather(1, (x > 0).long()) - x.roll(-1, 0), dynamic=True)
    for rows in (64, 7, 130):
        x = torch.randn(rows, 33, device="cuda")
        torch.testing.assert_close(run(x), x.gather(1, (x > 0).long()) - x.roll(-1, 0))
