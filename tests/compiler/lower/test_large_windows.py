"""Large windows are walked along one dimension after the other on a CPU, and hold the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor
F = torch.nn.functional
CASES: dict[str, tuple[tuple[int, ...], tuple[Any, ...], dict[str, Any]]] = {
    "same size": ((2, 3, 16, 11), (7, 1, 3), {}),
    "spatial pyramid": ((1, 4, 20, 20), (13, 1, 6), {}),
    "strides": ((2, 3, 17, 14), ((7, 5), (2, 3), (3, 1)), {}),
    "ceil": ((1, 2, 16, 15), (6, 4, 2), {"ceil_mode": True}),
    "a volume": ((1, 2, 6, 7, 8), (4, 1, 2), {}),
    "side by side": ((1, 3, 18, 18), (6, 6, 0), {}),
    "no batch": ((3, 16, 11), (7, 1, 3), {}),
}


def ran(function: Callable[[Tensor], Any], x: Tensor) -> tuple[Any, list[str]]:
    """What it gives, and what ATen was called for."""
    run = nbcompile.compile(function, options={"cache": False, "verify": True})
    found = run(x)
    assert run.ran_compiled, run.eager_reason
    fused = next(graph for graph in run.compilation.graphs if graph.stage == "fused")
    return found, [node.op for node in fused.nodes if node.op.startswith("aten.")]


@few(7)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_windows_of_over_27_elements(name: str, kind: str) -> None:
    shape, how, more = CASES[name]
    pool = getattr(F, f"{kind}_pool{3 if len(shape) == 5 else 2}d")

    def function(x: Tensor) -> Tensor:
        return pool(x.exp(), *how, **more) + 1

    x = torch.randn(shape)
    found, called = ran(function, x)
    torch.testing.assert_close(found, function(x))
    assert found.stride() == function(x).stride()
    assert not called


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64])
def test_other_types(dtype: torch.dtype) -> None:
    x = (torch.randn(2, 3, 12, 11) * 9).to(dtype)
    found, called = ran(lambda x: F.max_pool2d(x, 7, 1, 3), x)
    assert torch.equal(found, F.max_pool2d(x, 7, 1, 3)) and not called
    if dtype.is_floating_point:
        found, called = ran(lambda x: F.avg_pool2d(x, 7, 1, 3), x)
        torch.testing.assert_close(found, F.avg_pool2d(x, 7, 1, 3))
        assert not called


@pytest.mark.parametrize("counted", [False, True])
def test_averages_that_count_their_padding_or_not(counted: bool) -> None:
    x = torch.randn(1, 2, 9, 12)
    how = {"kernel_size": (7, 5), "stride": (1, 2), "padding": (3, 2), "count_include_pad": counted}
    found, called = ran(lambda x: F.avg_pool2d(x, **how), x)
    torch.testing.assert_close(found, F.avg_pool2d(x, **how))
    assert not called


def test_nan_and_infinities() -> None:
    x = torch.randn(1, 1, 14, 12)
    x[0, 0, 2, 3], x[0, 0, 9, 1], x[0, 0, 13, 11] = torch.nan, torch.inf, -torch.inf
    x[0, 0, :3, 8:] = -torch.inf
    for pool in (F.max_pool2d, F.avg_pool2d):
        found, _ = ran(lambda x, pool=pool: pool(x, 5, 1, 2), x)
        torch.testing.assert_close(found, pool(x, 5, 1, 2), equal_nan=True)


def test_places_of_the_largest_and_gradients() -> None:
    x = torch.randn(2, 2, 12, 11).round()  # with equals
    found, called = ran(lambda x: F.max_pool2d(x, 7, 2, 3, return_indices=True), x)
    expected = F.max_pool2d(x, 7, 2, 3, return_indices=True)
    assert all(map(torch.equal, found, expected))
    assert called == ["aten.max_pool2d_with_indices"]

    def step(x: Tensor) -> Tensor:
        return (F.max_pool2d(x, 7, 2, 3).square().sum() + F.avg_pool2d(x, 5, 1, 2).sin().sum()) * 2

    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    step(one).backward()
    nbcompile.compile(step)(two).backward()
    torch.testing.assert_close(two.grad, one.grad)
