"""Which convolutions run channels-last on a CPU, where oneDNN would convert every image at every call."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import nbcompile
from nbcompile.compiler.rewrite.images.convolutions import is_convolution, to_be_channels_last
from tests.nightly import few


def pair(width: int, groups: int = 1, kernel: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    pad = kernel // 2
    return nn.Sequential(
        nn.Conv2d(16, width, kernel, padding=pad, groups=groups), nn.ReLU(),
        nn.Conv2d(width, 16, kernel, padding=pad), nn.BatchNorm2d(16),
    )  # fmt: skip


def chosen(net: nn.Module, x: torch.Tensor, grad: bool = False) -> int:
    """How many of its convolutions the record says run channels-last; the numbers are eager's."""
    torch._dynamo.reset()
    run = nbcompile.compile(net.train(grad), options={"cache": False, "verify": True})
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(run(x), net(x), rtol=1e-4, atol=1e-4)
        if grad:
            ours, eagers = (
                torch.autograd.grad(f(x).square().mean(), list(net.parameters())) for f in (run, net)
            )
            torch.testing.assert_close(ours, eagers, rtol=1e-3, atol=1e-4)
    said = [note for note in run.compilation.notes if "channels-last" in note]
    return int(said[0].split()[0]) if said else 0


@few(3)
@pytest.mark.parametrize(
    ("net", "shape", "grad", "expected"),
    [
        pytest.param(pair(32), (2, 16, 40, 40), False, 2, id="two of large images"),
        pytest.param(pair(32), (2, 16, 40, 40), True, 2, id="their gradients"),
        pytest.param(pair(32), (1, 16, 8, 8), False, 0, id="small images"),
        pytest.param(pair(256), (1, 16, 12, 12), False, 0, id="larger weights than images"),
        pytest.param(pair(256, kernel=1), (1, 16, 20, 20), False, 2, id="weights of one pixel"),
        pytest.param(pair(32)[:1], (4, 16, 40, 40), False, 0, id="one alone"),
        pytest.param(nn.Conv2d(16, 16, 5, groups=16), (4, 16, 40, 40), False, 1, id="one depthwise"),
        pytest.param(pair(16, groups=16), (2, 16, 40, 40), True, 0, id="gradients of groups"),
        pytest.param(nn.Sequential(pair(32), nn.GroupNorm(4, 16)), (2, 16, 40, 40), False, 0, id="groups"),
        pytest.param(pair(32).double(), (2, 16, 40, 40), False, 0, id="float64"),
    ],
)  # fmt: skip
def test_those_that_gain(net: nn.Module, shape: tuple[int, ...], grad: bool, expected: int) -> None:
    x = torch.randn(shape, dtype=next(net.parameters()).dtype)
    assert chosen(net, x, grad) == expected


@pytest.mark.parametrize(
    ("kind", "asked", "expected"),
    [("cpu", "auto", 2), ("cuda", "auto", 2), ("hip", "auto", 0), ("hip", "always", 2), ("cpu", "never", 0)],
)
def test_what_is_asked_for_decides(kind: str, asked: str, expected: int) -> None:
    def two(x: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return F.conv2d(F.conv2d(x, one), other)

    shapes = ((2, 16, 40, 40), (32, 16, 3, 3), (16, 32, 3, 3))
    graph = make_fx(two, tracing_mode="fake")(*map(torch.randn, shapes)).graph
    found = [node for node in graph.nodes if is_convolution(node)]
    assert len(found) == 2 and len(to_be_channels_last(graph, found, asked, kind)) == expected


def test_a_pool_reads_the_copy_that_a_convolution_has() -> None:
    """In both orders of memory at once it took ten times as long."""
    torch.manual_seed(0)
    beside = nn.Conv2d(16, 16, 3, padding=1)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([one(x), beside(F.avg_pool2d(x, 3, 1, 1))], 1)

    one, x = pair(32).eval(), torch.randn(2, 16, 40, 40)
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False, "verify": True})
    with torch.no_grad():
        torch.testing.assert_close(run(x), function(x), rtol=1e-4, atol=1e-4)
    (aten,) = run.compilation.of_stage("forward")
    pools = [node.text for node in aten.nodes if "avg_pool2d" in node.op]
    assert pools and all("channels_last" in text for text in pools), pools
