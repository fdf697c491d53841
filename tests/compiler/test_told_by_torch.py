"""What torch is told elsewhere and a compiled graph has to keep to: forward-mode AD, deterministic fills,
sizes that are to stay symbols, sizes on which nothing is guarded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental import _config as symbolic_config
from torch.nn import functional as F

import nbcompile


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("before", [False, True], ids=["first", "after_a_plain_call"])
def test_tangents_are_not_lost(before: bool) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return torch.softmax(x @ w, -1).sin()

    run = nbcompile.compile(function, options={"cache": False})
    given, along = ([torch.randn(3, 3) for _ in range(2)] for _ in range(2))
    if before:
        run(*given)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(*pair) for pair in zip(given, along, strict=True)]
        found, expected = (forward_ad.unpack_dual(each(*duals)) for each in (run, function))
        torch.testing.assert_close(found.primal, expected.primal)
        torch.testing.assert_close(found.tangent, expected.tangent)
    assert torch.equal(run(*given), run(*given)) and run.ran_compiled, run.eager_reason


def test_what_is_empty_is_filled_as_torch_is_told_to() -> None:
    def function(x: Tensor) -> list[Tensor]:
        kinds = (torch.float32, torch.int64, torch.uint8, torch.bool, torch.bfloat16)
        return [torch.empty(3) + x, torch.empty_like(x), *(x.new_empty(2, dtype=kind) for kind in kinds)]

    x = torch.ones(3)
    torch.use_deterministic_algorithms(True)
    found = nbcompile.compile(function, options={"cache": False})(x)
    for got, expected in zip(found, function(x), strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True)


MARKED = {
    "cat": lambda x, n: torch.cat([x, x[:n]]),
    "pad": lambda x, n: F.pad(x, (n % 3, 0)),
}


@pytest.mark.parametrize("name", MARKED)
def test_sizes_that_are_marked_stay_symbols(name: str) -> None:
    function = MARKED[name]
    run = torch.compile(function, backend="nbcompile", dynamic=True, options={"cache": False})
    for rows in (6, 7, 5):
        x = torch.randn(rows, 4)
        torch._dynamo.mark_dynamic(x, 0)
        assert torch.equal(run(x, 3), function(x, 3))


def _zeroed(x: Tensor, n: int) -> Tensor:
    y = x.clone()
    y[n:].zero_()
    return y


def _added(x: Tensor, n: int) -> Tensor:
    y = x.clone()
    y[n:].add_(1)
    return y


@pytest.mark.parametrize("function", [_zeroed, _added, lambda x, n: x[n:] * 2])
def test_a_slice_on_which_nothing_is_guarded(function: Callable[[Tensor, int], Tensor]) -> None:
    with symbolic_config.patch(backed_size_oblivious=True):
        run = torch.compile(function, backend="nbcompile", dynamic=True, options={"cache": False})
        for rows, n in ((1, 2), (6, 3), (4, 4), (3, 5)):
            x = torch.randn(rows, 4)
            assert torch.equal(run(x, n), function(x, n))
