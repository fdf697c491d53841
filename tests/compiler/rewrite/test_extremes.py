"""The gradient of an extreme goes where it was found, whatever backward computes anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor


def smallest_of_pools(x: Tensor) -> Tensor:
    pooled = torch.erf(F.avg_pool1d(x, 3, stride=2, padding=1, ceil_mode=True))
    return torch.amin(pooled, 1, True).sum(0, True) ** -2


CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "amin": smallest_of_pools,
    "amax": lambda x: torch.erf(x * 0.3 + 0.1).sin().amax((0, 2)),
    "max": lambda x: torch.erf(x * 0.3 + 0.1).tanh().max(),
    "norm": lambda x: torch.linalg.vector_norm(torch.erf(x * 0.3) + 0.01, float("inf"), (0, 1)),
}

THREES = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1])


def logs(x: Tensor) -> Tensor:
    """In backward the sum is stored and so rounded to a half type, in forward not."""
    return (x.abs() + 1).log()


HALVES: dict[str, Callable[[Tensor], Tensor]] = {  # of 17
    "a slice": lambda x: logs(x).narrow(0, 6, 11).amin(),
    "every third": lambda x: logs(x)[::3].amin(),
    "a part": lambda x: logs(x).split([6, 11])[1].amax(),
    "windows": lambda x: logs(x).unfold(0, 3, 2).amin(1),
    "a diagonal": lambda x: logs(x[:16].view(4, 4)).diagonal().amin(),
    "median": lambda x: logs(x)[6:].median(),
    "nanmedian": lambda x: logs(x)[6:].nanmedian(),
    "scatter_reduce": lambda x: logs(x)[:3].scatter_reduce(0, THREES, logs(x)[6:], "amin"),
    "index_reduce": lambda x: x.new_zeros(3).index_reduce(0, THREES, logs(x)[6:], "amax", include_self=False),
    "dist": lambda x: torch.dist(logs(x)[6:], x[6:] * 0.1, float("inf")),
}


@few(4)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", HALVES)
def test_some_element_is_the_extreme_of_a_half_type(name: str, dtype: torch.dtype) -> None:
    function = HALVES[name]
    compiled = nbcompile.compile(lambda x: function(x).float(), options={"cache": False})
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(17).to(dtype).requires_grad_()
        wanted = torch.autograd.grad(function(x).float().sum(), x)
        torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x), wanted, rtol=0.02, atol=1e-3)
    assert compiled.ran_compiled, compiled.eager_reason


@few(2)
@pytest.mark.parametrize("name", CASES)
def test_some_element_is_the_extreme(name: str) -> None:
    function = CASES[name]
    compiled = nbcompile.compile(function, options={"cache": False, "verify": True})
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(12, 3, 8)[3:6]
        found = []
        for run in (function, compiled):
            given = x.clone().requires_grad_()
            run(given).sum().backward()
            found.append(given.grad)
        torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)


def test_an_extreme_of_a_view_of_a_half_type() -> None:
    """What is viewed was computed anew in backward, and rounded at other places: the gradient was NaN
    (the fuzzer's seed 17202725)."""

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        unit = F.normalize(x - y, dim=2)
        seen = (unit.abs() + 1).log().view(12, 2, 24, 8)
        return torch.softmax(torch.nanmean(seen, 1), -3), unit, seen.amax((0, 3, 1, 2))

    x, y = (
        torch.randn(size, generator=torch.manual_seed(len(size))).bfloat16().requires_grad_()
        for size in ((24, 1, 24, 1), (24, 8))
    )
    torch._dynamo.reset()
    *_, largest = nbcompile.compile(function, options={"cache": False})(x, y)
    (found,) = torch.autograd.grad(largest, x)
    (expected,) = torch.autograd.grad(function(x, y)[-1], x)
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1)
