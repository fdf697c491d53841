"""Numbers below a type's least normal one, on a GPU: eager computes with them. Skipped where there is no
GPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import nbcompile

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")

OF_ONE = """log log2 log10 log1p sqrt rsqrt exp exp2 expm1 sin cos tan tanh sigmoid erf erfinv erfc lgamma
digamma reciprocal asin acos atan sinh cosh asinh atanh square""".split()
OF_TWO = "div pow atan2 hypot fmod remainder floor_divide mul logaddexp xlogy nextafter".split()
COMPOSED = {
    "softplus": F.softplus, "silu": F.silu, "gelu": F.gelu, "mish": F.mish, "logit": torch.logit,
    "root": lambda x: x**-0.5, "halved": lambda x: torch.ldexp(x, torch.full_like(x, -3, dtype=torch.int32)),
    "doubled": lambda x: torch.ldexp(x, torch.full_like(x, 30, dtype=torch.int32)),
    "scaled": lambda x: x * 1e30 * 1e10, "shifted": lambda x: torch.exp(x - 89),
}  # fmt: skip
SMALL = [1e-45, 1e-40, 3e-39, 1.1e-38, 2e-38, 1.5e-30, 0.0, 1.0, 3.5, 90.0, 1e38]


def numbers() -> torch.Tensor:
    small = torch.tensor(SMALL, device="cuda")
    return torch.cat([small, -small])


def agree(function, *args) -> None:
    torch._dynamo.reset()
    got, wanted = nbcompile.compile(function, options={"cache": False})(*args), function(*args)
    torch.testing.assert_close(got, wanted, rtol=2e-6, atol=1e-45, equal_nan=True)


@pytest.mark.parametrize("name", [*OF_ONE, *COMPOSED])
def test_of_one_number(name: str) -> None:
    agree(COMPOSED.get(name) or getattr(torch, name), numbers())


@pytest.mark.parametrize("name", OF_TWO)
def test_of_two_numbers(name: str) -> None:
    agree(getattr(torch, name), numbers()[:, None].contiguous(), numbers())
