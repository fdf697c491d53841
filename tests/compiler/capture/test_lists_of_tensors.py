"""Operators of lists of tensors are operators of each place: the numbers of eager, and one loop for each."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.compiler.capture.lists_of_tensors import by_place
from tests.nightly import few

Tensor = torch.Tensor
TARGETS = sorted(by_place(), key=str)


def tensors(seed: int) -> list[Tensor]:
    made = [torch.rand(size, generator=torch.manual_seed(seed)) + 0.1 for size in ((3, 5), (), (0, 2), (7,))]
    made[0][1, 2], made[3][2] = math.nan, math.inf
    made.append(torch.rand(4, 6, generator=torch.manual_seed(seed + 1)).mT.bfloat16())
    return made


def arguments(target: Any) -> list[Any]:
    """What the operator takes, by its schema."""
    numbers = {"Scalar[]": [0.5, 2.0, 1.5, 3.0, 0.25], "Scalar": 1.5}
    given: list[Any] = []
    for place, each in enumerate(target._schema.arguments):
        kind = str(each.type)
        if kind == "List[Tensor]":
            given.append(tensors(10 * place))
        elif kind == "Tensor":
            given.append(torch.tensor(1.5))
        elif kind in ("List[number]", "number") and each.name != "alpha":
            given.append(2 if each.name == "ord" else numbers["Scalar[]" if "List" in kind else "Scalar"])
    return given


@few(12)
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_each_operator_of_lists(target: Any) -> None:
    given = arguments(target)
    if "max.default" in str(target):
        given[0].pop(2)  # an empty tensor has no greatest
    torch._dynamo.reset()
    run = nbcompile.compile(lambda *given: target(*given), options={"cache": False})
    found, expected = run(*given), target(*given)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)
    assert run.ran_compiled, run.eager_reason
    assert not any("foreach" in call.name for call in run.compilation.library_calls)


def test_a_step_of_an_optimizer_is_a_loop_for_each_parameter() -> None:
    def step(params: list[Tensor], grads: list[Tensor], kept: list[Tensor]) -> None:
        torch._foreach_mul_(kept, 0.9)
        torch._foreach_add_(kept, grads, alpha=0.1)
        torch._foreach_addcdiv_(params, grads, torch._foreach_add(torch._foreach_abs(kept), 1e-3), -0.1)
        norms = torch._foreach_norm(grads)
        torch._foreach_div_(params, torch._foreach_clamp_min(norms, 1.0))

    torch._dynamo.reset()
    run = nbcompile.compile(step, options={"cache": False})
    both = []
    for function in (run, step):
        params, grads, kept = (
            [torch.rand(n, 3, generator=torch.manual_seed(n)) for n in (5, 64)] for _ in "abc"
        )
        function(params, grads, kept)
        both.append((params, grads, kept))
    torch.testing.assert_close(*both)
    assert len(run.compilation.kernels) <= 4 and not run.compilation.library_calls
