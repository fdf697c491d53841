"""Index tensors made from nothing: backward makes its own, forward saves none."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import nbcompile
from tests.compiler.capture.helpers import compiled
from tests.compiler.rewrite.images.test_channels_last import Graphs


def upsample(x):
    return F.interpolate(x * 2, scale_factor=2, mode="nearest")


def bilinear(x):
    return F.interpolate(x * 2, scale_factor=2, mode="bilinear")


def flip(x):
    return (x * 2)[:, torch.arange(x.shape[1] - 1, -1, -1)]


def names(graphs: Graphs, stage: str) -> list[str]:
    (graph,) = [each for each in graphs.seen if each.stage == stage]
    return [str(node.target) for node in graph.module.graph.nodes]


@pytest.mark.parametrize("fn", [upsample, bilinear, flip])
def test_backward_makes_them_again(fn):
    graphs = Graphs()
    x = torch.randn(2, 3, 4, 4, requires_grad=True)
    program = compiled(fn, compile_aten=graphs)
    program(x).square().sum().backward()
    ours, x.grad = x.grad, None
    fn(x).square().sum().backward()
    torch.testing.assert_close(ours, x.grad)
    backward = names(graphs, "backward")
    assert any("arange" in name for name in backward)
    (graph,) = [each for each in graphs.seen if each.stage == "backward"]
    inputs = [node for node in graph.module.graph.nodes if node.op == "placeholder"]
    assert all(node.meta["val"].dtype.is_floating_point for node in inputs)


def test_what_depends_on_data_is_saved():
    graphs = Graphs()
    x = torch.randn(2, 3, 4, requires_grad=True)
    at = torch.tensor([1, 0, 1])
    program = compiled(lambda x, at: (x * 2)[:, at], compile_aten=graphs)
    program(x, at).square().sum().backward()
    assert not any("arange" in name for name in names(graphs, "backward"))


def test_sizes_found_twice_are_one_each():
    """The gradient of the second ``x[x > 0]`` was as long as a size that no node was left to find."""

    def both(x):
        return (x[x > 0] * 2).sum() + (x[x > 0] * x[x > 0]).exp().sum()

    x = torch.randn(40, requires_grad=True)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        program = nbcompile.compile(both, fullgraph=True, options={"cache": False})
        program(x).backward()
    assert program.ran_compiled, program.eager_reason
    ours, x.grad = x.grad, None
    both(x).backward()
    torch.testing.assert_close(ours, x.grad)
