"""OpenVINO: its options and types, and what it leaves alone."""

from __future__ import annotations

import sys

import pytest
import torch

from nbcompile.backends.registry import resolve
from nbcompile.errors import OptionError
from tests.backends.engines import run


def test_its_own_backend_is_not_loaded() -> None:
    _, compiled = run("openvino", torch.nn.ReLU(), torch.randn(3))
    assert compiled.ran_compiled, compiled.eager_reason
    assert "openvino.torch" not in sys.modules  # which changes Dynamo's settings for everyone


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colour": 1}, "'colour' is unknown to openvino"),
        ({"device": "TPU"}, "no device 'TPU' here. It has CPU"),
        ({"config": 3}, "config of openvino wants a mapping"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        resolve("openvino", options=options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types(dtype: torch.dtype) -> None:
    x = torch.randn(4, 4, dtype=dtype)
    got, compiled = run("openvino", lambda x: torch.relu(x @ x), x, options={"config": {"NUM_STREAMS": 1}})
    assert compiled.ran_compiled, compiled.eager_reason
    exact = torch.relu(x.double() @ x.double())
    torch.testing.assert_close(got.double(), exact, rtol=torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


def test_float64_is_refused() -> None:
    x = torch.randn(3, dtype=torch.float64)
    got, compiled = run("openvino", lambda x: x.tanh(), x)
    assert torch.equal(got, x.tanh())
    assert "OpenVINO has no float64: it computes in float32" in compiled.eager_reason


def test_large_integers_are_computed_by_aten() -> None:
    f = lambda n: n * 3
    got, compiled = run("openvino", f, torch.tensor([5, 7]))
    assert got.tolist() == [15, 21] and compiled.ran_compiled
    assert any("int64 as int32" in note for note in compiled.compilation.notes)
    assert compiled(torch.tensor([2**40, 7])).tolist() == [3 * 2**40, 21]
    assert "an input is beyond that" in compiled.eager_reason
    _, other = run("openvino", lambda n: n % (2**40), torch.tensor([5, 7]))
    assert not other.ran_compiled
