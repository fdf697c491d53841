"""Convolutions of few channels by small filters are loops on a CPU, and the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.compiler.small_filters import is_small
from tests.nightly import few

Tensor = torch.Tensor
F = torch.nn.functional
CASES: dict[str, tuple[Callable[..., Tensor], tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "laplacian": (F.conv2d, (2, 1, 12, 9), (1, 1, 3, 3), {"padding": 1}),
    "two edges": (F.conv2d, (1, 1, 12, 9), (2, 1, 3, 3), {}),
    "a blur of colours": (F.conv2d, (2, 3, 11, 13), (3, 1, 5, 5), {"padding": 2, "groups": 3}),
    "depthwise": (F.conv2d, (2, 24, 7, 8), (24, 1, 3, 3), {"padding": 1, "groups": 24}),
    "colours to one": (F.conv2d, (2, 3, 8, 9), (1, 3, 3, 3), {"padding": 1}),
    "groups of two": (F.conv2d, (2, 4, 8, 9), (6, 2, 3, 3), {"padding": (1, 0), "groups": 2}),
    "strides": (F.conv2d, (2, 1, 13, 14), (4, 1, 3, 2), {"padding": (0, 1), "stride": (2, 3)}),
    "dilation": (F.conv2d, (1, 2, 12, 12), (2, 1, 3, 3), {"padding": 2, "dilation": 2, "groups": 2}),
    "padding alone": (F.conv2d, (1, 1, 1, 2), (1, 1, 3, 3), {"padding": 2}),
    "a window of 121": (F.conv2d, (1, 1, 16, 9), (1, 1, 11, 11), {"padding": 5}),
    "pixels": (F.conv2d, (2, 3, 8, 9), (2, 3, 1, 1), {}),
    "a signal": (F.conv1d, (3, 1, 100), (1, 1, 31), {"padding": 15}),
    "a causal signal": (F.conv1d, (2, 16, 20), (16, 1, 4), {"padding": 3, "groups": 16}),
    "a volume": (F.conv3d, (1, 1, 5, 6, 7), (1, 1, 3, 3, 3), {"padding": 1}),
    "no batch": (F.conv2d, (1, 9, 8), (1, 1, 3, 3), {"padding": 1}),
}


def ran(function: Callable[..., Tensor], *inputs: Tensor, **how: Any) -> tuple[Tensor, bool]:
    """The result, and whether a convolution was called."""
    run = nbcompile.compile(function, options={"cache": False, "verify": True}, **how)
    found = run(*inputs)
    assert run.ran_compiled, run.eager_reason
    fused = next(graph for graph in run.compilation.graphs if graph.stage == "fused")
    return found, any(node.op == "aten.convolution" for node in fused.nodes)


@few(15)
@pytest.mark.parametrize("bias", [False, True], ids=["alone", "with a bias"])
@pytest.mark.parametrize("name", CASES)
def test_it_is_a_loop_with_what_is_around_it(name: str, bias: bool) -> None:
    conv, shape, weight, how = CASES[name]
    given = [torch.randn(shape), torch.randn(weight), *([torch.randn(weight[0])] if bias else [])]

    def function(x: Tensor, *of: Tensor) -> Tensor:
        return torch.relu(conv(x * 2, *of, **how)) + 1

    found, called = ran(function, *given)
    expected, exact = function(*given), function(*(each.double() for each in given))
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()
    error, eagers = ((each.double() - exact).abs().max() for each in (found, expected))
    assert error <= 4 * eagers + 1e-6
    assert not called


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_types(dtype: torch.dtype) -> None:
    x, weight = torch.randn(2, 3, 9, 8, dtype=dtype), torch.randn(3, 1, 3, 3, dtype=dtype)

    def function(x: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(x, weight, padding=1, groups=3)

    found, called = ran(function, x, weight)
    torch.testing.assert_close(found, function(x, weight))
    assert found.dtype == dtype and not called


def test_nan_and_infinities_reach_what_their_window_does() -> None:
    x = torch.randn(1, 1, 8, 8)
    x[0, 0, 2, 3], x[0, 0, 6, 1], x[0, 0, 7, 7] = torch.nan, torch.inf, -torch.inf
    weight = torch.rand(1, 1, 5, 5) + 0.1
    found, called = ran(lambda x, weight: F.conv2d(x, weight, padding=2), x, weight)
    torch.testing.assert_close(found, F.conv2d(x, weight, padding=2), equal_nan=True)
    assert not called


@pytest.mark.parametrize("layout", ["transposed", "expanded", "every other"])
def test_images_that_lie_otherwise(layout: str) -> None:
    x = {
        "transposed": lambda: torch.randn(2, 1, 9, 8).mT,
        "expanded": lambda: torch.randn(2, 1, 8, 9).expand(2, 3, 8, 9),
        "every other": lambda: torch.randn(2, 3, 8, 18)[..., ::2],
    }[layout]()
    weight = torch.randn(2, x.shape[1], 3, 3)
    found, called = ran(lambda x, weight: F.conv2d(x, weight, padding=1), x, weight)
    torch.testing.assert_close(found, F.conv2d(x, weight, padding=1))
    assert not called


def fused_ops(run: Any) -> set[str]:
    graphs = (graph for graph in run.compilation.graphs if graph.stage == "fused")
    return {node.op for graph in graphs for node in graph.nodes}


LIBRARYS = {"strides", "depthwise"}
"""Whose gradients are."""


@few(10)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, dtype: torch.dtype) -> None:
    conv, shape, weight, how = CASES[name]
    torch.manual_seed(0)
    given = [torch.randn(size, dtype=dtype) for size in (shape, weight, weight[:1])]

    def function(x: Tensor, *of: Tensor) -> Tensor:
        return conv(x * 2, *of, **how).tanh()

    def gradients(function: Callable[..., Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
        leaves = [each.to(dtype).requires_grad_() for each in given]
        return torch.autograd.grad(function(*leaves).square().sum(), leaves)

    run = nbcompile.compile(function, options={"cache": False, "verify": True})
    found, expected = gradients(run, dtype), gradients(function, dtype)
    assert run.ran_compiled, run.eager_reason
    for one, other, exact in zip(found, expected, gradients(function, torch.float64), strict=True):
        assert (one.dtype, one.stride()) == (other.dtype, other.stride())
        error, eagers = ((each.double() - exact).abs().max() for each in (one, other))
        assert error <= 3 * eagers + 32 * torch.finfo(dtype).eps * exact.abs().max()
    called = fused_ops(run)
    assert ("aten.convolution_backward" in called) == (name in LIBRARYS)


def test_gradients_of_the_image_alone_of_many_channels() -> None:
    x, weight = torch.randn(2, 24, 7, 8, requires_grad=True), torch.randn(24, 1, 3, 3)
    run = nbcompile.compile(lambda x: F.conv2d(x, weight, padding=1, groups=24), options={"cache": False})
    (found,) = torch.autograd.grad(run(x).sin().sum(), x)
    (expected,) = torch.autograd.grad(F.conv2d(x, weight, padding=1, groups=24).sin().sum(), x)
    torch.testing.assert_close(found, expected)
    assert "aten.convolution_backward" not in fused_ops(run)


def test_a_signal_whose_channels_lie_innermost_and_its_gradients_are_loops() -> None:
    """As a state-space model has it: batch, time, channels."""

    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        seen = F.conv1d(x.transpose(1, 2), weight, bias, padding=3, groups=24)
        return F.silu(seen[..., : x.shape[1]]).transpose(1, 2)

    given = [torch.randn(3, 17, 24), torch.randn(24, 1, 4), torch.randn(24)]
    given = [each.requires_grad_() for each in given]
    run = nbcompile.compile(function, options={"cache": False, "verify": True})
    found, expected = run(*given), function(*given)
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()
    gradients = [torch.autograd.grad(each.sin().sum(), given) for each in (found, expected)]
    torch.testing.assert_close(*gradients)
    called = [
        node.op
        for graph in run.compilation.of_stage("fused")
        for node in graph.nodes
        if "convolution" in node.op
    ]
    assert all("aten.convolution" not in op for op in called)


def test_what_a_library_does_better_is_called() -> None:
    sizes = (2, 8, 12, 12)
    assert not is_small(sizes, (16, 8, 3, 3), 1, False), "many channels"
    assert not is_small(sizes, (16, 1, 5, 5), 16, False), "depthwise, by a larger window"
    assert not is_small(sizes, (1, 1, 12, 12), 1, False), "a large window"
    assert not is_small(sizes, (32, 1, 3, 3), 1, False), "many results of one channel"
    assert not is_small(sizes, (1, 1, 3, 3), 1, True), "transposed"
    assert not is_small((0, 1, 9, 9), (1, 1, 3, 3), 1, False), "nothing"
    last = torch.randn(2, 3, 12, 12).to(memory_format=torch.channels_last)
    _, called = ran(lambda x, weight: F.conv2d(x, weight), last, torch.randn(2, 3, 3, 3))
    assert called, "channels lie innermost"


def test_symbolic_sizes_are_left_to_the_library() -> None:
    weight = torch.randn(1, 1, 3, 3)
    run = nbcompile.compile(lambda x: F.conv2d(x, weight, padding=1), dynamic=True)
    for size in (9, 14):
        x = torch.randn(2, 1, size, size)
        torch.testing.assert_close(run(x), F.conv2d(x, weight, padding=1))
    assert run.ran_compiled


@pytest.mark.parametrize("gradients", [False, True])
def test_symbolic_steps_and_paddings_are_left_to_the_library(gradients: bool) -> None:
    """Of two convolutions of one image, that differ, Dynamo takes the numbers for symbols."""

    def both(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return F.conv2d(x[:, :1], weight, padding=3, stride=3), F.conv2d(x[:, :1], weight, padding="same")

    torch._dynamo.reset()
    run = nbcompile.compile(both, dynamic=True, options={"cache": False})
    inputs = [torch.randn(size, dtype=torch.float64) for size in ((2, 4, 5, 7), (1, 1, 3, 3))]
    inputs = [each.requires_grad_(gradients) for each in inputs]
    found, expected = run(*inputs), both(*inputs)
    torch.testing.assert_close(found, expected)
    if gradients:
        results = [torch.autograd.grad([each.sum() for each in item], inputs) for item in (found, expected)]
        torch.testing.assert_close(*results)
    assert run.ran_compiled, run.eager_reason
    fused = {graph.id for graph in run.compilation.graphs if graph.stage == "fused"}
    assert fused == {"g0.fw.fused"} | ({"g0.bw.fused"} if gradients else set())
