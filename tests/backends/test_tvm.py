"""TVM: its options and types."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from nbcompile.backends.registry import resolve
from nbcompile.errors import OptionError
from tests.backends.engines import in_a_cell, run
from tests.nightly import few


@pytest.mark.parametrize(
    ("options", "message"),
    [({"colour": 1}, "'colour' is unknown to tvm"), ({"target": "abacus"}, "option target of tvm")],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        resolve("tvm", options=options)


def test_a_target_of_the_users() -> None:
    _, compiled = run("tvm", lambda x: x * 2 + 1, torch.randn(4), options={"target": "llvm"})
    assert compiled.ran_compiled, compiled.eager_reason


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_products_keep_their_type(dtype: torch.dtype) -> None:
    x, b = torch.randn(4, 4, dtype=dtype), torch.randn(4, dtype=dtype)
    got, compiled = run("tvm", lambda x, b: torch.addmm(b, x, x), x, b)
    assert compiled.ran_compiled, compiled.eager_reason
    exact = torch.addmm(b.double(), x.double(), x.double())
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(got.double(), exact, rtol=tolerance, atol=tolerance)


def test_where_the_importer_fails_is_named() -> None:
    f = in_a_cell("def f(n):\n    n = n + 1\n    return n // 2\n")
    got, compiled = run("tvm", f, torch.tensor([3, 4]))
    assert got.tolist() == [2, 2]
    assert "TVM's importer fails at aten.div.Tensor_mode" in compiled.eager_reason
    assert compiled.compilation.notes[0].startswith("line 3: ")


@few(3)
@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 4), (4, 10)),
        ((7, 5), (5, 13)),
        ((12, 16), (16, 96)),
        ((3, 6, 8), (3, 8, 16)),
        ((64, 64), (64, 64)),
    ],
    ids=str,
)
def test_scheduled_products_and_sums(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Tiles, their remainders and threads: what the schedule does to sizes that it divides and does not."""

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(x @ w) + 1
        return y, y.sum(-1), y.amax(-2), torch.softmax(y, -1)

    torch.manual_seed(0)
    x, w = (torch.randn(shape) for shape in shapes)
    got, compiled = run("tvm", f, x, w)
    assert compiled.ran_compiled, compiled.eager_reason
    torch.testing.assert_close(got, f(x, w), rtol=1e-5, atol=1e-5)


def test_scheduled_convolutions() -> None:
    def f(x: torch.Tensor, w: torch.Tensor, strided: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(F.conv2d(x, w, padding=1))
        return F.max_pool2d(y, 2), F.conv2d(y, strided, stride=2), y.mean((2, 3))

    torch.manual_seed(0)
    inputs = torch.randn(2, 3, 16, 16), torch.randn(4, 3, 3, 3), torch.randn(5, 4, 3, 3)
    got, compiled = run("tvm", f, *inputs)
    assert compiled.ran_compiled, compiled.eager_reason
    torch.testing.assert_close(got, f(*inputs), rtol=1e-4, atol=1e-5)
    assert "vectorized" in compiled.compilation.graph("g0.fw.fused").text
