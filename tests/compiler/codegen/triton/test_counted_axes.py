"""Axes told apart by division, and indices that count them as one."""

from __future__ import annotations

import pytest

from nbcompile.compiler.codegen.triton.counted_axes import (
    counted_dims,
    divisions,
    is_symbolic,
    run_of,
    unread_lines,
    with_joined,
    with_runs,
)
from nbcompile.compiler.codegen.triton.dims import Dim
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, Size, floordiv, index

N, M, K = Size("s0", 5), Size("s1", 6), Size("s2", 7)
A, B, C = Axis("i", index(N)), Axis("j", index(M)), Axis("l", index(K))
DIM = Dim((A, B, C), "point", "XBLOCK", 0)


def test_only_what_is_divided_by_is_asked_for_symbols() -> None:
    known = Axis("k", index(4))
    assert is_symbolic(DIM) and is_symbolic(Dim((known, C), "x", "XBLOCK", 0))
    assert not is_symbolic(Dim((A, known), "x", "XBLOCK", 0)) and not is_symbolic(Dim((A,), "x", "XBLOCK", 0))


def test_each_axis_costs_one_division_from_the_last_to_the_first() -> None:
    names = iter(("rest", "rest_2"))

    def size(extent: IndexExpr) -> str:
        return next(iter(extent.atoms())).text

    assert list(divisions(DIM, ["i", "j", "l"], size, lambda hint: next(names))) == [
        "l = point % s2", "rest = point // s2", "j = rest % s1", "i = rest // s1",
    ]  # fmt: skip


def test_neighbours_in_memory_are_one_axis() -> None:
    whole = index(A) * M * K + index(B) * K + C
    assert with_runs(whole, [DIM], run_of) == index(run_of(DIM, 0, 2))
    assert with_runs(whole + 3, [DIM], run_of) == index(run_of(DIM, 0, 2)) + 3
    assert with_runs(index(A) * M + B, [DIM], run_of) == index(run_of(DIM, 0, 1))
    assert with_runs(index(A) * K * N + index(B) * K + C, [DIM], run_of) == (
        index(A) * K * N + run_of(DIM, 1, 2)
    )


def test_what_lies_otherwise_is_left() -> None:
    for place in (
        index(B) * N * K + index(A) * K + C,  # another order
        index(A) * M * K + C,  # one is not there
        index(A) * (index(M) + 1) * K + index(B) * (index(K) + 1) + C,  # rows with a gap
        floordiv(index(A) * M + B, index(2)) + C,
        index(7),
    ):
        assert with_runs(place, [DIM], run_of) == place


def test_a_run_has_no_part_that_means_something_else_at_present() -> None:
    place = index(A) * M + B
    assert with_runs(place, [DIM], lambda dim, first, last: None) == place


def test_dimensions_are_those_that_the_index_is_made_of() -> None:
    counted = dict.fromkeys(DIM.axes, (DIM, ["i", "j", "l"]))
    assert counted_dims(index(B) * 2, counted) == [DIM]
    assert counted_dims(index(Axis("other", index(3))), counted) == []


D, E, F = Axis("i", 2), Axis("j", 7), Axis("k", 4)


@pytest.mark.parametrize(
    ("steps", "runs"),
    [({D: 28, E: 4, F: 1}, [(0, 2)]), ({D: 84, E: 12, F: 3}, [(0, 2)]), ({D: 7, E: 1, F: 14}, [(0, 1)]),
     ({D: 1, E: 4, F: 1}, [(1, 2)]), ({E: 4, F: 1}, [(1, 2)]), ({D: 28, F: 1}, []),
     ({D: -28, E: -4, F: -1}, [(0, 2)]),
     ({D: 28, E: 4, F: -1}, [(0, 1)]), ({}, [])],
    ids=["all", "every third", "the first two", "the last two", "without the first", "with a gap",
         "backwards", "the last backwards", "none"],
)  # fmt: skip
def test_axes_that_an_index_counts_as_one(steps: dict[Axis, int], runs: list[tuple[int, int]]) -> None:
    found: list[tuple[int, int]] = []

    def noted(dim: Dim, first: int, last: int) -> Axis | None:
        found.append((first, last))
        return None

    place = sum((index(axis) * step for axis, step in steps.items()), index(0))
    dim = Dim((D, E, F), "point", "XBLOCK", 0)
    assert with_runs(place, [dim], noted) == place and found == runs
    half = place + floordiv(index(F), index(2))  # a quotient of an axis changes nothing for the rest
    assert with_runs(half, [dim], noted) == half and found == 2 * runs


def test_what_only_unread_lines_read_is_unread_too() -> None:
    text = ["    l = point % s2", "    rest = point // s2", "    j = rest % s1", "    i = rest // s1", "f(l)"]
    declaring = {line.strip() for line in text[:4]}
    assert unread_lines(text, declaring) == {"rest = point // s2", "j = rest % s1", "i = rest // s1"}
    assert unread_lines([*text, "f(i)"], declaring) == {"j = rest % s1"}
    assert unread_lines([*text, "f(i, j)"], declaring) == set()


def test_two_axes_may_be_one_that_is_given() -> None:
    both = Axis("both", index(30))
    outer, inner = Axis("a", index(5)), Axis("b", index(6))
    assert with_joined(index(outer) * 12 + index(inner) * 2, outer, inner, both) == index(both) * 2
    other = index(outer) * 7 + inner
    assert with_joined(other, outer, inner, both) == other
