"""ONNX Runtime: its options and types."""

from __future__ import annotations

import pytest
import torch

from nbcompile.backends.registry import resolve
from nbcompile.errors import OptionError
from tests.backends.engines import run


def test_options() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 1 + 0) * 2

    x = torch.randn(4)
    plain = {"graph_optimization_level": "ORT_DISABLE_ALL", "intra_op_num_threads": 1}
    got, compiled = run("onnxrt", f, x, options=plain)
    torch.testing.assert_close(got, f(x))
    assert compiled.ran_compiled, compiled.eager_reason
    resolve("onnxrt", options={"config": {"session.disable_prepacking": "1"}})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colour": 1}, "'colour' is unknown to onnxrt"),
        ({"providers": ["NoExecutionProvider"]}, "has no NoExecutionProvider"),
        ({"graph_optimization_level": "HIGH"}, "graph_optimization_level of onnxrt cannot be 'HIGH'"),
        ({"intra_op_num_threads": "two"}, "cannot be 'two'"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        resolve("onnxrt", options=options)


@pytest.mark.nightly
def test_float64_is_float64() -> None:
    x = torch.randn(3, 3, dtype=torch.float64)
    got, compiled = run("onnxrt", lambda x: (x @ x).tanh(), x)
    assert compiled.ran_compiled
    torch.testing.assert_close(got, (x @ x).tanh(), rtol=1e-12, atol=1e-12)


def test_a_type_without_kernels_is_named() -> None:
    x = torch.randn(3, 3, dtype=torch.bfloat16)
    got, compiled = run("onnxrt", lambda x: x @ x, x)
    assert torch.equal(got, x @ x)
    assert "ONNX Runtime (in MatMul) has no aten.mm.default of bf16" in compiled.eager_reason
