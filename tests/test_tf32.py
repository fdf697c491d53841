"""How float32 products are set, by either generation of torch's settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from nbcompile import tf32

CUDNN = torch.backends.cudnn
MATMUL = torch.backends.cuda.matmul


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    parts = (MATMUL, torch.backends.mkldnn.matmul, CUDNN.conv, CUDNN.rnn)
    before = [part.fp32_precision for part in parts]
    yield
    for part, precision in zip(parts, before, strict=True):
        part.fp32_precision = precision


def test_the_older_setting_is_told_and_set() -> None:
    tf32.set_products("high")
    assert tf32.products() == "high"
    assert tf32.products_on_cuda()
    tf32.set_products("highest")
    assert not tf32.products_on_cuda()


def test_a_mixture_is_told_and_stays() -> None:
    MATMUL.fp32_precision = "tf32"
    assert tf32.products() == tf32.MIXED
    tf32.set_products(tf32.products())
    assert tf32.products_on_cuda()


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
def test_convolutions_are_set_apart_from_recurrent_layers(precision: str) -> None:
    CUDNN.conv.fp32_precision = precision
    CUDNN.rnn.fp32_precision = "ieee" if precision == "tf32" else "tf32"
    assert tf32.convolutions_on_cuda() == (precision == "tf32")


def test_a_graph_is_compiled_under_a_mixture() -> None:
    from nbcompile.options import Options
    from nbcompile.record.recorder import Recorder

    MATMUL.fp32_precision = "tf32"
    CUDNN.conv.fp32_precision = "ieee"
    recorder = Recorder(Options())
    torch._dynamo.reset()
    x, image = torch.ones(3, 3), torch.ones(1, 3, 8, 8)
    net = torch.nn.Conv2d(3, 4, 3)
    compiled = torch.compile(
        lambda x, image: ((x @ x).sin(), net(image).relu()),
        backend="nbcompile",
        options={"recorder": recorder, "cache": False},
    )
    torch.testing.assert_close(compiled(x, image), ((x @ x).sin(), net(image).relu()))
    assert recorder.graph_count == 1
    assert not recorder.ran_eagerly
