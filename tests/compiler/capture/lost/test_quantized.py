"""Quantised tensors keep their type."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import nbcompile

x = torch.linspace(-3, 3, 8)


def per_tensor(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    q = torch.quantize_per_tensor(x * 2, 0.1, 0, torch.qint8)
    return q, q.int_repr(), (q.dequantize() - x).abs().max()


def per_channel(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    q = torch.quantize_per_channel(x.view(2, 4), torch.ones(2) / 8, torch.zeros(2), 0, torch.qint8)
    return q, q.dequantize()


@pytest.mark.parametrize("program", [per_tensor, per_channel])
@pytest.mark.filterwarnings("ignore:.*quantiz")
def test_a_quantised_tensor_is_one(program: Callable[[torch.Tensor], tuple[torch.Tensor, ...]]) -> None:
    compiled = nbcompile.compile(program)
    for found, expected in zip(compiled(x), program(x), strict=True):
        assert found.dtype == expected.dtype and found.is_quantized == expected.is_quantized
        pairs = (found, expected) if not found.is_quantized else (found.int_repr(), expected.int_repr())
        assert torch.equal(*pairs)
    made = [
        node for graph in compiled.compilation.of_stage("fx") for node in graph.nodes if "quantize" in node.op
    ]
    assert not made or "it would lose the type of a quantised tensor" in compiled.eager_reason
