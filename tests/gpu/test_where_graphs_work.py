"""Graphs without a tensor input work on the GPU that makes their tensors. Skipped where there is none."""

from __future__ import annotations

import math

import pytest
import torch

import nbcompile
from nbcompile.backends.nbcompile import nbcompile_backend
from nbcompile.options import Options
from tests.compiler.rewrite.test_devices import GOING

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")


def waves(device: str | None = None) -> torch.Tensor:
    return torch.arange(1024, device=device).float().sin()


def test_a_named_device() -> None:
    torch._dynamo.reset()
    got = torch.compile(lambda: waves("cuda"), backend=nbcompile_backend)()
    assert got.device.type == "cuda"
    torch.testing.assert_close(got, waves("cuda"))


def test_the_default_device() -> None:
    """Where the graph works that torch captures: torch 2.11 captures it without the mode around the call."""
    torch._dynamo.reset()
    with torch.device("cuda"):
        place = torch.compile(waves, backend="aot_eager")().device
        torch._dynamo.reset()
        got = torch.compile(waves, backend=nbcompile_backend)()
        assert got.device == place
        torch.testing.assert_close(got, waves(place.type))


def test_kernels_are_made_for_the_gpu() -> None:
    run = nbcompile.compile(lambda: waves("cuda"), options={"cache": False, "verify": True})
    torch.testing.assert_close(run(), waves("cuda"))
    assert run.ran_compiled and run.compilation.environment.device.startswith("cuda")


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


@pytest.mark.parametrize("name", GOING)
def test_what_a_program_makes_on_the_cpu_is_made_there(name: str) -> None:
    function, *inputs = GOING[name][0], *GOING[name][1]
    made = [
        torch.arange(math.prod(shape))
        .reshape(shape)
        .to(device, dtype)
        .requires_grad_(dtype.is_floating_point and device != "cpu")
        for shape, dtype, device in inputs
    ]
    run = nbcompile.compile(function, options={"cache": False, "verify": True})
    got, wanted = run(*made), function(*made)
    torch.testing.assert_close(got, wanted)
    trained = [item for item in made if item.requires_grad]
    torch.testing.assert_close(
        torch.autograd.grad(got.sum(), trained), torch.autograd.grad(wanted.sum(), trained)
    )
    assert run.ran_compiled, run.eager_reason


def test_a_pinned_number_is_read_when_the_call_is_made() -> None:
    x, number = torch.ones(1 << 24, device="cuda"), torch.tensor(2.0).pin_memory()
    run = nbcompile.compile(lambda x, n: x.sin() * n, options={"cache": False})
    run(x, number)
    wanted = x.sin() * 2.0
    torch.cuda.synchronize()
    for _ in range(20):
        x.sin_().asin_()  # the GPU is busy
    x.fill_(1.0)
    got = run(x, number)
    number.fill_(3.0)
    torch.testing.assert_close(got, wanted)
