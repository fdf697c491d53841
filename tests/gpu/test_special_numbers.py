"""NaN, infinities, zeros of both signs and the ends of ranges, on a GPU, where eager's kernels are others
than on a CPU: results and gradients. Skipped where there is no GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import nbcompile

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
Tensor = torch.Tensor
NAN, INF = float("nan"), float("inf")
SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 6.0, -6.0, 20.0, 21.0, -100.0, 0.001,
           2.5, 1e4, -1e4]  # fmt: skip

OF_ONE: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in """abs sign sgn relu sqrt rsqrt exp exp2 expm1 log log2 log10
    log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh sigmoid erf erfc erfinv lgamma digamma
    reciprocal square floor ceil round trunc frac neg deg2rad sinc nan_to_num logit i0 isnan isinf
    signbit""".split()},
    **{name: getattr(F, name) for name in """gelu silu mish softplus softsign tanhshrink hardtanh hardswish
    hardsigmoid relu6 elu selu celu leaky_relu logsigmoid hardshrink""".split()},
    "i1": torch.special.i1, "i0e": torch.special.i0e, "ndtri": torch.special.ndtri,
    "log_ndtr": torch.special.log_ndtr, "entr": torch.special.entr,
    "logit_eps": lambda x: torch.logit(x, 1e-3), "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "threshold": lambda x: F.threshold(x, 0.5, -2.0), "clamp": lambda x: x.clamp(-1, 1),
    "clamp_min": lambda x: x.clamp(min=0), "softplus_steep": lambda x: F.softplus(x, 3.0, 4.0),
    "square_root": lambda x: x**0.5, "cube": lambda x: x**3, "inverse_root": lambda x: x**-0.5,
    "power": lambda x: x**2.7, "of_base": lambda x: 0.0**x, "of_two": lambda x: 2.0**x,
    "polygamma": lambda x: torch.polygamma(1, x.abs() + 0.5), "rounded": lambda x: torch.round(x, decimals=1),
    "whole": lambda x: torch.nan_to_num(x, 0, 100, -100).clamp(-99, 99).int(),
    "truth": lambda x: x.bool(), "half": lambda x: (x * 7).half().float(),
}  # fmt: skip
OF_TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in """add mul sub div maximum minimum fmax fmin atan2 hypot fmod
    remainder pow logaddexp logaddexp2 xlogy copysign eq lt ge isclose
    logical_xor""".split()},
    "truncated": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "xlog1py": torch.special.xlog1py, "prelu": lambda x, y: torch.where(x > 0, x, x * y),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
    "huber": lambda x, y: F.huber_loss(x, y, reduction="none"),
    "l1": lambda x, y: F.l1_loss(x, y, reduction="none"),
    "with_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3), "addcmul": lambda x, y: torch.addcmul(x, y, y, value=0.5),
}  # fmt: skip


def along_rows(name: str) -> Callable[[Tensor], Any]:
    return lambda x: getattr(torch, name)(x, -1)


OF_ROWS: dict[str, Callable[[Tensor], Any]] = {
    **{name: along_rows(name) for name in """sum mean amax amin argmax argmin prod var std logsumexp
    softmax log_softmax cumsum all any nansum nanmean logcumsumexp count_nonzero""".split()},
    "max": lambda x: torch.max(x, -1), "min": lambda x: torch.min(x, -1),
    "cummax": lambda x: torch.cummax(x, -1),
    "norm": lambda x: x.norm(dim=-1), "norm1": lambda x: x.norm(1, -1), "norm3": lambda x: x.norm(3, -1),
    "largest": lambda x: x.norm(INF, -1), "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "pooled": lambda x: F.max_pool1d(x, 3, 2, 1),
}  # fmt: skip
TYPES = [torch.float32, torch.float64]
HALF = torch.bfloat16
# Eager has a sixth as a float32 of doubles too, no kernels of this type, or rounds between its steps.
ELSEWHERE = {
    *((name, torch.float64) for name in ("hardswish", "hardsigmoid", "log_ndtr")),
    *((name, HALF) for name in ("i1", "ndtri", "log_ndtr", "power", "sinc")),
}


def numbers(dtype: torch.dtype) -> Tensor:
    ends = [torch.finfo(dtype).max, torch.finfo(dtype).min, torch.finfo(dtype).eps]
    return torch.tensor(SPECIAL + ends, device="cuda", dtype=dtype)


def found(function: Callable[..., Any], inputs: list[Tensor]) -> list[Tensor]:
    """Results, and gradients of those that have some."""
    own = [each.clone().requires_grad_() for each in inputs]
    results = function(*own)
    results = list(results) if isinstance(results, tuple) else [results]
    wanted = [each for each in results if each.requires_grad]
    gradients = torch.autograd.grad(
        wanted, own, [torch.full_like(each, 0.75) for each in wanted], allow_unused=True
    ) if wanted else ()  # fmt: skip
    return [each.detach() for each in (*results, *gradients) if each is not None]


def agree(function: Callable[..., Any], *inputs: Tensor) -> None:
    torch._dynamo.reset()
    got = found(nbcompile.compile(function, options={"cache": False}), list(inputs))
    wanted = found(function, list(inputs))
    near = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float64: 1e-10}.get(inputs[0].dtype, 0)
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=near, atol=near, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [each for each in itertools.product(OF_ONE, [*TYPES, HALF]) if each not in ELSEWHERE],
)
def test_of_one_number(name: str, dtype: torch.dtype) -> None:
    agree(OF_ONE[name], numbers(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", OF_TWO)
def test_of_two_numbers(name: str, dtype: torch.dtype) -> None:
    x = numbers(dtype)
    agree(OF_TWO[name], x[:, None].repeat(1, len(x)), x.repeat(len(x), 1))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", OF_ROWS)
def test_of_rows(name: str, dtype: torch.dtype) -> None:
    """Each row has one special number among plain ones; two have several."""
    x = torch.tensor(SPECIAL, device="cuda", dtype=dtype)  # sums of the largest overflow in another order
    rows = torch.linspace(-1.5, 2, 64, device="cuda").to(dtype).repeat(len(x) + 2, 1)
    rows[: len(x), 5] = x
    rows[-2, : len(x)] = x
    rows[-1, 3:40:5] = INF
    agree(OF_ROWS[name], rows)


WHOLE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add, "mul": torch.mul, "abs": lambda x, y: x.abs() - y, "neg": lambda x, y: -x,
    "floor_divide": lambda x, y: x // (y | 1), "remainder": lambda x, y: x % (y | 1),
    "fmod": lambda x, y: torch.fmod(x, y | 1), "shifted": lambda x, y: x << (y & 7),
    "shifted_back": lambda x, y: x >> (y & 7), "maximum": torch.maximum, "power": lambda x, y: x ** (y & 5),
    "to_float": lambda x, y: x.float() / y, "divided": lambda x, y: x / (y | 1),
    "sign": lambda x, y: torch.sign(x) * y, "gcd": torch.gcd, "sum": lambda x, y: (x * y).sum(-1),
    "largest": lambda x, y: torch.maximum(x, y).amax(-1), "cumsum": lambda x, y: (x + y).cumsum(-1),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers(name: str, dtype: torch.dtype) -> None:
    ends = torch.iinfo(dtype)
    x = torch.tensor(
        [ends.min, ends.min + 1, 0, 1, 2, 3, 7, 100, ends.max - 1, ends.max], device="cuda", dtype=dtype
    )
    a, b = x[:, None].repeat(1, len(x)), x.repeat(len(x), 1)
    torch._dynamo.reset()
    got = nbcompile.compile(WHOLE[name], options={"cache": False})(a, b)
    torch.testing.assert_close(got, WHOLE[name](a, b), equal_nan=True)


def test_doubles_beside_a_constant() -> None:
    """Between 0.1 and the float32 next to it."""
    x = torch.tensor([0.1, 0.1 + 1e-10, 0.1 - 1e-10, 0.10000000149011612], device="cuda", dtype=torch.float64)
    function = lambda x: (x > 0.1, x == 0.1, x <= 0.1, x.clamp(max=0.1), torch.where(x < 0.1, 0.1, x))
    torch._dynamo.reset()
    for mine, theirs in zip(nbcompile.compile(function)(x), function(x), strict=True):
        assert torch.equal(mine, theirs)
