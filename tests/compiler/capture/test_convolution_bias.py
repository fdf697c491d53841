"""On a GPU a convolution's bias, and its gradient, are no part of the library call."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from nbcompile.compiler.stages import AtenGraph, CompiledModule
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder
from tests.compiler.capture.helpers import compiled, run_aten
from tests.nightly import few

aten = torch.ops.aten
LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "line": (lambda: nn.Conv1d(3, 4, 3), (2, 3, 9)),
    "image": (lambda: nn.Conv2d(3, 4, 3, 2, 1), (2, 3, 6, 7)),
    "grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2), (2, 4, 6, 7)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), (2, 3, 4, 5)),
    "transposed in groups": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, groups=2), (2, 4, 4, 5)),
    "volume": (lambda: nn.Conv3d(2, 3, 3, padding=1), (1, 2, 4, 5, 3)),
    "without a batch": (lambda: nn.Conv2d(3, 4, 3), (3, 6, 7)),
}


@few(3)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("frozen", [(), ("weight",), ("weight", "input"), ("bias",)], ids="-".join)
def test_bias_is_added_apart(name: str, frozen: tuple[str, ...]) -> None:
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    net: nn.Module = make().double()
    for parameter in frozen:
        if parameter != "input":
            getattr(net, parameter).requires_grad_(False)
    other = copy.deepcopy(net)
    seen: list[AtenGraph] = []

    def keep(graph: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule:
        seen.append(graph)
        return run_aten(graph, options, recorder)

    run = compiled(other, options={"target": "cuda:90", "channels_last": "never"}, compile_aten=keep)
    x = torch.randn(shape).double()
    left, right = (x.clone().requires_grad_("input" not in frozen) for _ in range(2))
    got, wanted = run(left), net(right)
    torch.testing.assert_close(got, wanted)
    weights = torch.randn_like(wanted)
    got.backward(weights)
    wanted.backward(weights)
    for ours, eagers in zip((left, *other.parameters()), (right, *net.parameters()), strict=True):
        assert (ours.grad is None) == (eagers.grad is None)
        if ours.grad is not None:
            torch.testing.assert_close(ours.grad, eagers.grad)
    calls = [node for graph in seen for node in graph.module.graph.nodes if node.op == "call_function"]
    forward = [node for node in calls if node.target is aten.convolution.default]
    assert forward and all(node.args[2] is None for node in forward)
    backward = [node for node in calls if node.target is aten.convolution_backward.default]
    assert len(backward) == (frozen != ("weight", "input"))
    assert not any(node.args[-1][2] for node in backward)  # type: ignore[index]


def test_the_cpu_keeps_its_bias() -> None:
    seen: list[AtenGraph] = []

    def keep(graph: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule:
        seen.append(graph)
        return run_aten(graph, options, recorder)

    with torch.no_grad():
        compiled(nn.Conv2d(3, 4, 3), compile_aten=keep)(torch.randn(1, 3, 5, 5))
    (call,) = (node for node in seen[0].module.graph.nodes if node.target is aten.convolution.default)
    assert call.args[2] is not None
