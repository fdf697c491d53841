"""Integers whose range is known are computed in int32, with the results of int64; others are left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nbcompile.compiler.kernel_ir.integer_ranges import Ranges
from nbcompile.compiler.loop_ir.index import Axis, index
from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton_running import generated, run_interpreted, small_chip

BIG = 2**31


def ours(fn: Any, *inputs: torch.Tensor) -> str:
    """The kernels of ``fn``, whose results are eager's exactly."""
    graph = aten_of(fn, *inputs)
    _, source = generated(graph)
    expected = fn(*inputs)
    for got, wanted in zip(run_interpreted(source, graph, inputs), expected, strict=True):
        assert torch.equal(got, wanted) and got.dtype == wanted.dtype
    return source.source


def small(x):
    at = torch.arange(70)
    far = (63 - (at - 7).abs()).clamp(0, 50) * 3
    return x + far, far // 4, far % 5, torch.where(far > 20, far, at), (far - 9).float(), -far & 7


def large(x):
    at = torch.arange(70)
    return at * (BIG // 64), (at + BIG - 30), (at * 1000) * (at * 1000), (at - BIG) // 2, x + at * BIG


def negative(x):
    at = torch.arange(-30, 40)
    return (
        at // 7,
        at % 7,
        torch.fmod(at, 7),
        torch.div(at, 7, rounding_mode="trunc"),
        at.sign() + x,
        at.abs(),
    )


def cast(x):
    at = torch.arange(70)
    return (
        (at * 3 - 5).to(torch.int32),
        (at * 3 - 5).to(torch.int8),
        (at > 3).to(torch.int64) + x,
        (at - 1).bool(),
    )


@pytest.mark.parametrize("fn", [small, large, negative, cast])
@pytest.mark.parametrize("limit", [2, BIG])
def test_results_are_those_of_int64(fn, limit):
    with small_chip(INT32_LIMIT=limit):
        ours(fn, torch.randint(-BIG, BIG, (70,)))


def test_nothing_is_int64_but_what_is_stored():
    text = ours(lambda x: (x + ((63 - (torch.arange(70) - 7).abs()).abs() * 2).float(),), torch.randn(70))
    assert "int64" not in text


def test_what_may_be_larger_stays_int64():
    assert "int64" in ours(lambda x: (x + (torch.arange(70) * (BIG // 64)).float(),), torch.randn(70))


def test_tests_that_always_hold_are_left_out():
    def fn(x):
        at = torch.arange(70)
        return (torch.where(at < 70, x, x * 2), torch.where(at < 0, x * 2, x), torch.where(at < 9, x * 2, x))

    text = ours(fn, torch.randn(70))
    assert text.count("tl.where") == 1


def test_a_position_that_cannot_be_outside_is_not_checked():
    inside = ours(lambda x: (x[(torch.arange(64) - 60).abs()],), torch.randn(61))
    assert ">=" not in inside
    unknown = ours(lambda x, at: (x[at],), torch.randn(61), torch.randint(61, (64,)))
    assert ">= 0" in unknown


def test_ranges_of_indices():
    i, j = Axis("i", 10), Axis("j", 4)
    ranges = Ranges()
    assert ranges.place(index(i) * 3 - index(j) + 2) == (-1, 29)
    assert ranges.place((index(i) + 5) // index(4)) == (1, 3)
    assert ranges.place(index(i) * index(j)) == (0, 27)
