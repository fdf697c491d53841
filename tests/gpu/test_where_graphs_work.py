"""Graphs without a tensor input work on the GPU that makes their tensors. Skipped where there is none."""

from __future__ import annotations

import math
from typing import Any

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
    """That of eager: torch 2.11 captures a graph without the mode around the call, and ``aot_eager`` gives a
    tensor of the CPU."""
    torch._dynamo.reset()
    with torch.device("cuda"):
        got = torch.compile(waves, backend=nbcompile_backend)()
        assert got.device.type == "cuda"
        torch.testing.assert_close(got, waves("cuda"))


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


def _to_cpu(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.sin() * 2
    return y.cpu() + torch.arange(33), y.exp()


def _made_on_the_cpu(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    noise = torch.rand(33, device="cpu")
    return x.cos() + noise.to(x.device), noise, torch.arange(3)


def _product_on_the_cpu(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.cpu()
    return (y.t() @ y).to(x.device).tanh() + 1, x * 3


MIXED = (_to_cpu, _made_on_the_cpu, _product_on_the_cpu)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("function", MIXED)
def test_what_is_on_the_cpu_is_done_there_and_the_rest_is_compiled(function: Any, mode: str) -> None:
    run = nbcompile.compile(function, mode=mode, options={"cache": False, "verify": True})
    for seed in range(4):
        x = torch.randn(64, 33, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
        x.requires_grad_()
        found = []
        for each in (run, function):
            torch.manual_seed(seed)
            results = each(x)
            loss = sum(item.float().square().sum().cpu() for item in results)
            found.append((*results, *torch.autograd.grad(loss, x)))
        torch.testing.assert_close(*found)
        assert [item.device for item in found[0]] == [item.device for item in found[1]]
    assert run.ran_compiled and not run.eager_reason, run.eager_reason
    assert not run.recorder.ran_eagerly


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_graph_of_two_gpus() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        there = y.exp() * 2
        return x.sin() + there.to(x.device).cos(), there, (x * 2).to(y.device) + y

    run = nbcompile.compile(function, options={"cache": False, "verify": True})
    for _ in range(3):
        x = torch.randn(64, 33, device="cuda:0", requires_grad=True)
        y = torch.randn(64, 33, device="cuda:1", requires_grad=True)
        got, wanted = run(x, y), function(x, y)
        torch.testing.assert_close(got, wanted)
        assert [item.device for item in got] == [item.device for item in wanted]
        grads = [
            torch.autograd.grad(sum(item.cpu().sum() for item in each), (x, y)) for each in (got, wanted)
        ]
        torch.testing.assert_close(*grads)
    assert run.ran_compiled and not run.recorder.ran_eagerly, run.recorder.ran_eagerly


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_one_function_on_either_gpu() -> None:
    run = nbcompile.compile(lambda x: (x.sin() * 2).sum(1), options={"cache": False})
    for device in ("cuda:1", "cuda:0", "cuda:1"):
        x = torch.randn(64, 33, device=device)
        got = run(x)
        assert got.device == x.device
        torch.testing.assert_close(got, (x.sin() * 2).sum(1))
    assert run.ran_compiled and not run.recorder.ran_eagerly


def test_a_number_that_is_read_on_both_devices() -> None:
    def function(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x / (n.abs() + 1), torch.nn.functional.one_hot(n, 6)

    x, n = torch.arange(65, device="cuda"), torch.tensor(3)
    run = nbcompile.compile(function, options={"cache": False})
    found, expected = run(x, n), function(x, n)
    torch.testing.assert_close(found, expected)
    assert [each.device for each in found] == [each.device for each in expected]
    assert run.ran_compiled
