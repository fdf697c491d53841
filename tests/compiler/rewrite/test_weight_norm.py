"""The gradient of weight_norm is made of loops, and is ATen's."""

from __future__ import annotations

import pytest
import torch

import nbcompile
from nbcompile.compiler.capture.decompositions import decompositions
from nbcompile.options import Options
from tests.nightly import few

aten = torch.ops.aten


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("dim", (0, 2))
@pytest.mark.parametrize("shape", ((4, 3, 5), (1, 3, 1), (2, 1, 7)), ids=str)
def test_as_the_kernel(shape, dim, dtype):
    torch.manual_seed(0)
    v, grad = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    g = torch.randn([size if at == dim else 1 for at, size in enumerate(shape)], dtype=dtype)
    _, norms = aten._weight_norm_interface(v, g, dim)
    target = aten._weight_norm_interface_backward.default
    expected = target(grad, v, g, norms, dim)
    for one, two in zip(decompositions(Options())[target](grad, v, g, norms, dim), expected):
        torch.testing.assert_close(one, two)
        assert one.stride() == two.stride()


@few(2)
@pytest.mark.parametrize("dim", (0, 1, 2))
def test_compiled(dim):
    gradients = []
    torch.manual_seed(0)
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(4, 6, 3), dim=dim)
    x = torch.randn(2, 4, 9)
    run = nbcompile.compile(layer, options={"cache": False})
    for each in (layer, run):
        layer.zero_grad()
        each(x).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in layer.parameters()])
    torch.testing.assert_close(*gradients)
    loops = [node for graph in run.compilation.of_stage("loops") for node in graph.nodes]
    assert not [node.op for node in loops if node.kind == "fallback"]
