"""Expressions that read one value many times: their text must not grow by a factor at each step."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import nbcompile

Tensor = torch.Tensor


def largest(*items: Tensor) -> Tensor:
    made = items[0]
    for item in items[1:]:
        made = torch.maximum(made, item).abs()
    return made


def test_thirty_maxima_of_integers_in_a_row() -> None:
    """``a > b ? a : b`` of thirty such would be a billion texts of ``a``."""
    torch._dynamo.reset()
    given = [torch.randint(-9, 9, (7,)) for _ in range(30)]
    run = nbcompile.compile(largest, options={"cache": False})
    assert torch.equal(run(*given), largest(*given))
    assert run.ran_compiled, run.eager_reason
    (made,) = run.compilation.kernels
    assert len(made.sources["c"]) < 10_000


@pytest.mark.nightly
def test_the_largest_integer_of_each_window() -> None:
    torch._dynamo.reset()
    x = torch.randint(-100, 100, (1, 2, 5, 6, 7))
    program = lambda x: F.max_pool3d(x, 3, 2, 1, return_indices=True)
    run = nbcompile.compile(program, options={"cache": False})
    assert all(map(torch.equal, run(x), program(x)))
    assert run.ran_compiled, run.eager_reason
