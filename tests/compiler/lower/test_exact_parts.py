"""Sizes that the guards of a graph say are multiples of a number."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sympy import Integer, Symbol
from torch import Tensor
from torch.utils._sympy.functions import FloorDiv, Max, Mod

import nbcompile
from nbcompile.compiler.loop_ir.computed_sizes import ExactPart, told_by
from nbcompile.compiler.loop_ir.index import Size, index
from nbcompile.compiler.lower.sizes import _divisor, _multiples

S, T, U = (Symbol(name, integer=True, positive=True) for name in ("s0", "s1", "s2"))
HALF = FloorDiv(S + 1, 2)


@pytest.mark.parametrize(
    ("apart", "divisor"),
    [
        (Mod(S, 8), 8),
        (S - 8 * FloorDiv(S, 8), 8),
        (S - 2 * HALF, 2),  # equal halves
        (S - 3 * FloorDiv(S + 2, 3), 3),
        (Mod(S, 6) - 3, 3),  # 3 and 9: of both the greatest that divides them
        (Mod(S, 4) - 1, 1),
        (FloorDiv(S, 4) - 3, 1),  # 12 to 15
        (S - 12, 1),  # one number, which is no symbol's for long
        (S - 2 * FloorDiv(S, 3), 1),
        (FloorDiv(FloorDiv(S, 2) * 2, 4) * 4 - S, 4),
        (S * S - Mod(S, 2), 1),  # no line
        (Max(1, HALF) - HALF, 1),
        (FloorDiv(S, HALF) - 2, 1),
        (Mod(S, 4096), 1),  # more sizes than are tried
        (Mod(S - 20, 8), 4),
        (Mod(20 - S, 8), 1),  # of which torch takes no remainder
    ],
)  # fmt: skip
def test_what_a_guard_says_a_size_is_a_multiple_of(apart: Any, divisor: int) -> None:
    assert _divisor(apart, S) == divisor
    if divisor > 1:  # no size up to here says otherwise
        held = [n for n in range(20, 400) if apart.xreplace({S: Integer(n)}) == 0]
        assert held and all(n % divisor == 0 for n in held)


@pytest.mark.parametrize(
    ("left", "right", "multiples"),
    [
        (S * T, 16 * FloorDiv(S, 4) * FloorDiv(T, 4), {S: 4, T: 4}),
        (S**2 * T * U, 8 * T * U * FloorDiv(S, 2) * FloorDiv(S, 4), {}),  # 6: 36 = 8 * 3 * 1 has none
        (S**2 * T, 9 * FloorDiv(S, 3) ** 2 * T, {S: 3}),
        (5 * S * T, 10 * FloorDiv(S, 2) * T, {S: 2}),
        (S * T, 8 * FloorDiv(S, 4) * FloorDiv(T, 4), {}),  # half as much
        (S * FloorDiv(T, 2), T * FloorDiv(S, 2), {}),  # in the same part
        (S * U, 4 * FloorDiv(S, 4) * T, {}),
        (S * T, 4 * FloorDiv(S * T, 4), {}),
    ],
)
def test_what_a_guard_of_several_says_they_are_multiples_of(
    left: Any, right: Any, multiples: dict[Any, int]
) -> None:
    env = SimpleNamespace(bound_sympy=lambda symbol: SimpleNamespace(lower=2))
    assert dict(_multiples(left, right, env)) == multiples
    maybe_empty = SimpleNamespace(bound_sympy=lambda symbol: SimpleNamespace(lower=0))
    assert not _multiples(left, right, maybe_empty)


@pytest.mark.parametrize(
    ("extent", "size"),
    [("part", 24), ("part * 8", 24), ("part * 4", 24), ("part * 8 + 5", 24), ("part * 3 - 1", 24)],
)
def test_an_extent_tells_the_size_whose_part_it_has(extent: str, size: int) -> None:
    part = ExactPart(Size("s0", 16), 8)
    place = eval(extent, {"part": index(part)})
    told = told_by(place)
    assert told is not None and told.size.text == "s0"
    number = int(place.evaluate(lambda atom: size // 8))
    assert told.value(number) == size
    assert eval(told.text(str(number))) == size


def halves(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


def thirds(x: Tensor, w: Tensor) -> Tensor:
    q, k, v = (x @ w).chunk(3, -1)
    return q * k + v


def heads(x: Tensor) -> Tensor:
    return x.view(*x.shape[:2], 4, -1).transpose(1, 2).softmax(-1)


def groups(x: Tensor) -> Tensor:
    return F.group_norm(x, 4).relu()


def patches(x: Tensor) -> Tensor:
    b, c, h, w = x.shape
    return x.view(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 1, 3, 5).reshape(b, -1, 16 * c) * 2


r = torch.randn


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (halves, [(r(3, 10),), (r(5, 24),), (r(2, 6),)]),
        (thirds, [(r(2, 3, 4), r(4, 12)), (r(3, 2, 5), r(5, 21))]),
        (heads, [(r(2, 3, 8),), (r(3, 5, 20),)]),
        (groups, [(r(2, 8, 3, 5),), (r(3, 12, 2, 7),)]),
        (patches, [(r(2, 3, 8, 12),), (r(4, 2, 16, 20),)]),
    ],
)
def test_one_compile_serves_all_such_sizes(
    fn: Callable[..., Tensor], inputs: Sequence[tuple[Tensor, ...]], interpret: bool
) -> None:
    options = {"cache": False, "verify": True, "interpret": interpret}
    run = nbcompile.compile(fn, options=options, dynamic=True)
    for given in inputs:
        ours, eager = ([item.clone().requires_grad_() for item in given] for _ in range(2))
        got, expected = run(*ours), fn(*eager)
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got, expected)
        weights = torch.randn_like(expected)
        (got * weights).sum().backward()
        (expected * weights).sum().backward()
        for one, other in zip(ours, eager, strict=True):
            torch.testing.assert_close(one.grad, other.grad)
    language = "triton" if interpret else "c"
    assert run.ran_compiled, run.eager_reason
    assert not run.compilation.recompiles, run.compilation.recompiles
    stages = [graph.stage for graph in run.compilation.graphs]
    assert stages.count("forward") == stages.count("backward") == 1
    sources = [kernel.sources[language] for kernel in run.compilation.kernels]
    assert any(re.search(r"s\d+_over_\d is \w+\.shape\[\d\] // \d", text) for text in sources)
