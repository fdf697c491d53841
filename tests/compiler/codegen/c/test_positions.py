"""Where the extreme of a row is: found in a second walk, in vectors."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import nbcompile
from nbcompile.compiler.loop_ir.expr import op
from nbcompile.compiler.loop_ir.index import Axis, index
from tests.compiler.codegen.c.by_hand import buffer, group, lines, loop, read
from tests.nightly import few

Tensor = torch.Tensor
ROW = Axis("i", index(6))


def largest(columns: int, name: str = "") -> list[str]:
    column = Axis("j", index(columns))
    x = buffer("x", 6, columns)
    value = op(name, read(x, ROW, column)) if name else read(x, ROW, column)
    at = loop(buffer("at", 6, dtype=torch.int64), (ROW, column), value, reduced=(column,), reduction="argmax")
    return lines(group(at, axes=(ROW, column), inner=(column,)), x)


def test_the_extreme_first_and_then_the_first_place_that_has_it() -> None:
    found = largest(40)
    walks = [line for line in found if line.startswith("#pragma omp simd")]
    assert len(walks) == 2 and "reduction(max:at)" in walks[0] and "reduction(min:at_first)" in walks[1]
    (second,) = [line for line in found if line.startswith("at_first =")]
    assert "at_nan ?" in second and "== at)" in second
    assert "const long at_at = at_first;" in found


@pytest.mark.parametrize(("columns", "name"), [(40, "exp"), (5, "")])
def test_one_walk_where_values_are_not_surely_the_same_again_or_few(columns: int, name: str) -> None:
    """A vector's exp may differ from a single number's in the last place."""
    assert not any("at_first" in line for line in largest(columns, name))


FUNCTIONS: list[Callable[[Tensor], object]] = [
    lambda x: x.argmax(1),
    lambda x: x.argmin(1),
    lambda x: x.argmax(),
    lambda x: x.max(1),
    lambda x: (x * 2 - 1).min(-1),
    lambda x: (x.flip(1).argmax(1), x.sum(1), x.amax(1)),
    lambda x: torch.cat([x, x * 2], 1).argmax(1),
    lambda x: x.to(torch.bfloat16).argmax(1),
    lambda x: x.to(torch.float16).argmin(1),
    lambda x: (x * 3).nan_to_num(0, 7, -7).to(torch.int32).argmax(1),
    lambda x: (x > 0).int().argmax(1),
]


@few(8)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("columns", [17, 64, 300])
def test_ties_and_numbers_that_are_none(function: Callable[[Tensor], object], columns: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(12, columns).mul(4).round() / 4
    x[1] = -math.inf
    x[2] = math.inf
    x[3, 5::3] = math.nan
    x[4, -1] = math.nan
    x[5] = 0.0
    x[5, ::2] = -0.0
    x[6, 3] = math.inf
    x[7, 2], x[7, 9] = math.inf, math.nan
    run = nbcompile.compile(function, options={"cache": False})
    torch.testing.assert_close(run(x), function(x), equal_nan=True)


def test_what_the_walk_overwrites_is_not_walked_again() -> None:
    def function(x: Tensor) -> Tensor:
        at = (x + 1).argmax(1)
        x.mul_(-1)
        return at

    x = torch.randn(7, 50)
    one, other = x.clone(), x.clone()
    run = nbcompile.compile(function, options={"cache": False})
    assert torch.equal(run(one), function(other)) and torch.equal(one, other)
