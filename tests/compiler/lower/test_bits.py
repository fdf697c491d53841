"""Numbers' bits as those of another type of the same size are loops, in C and in Triton, NaN's bits too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import nbcompile

Tensor = torch.Tensor


def rounded(x: Tensor) -> tuple[Tensor, ...]:
    """bfloat16 by rounding to even in integers, and the parts of a number."""
    bits = x.view(torch.int32)
    near = ((bits + 0x7FFF + ((bits >> 16) & 1)) & -65536).view(torch.float32)
    return near, ((bits >> 23) & 0xFF) - 127, bits & 0x7FFFFF, bits


def inverse_root(x: Tensor) -> tuple[Tensor, ...]:
    guess = (0x5F3759DF - (x.abs().view(torch.int32) >> 1)).view(torch.float32)
    return (guess * (1.5 - 0.5 * x.abs() * guess * guess),)


def of_doubles(x: Tensor) -> tuple[Tensor, ...]:
    bits = x.double().view(torch.int64)
    return bits ^ (bits >> 1), (bits + 1).view(torch.float64)


@pytest.mark.parametrize("interpret", [False, True], ids=["c", "triton"])
@pytest.mark.parametrize("function", [rounded, inverse_root, of_doubles])
def test_bits(function: Callable[[Tensor], tuple[Tensor, ...]], interpret: bool) -> None:
    if interpret:
        pytest.importorskip("triton")
    edges = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1e-42, 3e38])
    x = torch.cat([edges, torch.randn(1000)])
    run = nbcompile.compile(function, options={"cache": False, "verify": True, "interpret": interpret})
    for one, other in zip(run(x), function(x), strict=True):
        kind = {torch.float32: torch.int32, torch.float64: torch.int64}.get(one.dtype, one.dtype)
        assert torch.equal(one.view(kind), other.view(kind)), "to the bit"
    assert run.ran_compiled, run.eager_reason
    fused = next(graph for graph in run.compilation.graphs if graph.stage == "fused")
    assert not any(node.op.startswith("aten.") for node in fused.nodes)


@pytest.mark.parametrize("target", [torch.uint8, torch.int16, torch.float16])
def test_types_of_other_sizes_and_halves_are_called(target: torch.dtype) -> None:
    x = torch.randn(8, 6)
    run = nbcompile.compile(lambda x: (x * 2).view(target) + 1)
    torch.testing.assert_close(run(x), (x * 2).view(target) + 1, equal_nan=True)


def test_what_is_written_by_its_bits_reaches_the_number() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 1
        y.view(torch.int32).bitwise_and_(-65536)
        return y

    x = torch.randn(100)
    run = nbcompile.compile(function)
    assert torch.equal(run(x), function(x))
    x = torch.randn(100)
    ours = x.clone()
    nbcompile.compile(lambda x: x.view(torch.int32).bitwise_and_(-65536).sum())(ours)
    x.view(torch.int32).bitwise_and_(-65536)
    assert torch.equal(ours, x)
