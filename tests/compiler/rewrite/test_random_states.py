"""Draws: those that nothing reads, and those that backward repeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor


def dropped(x: Tensor) -> Tensor:
    F.dropout(x)
    return x * 2


def many(x: Tensor) -> Tensor:
    torch.rand(3)
    torch.rand_like(x)
    x.detach().clone().bernoulli_()
    return F.dropout(x).sin() * torch.randn(8)


def block(x: Tensor) -> Tensor:
    return F.dropout((x @ x).sin(), 0.5).cos()


def noisy(x: Tensor) -> Tensor:
    return x * torch.rand_like(x) + torch.randn(8) * x.sin()


def checkpointed(x: Tensor) -> Tensor:
    y = checkpoint(block, x, use_reentrant=False)
    y = y + torch.rand(8)
    return checkpoint(noisy, y, use_reentrant=False)


def leaking(x: Tensor) -> Tensor:
    return F.rrelu((x @ x).sin(), 0.1, 0.3, training=True).cos()


def checkpointed_pair(x: Tensor) -> Tensor:
    """A draw that gives two tensors: the result, and what each element was scaled by."""
    return checkpoint(leaking, x, use_reentrant=False) * 2  # type: ignore[no-any-return]


@few(3)
@pytest.mark.parametrize("function", [dropped, many, checkpointed, checkpointed_pair])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_numbers_and_generator_are_eagers(
    function: Callable[[Tensor], Tensor], grad: bool, dynamic: bool
) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False}, dynamic=dynamic)
    found, expected = (_twice(each, grad) for each in (run, function))
    torch.testing.assert_close(found, expected)
    assert run.ran_compiled and not run.recorder.ran_eagerly, run.eager_reason


def _twice(function: Any, grad: bool) -> list[Tensor]:
    torch.manual_seed(0)
    x = torch.randn(8, 8, requires_grad=grad)
    made = []
    for _ in range(2):
        made.append(function(x))
        if grad:
            made[-1].sum().backward()
    return [*made, x, *([x.grad] if x.grad is not None else []), torch.rand(1)]


def test_the_record_says_what_the_call_is() -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(checkpointed, options={"cache": False})
    run(torch.randn(8, 8, requires_grad=True)).sum().backward()
    calls = {node.op: node.text for node in run.compilation.fused_nodes if "rng_state" in node.op}
    assert set(calls) == {"run_and_save_rng_state", "run_with_rng_state"}
