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
