"""TVM: its options and types."""

from __future__ import annotations

import pytest
import torch

from nbcompile.backends.registry import resolve
from nbcompile.errors import OptionError
from tests.backends.engines import in_a_cell, run


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
