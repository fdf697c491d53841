"""Dropout that is turned off is its input, and what is written to it is written to that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import nbcompile
from tests.nightly import few


def added(x: Tensor) -> Tensor:
    h = F.dropout(x, 0.5, training=False)
    h += 1
    return h * x


def module(x: Tensor) -> Tensor:
    h = DROP(x)
    h.mul_(2)
    return h + x


def shown(x: Tensor) -> Tensor:
    F.alpha_dropout(x, 0.5, training=False)[0] = 7
    return x.sin()


def channels(x: Tensor) -> Tensor:
    h = F.dropout1d(x, 0.5, False)
    h.relu_()
    return h - x


def never(x: Tensor) -> Tensor:
    h = F.dropout(x, 0.0, training=True)
    h += 1
    return h * x


def by_name(x: Tensor) -> Tensor:
    h = F.dropout(training=False, input=x, p=0.5)
    h += 1
    return h * x


def told_to(x: Tensor) -> Tensor:
    h = F.dropout(x, 0.5, training=False)
    F.relu(h, inplace=True)
    return h + x


def by_place(x: Tensor) -> Tensor:
    return F.relu(F.dropout(x, 0.5, False), True) + x


def given_as_out(x: Tensor) -> Tensor:
    h = F.dropout(x, 0.5, training=False)
    torch.abs(x, out=h)
    return h * x


def of_many(x: Tensor) -> Tensor:
    torch._foreach_add_([F.dropout(x, 0.5, training=False)], 1.0)
    return x * 2


DROP = torch.nn.Dropout(0.3).eval()
WRITERS = [added, module, shown, channels, never, by_name, told_to, by_place, given_as_out, of_many]


@few(4)
@pytest.mark.parametrize("function", WRITERS)
def test_the_argument_is_written_to(function: Callable[[Tensor], Tensor]) -> None:
    torch._dynamo.reset()
    one, other = (torch.linspace(-2, 2, 12).reshape(3, 4) for _ in range(2))
    run = nbcompile.compile(function, options={"cache": False})
    torch.testing.assert_close(run(one), function(other))
    assert torch.equal(one, other) and run.ran_compiled, run.eager_reason


def test_one_that_is_on_draws() -> None:
    def function(x: Tensor) -> Tensor:
        h = F.dropout(x, 0.5, training=True)
        h += 1
        return h * x

    x = torch.ones(400)
    run = nbcompile.compile(function, options={"cache": False})
    found = run(x)
    assert set(found.tolist()) == {1.0, 3.0} and torch.equal(x, torch.ones(400))


def itself(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    x += w
    return F.dropout(x, 0.5, training=False), x.erf()


def twice(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = x * w
    z = F.dropout(y, 0.5, training=False)
    y.add_(1)
    return y, z, F.dropout(z, 0.0)


@few(2)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("function", [itself, twice])
def test_results_are_the_same_objects(function: Callable[..., tuple[Tensor, ...]], grad: bool) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    told = []
    for each in (run, function):
        x, w = torch.linspace(-2, 2, 12).reshape(3, 4), torch.tensor(2.0, requires_grad=grad)
        results = each(x, w)
        same = [one is other for one in (x, *results) for other in results]
        gradient = torch.autograd.grad(sum(item.sin().sum() for item in results), w) if grad else ()
        told.append((results, x, gradient, same))
    torch.testing.assert_close(told[0][:3], told[1][:3])
    assert told[0][3] == told[1][3] and run.ran_compiled, run.eager_reason


def merged(x: Tensor, part: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
    shown = F.dropout(rest, 0.5, training=False)
    x.mul_(2)
    return part.sin(), shown


def test_an_input_that_is_taken_as_one_with_others() -> None:
    """Another input was returned in its place (fuzzer's seed 15212161)."""
    torch._dynamo.reset()
    run = nbcompile.compile(merged, options={"cache": False})
    one, other = (torch.arange(1.0, 9.0).reshape(4, 2) for _ in range(2))
    found, expected = (f(x, x[1:], x.flatten()[1:]) for f, x in ((run, one), (merged, other)))
    torch.testing.assert_close((found, one), (expected, other))


def test_what_is_written_after_a_graph_break() -> None:
    def function(x: Tensor) -> Tensor:
        h = F.dropout(x, 0.5, training=False)
        torch._dynamo.graph_break()
        h += 1
        return h.sin()

    torch._dynamo.reset()
    one, other = torch.ones(3), torch.ones(3)
    run = nbcompile.compile(function, options={"cache": False})
    torch.testing.assert_close((run(one), one), (function(other), other))
