"""Which guards a range of one axis decides, and where a loop is cut so that all are decided."""

from __future__ import annotations

import pytest

from nbcompile.compiler.kernel_ir.guard_ranges import MOST_SEGMENTS, decide, segments
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, Size, index

ROW, COL = Axis("i", index(10)), Axis("j", index(4))


def between(value: IndexExpr, low: int, high: int):
    return ((value, index(low), index(high)),)


@pytest.mark.parametrize(
    ("piece", "decided"), [((0, 2), False), ((2, 5), True), ((1, 5), None), ((5, 10), False), ((0, 10), None)]
)
def test_a_range_decides_a_guard_that_it_lies_within_or_apart_from(piece, decided) -> None:
    assert decide(between(index(ROW), 2, 5), {ROW: piece}) is decided


def test_what_always_holds_needs_no_range() -> None:
    assert decide(between(index(ROW), 0, 10), {}) is True
    assert decide(between(index(ROW) + index(COL), 0, 13), {}) is True
    assert decide(between(index(ROW) + index(COL), 0, 12), {}) is None


def test_one_bound_that_fails_is_enough() -> None:
    assert decide(between(index(ROW), 0, 4) + between(index(COL), 7, 9), {}) is False


def test_a_loop_is_cut_at_both_ends_of_a_guard() -> None:
    assert segments(ROW, [between(index(ROW), 2, 5)]) == [(0, 2), (2, 5), (5, 10)]
    assert segments(ROW, [between(9 - index(ROW), 0, 3)]) == [(0, 7), (7, 10)], "counted from the end"
    assert segments(ROW, [between(index(ROW) - 20, 0, 3)]) == [None], "nothing to cut"


def test_a_loop_is_left_whole_where_nothing_is_known_or_too_much() -> None:
    symbolic = Axis("n", index(Size("s0", 8)))
    assert segments(symbolic, [between(index(symbolic), 2, 5)]) == [None]
    assert segments(ROW, [between(index(ROW) * index(ROW), 2, 5)]) == [None], "no straight line"
    many = Axis("m", index(100))
    assert segments(many, [between(index(many), n, 100) for n in range(1, MOST_SEGMENTS + 1)]) == [None]


def test_a_bound_on_several_axes_cuts_where_it_fails_wherever_the_others_are() -> None:
    assert segments(ROW, [between(index(ROW) * 2, 2, 5)]) == [(0, 1), (1, 3), (3, 10)]
    parts = [between(index(ROW) * 20 + index(COL), 20 * n, 20 * n + 20) for n in range(3)]
    assert segments(ROW, parts) == [(0, 1), (1, 2), (2, 3), (3, 10)], "the parts of a concatenation"
    assert segments(ROW, [between(30 - index(ROW) * 10 - index(COL), 0, 99)]) == [None], "cut along no row"
    edge = [between(index(ROW) * 20 + index(COL) - 20, 0, 1)]
    assert segments(COL, edge) == [None]
    assert segments(COL, edge, {ROW: (1, 2)}) == [(0, 1), (1, 4)], "in the second row alone"
