"""What is proved holds at every point, and what accesses rely on is proved."""

from __future__ import annotations

import random
import time

import pytest
from torch._subclasses.fake_tensor import FakeTensorMode

from nbcompile.compiler.loop_ir.index import Axis, FloorDiv, IndexExpr, Size, index
from nbcompile.compiler.loop_ir.proofs import (
    holds_everywhere,
    impossible,
    inside,
    outside,
    proves,
    unrounded,
    well_defined,
    within_cases,
)
from tests.compiler.loop_ir.test_index import Tree, built, domain, grown, meaning, points
from tests.nightly import few


@few(3)
@pytest.mark.parametrize("block", range(8))
def test_what_is_proved_holds(block: int) -> None:
    proved = 0
    for seed in range(block * 60, block * 60 + 60):
        rng = random.Random(seed)
        axes, sizes = domain(rng)
        goal: Tree = ("-", grown(rng, axes, sizes, 2), grown(rng, axes, sizes, 2))
        known: list[Tree] = [
            ("-", grown(rng, axes, sizes, 1), grown(rng, axes, sizes, 1))
            for _ in range(rng.choice([0, 1, 2]))
        ]
        facts = tuple(map(built, known))
        shown, empty = proves(built(goal), facts), impossible(facts)
        proved += shown
        for point in points(axes, sizes):
            if all(meaning(fact, point) >= 0 for fact in known):
                assert not empty, (seed, known, point)
                assert not shown or meaning(goal, point) >= 0, (seed, goal, known, point)
    assert proved > 5  # or nothing was tested


@pytest.mark.parametrize("block", range(4))
def test_looking_at_each_point_finds_just_what_holds(block: int) -> None:
    found = []
    for seed in range(block * 60, block * 60 + 60):
        rng = random.Random(seed)
        axes, _ = domain(rng)
        axes = tuple(axis for axis in axes if axis.extent.constant is not None)
        if not axes:
            continue
        goal: Tree = ("-", grown(rng, axes, (), 2), grown(rng, axes, (), 2))
        fact: Tree = ("-", grown(rng, axes, (), 1), grown(rng, axes, (), 1))
        holds = [meaning(goal, point) >= 0 for point in points(axes, ()) if meaning(fact, point) >= 0]
        related = built(fact).axes() & built(goal).axes() or built(fact).constant is not None
        shown = holds_everywhere(built(goal), (built(fact),))
        assert not shown or all(holds), (seed, goal, fact)
        if related and built(fact).constant is None:
            assert shown == all(holds), (seed, goal, fact)
        found.append(shown)
    assert 5 < sum(found) < len(found)


def test_points_are_looked_at_under_fake_tensors_too() -> None:
    i, j = index(Axis("i", 12)), index(Axis("j", 5))
    with FakeTensorMode():
        assert holds_everywhere(i // 3 * 5 - (i - i % 3) + 3 * j % 2, (i - 1,))
        assert not holds_everywhere(i - 2, (j - 1,))


def test_too_many_points_and_symbols_are_not_looked_at() -> None:
    wide = index(Axis("i", 1 << 21))
    assert not holds_everywhere(wide, ())
    assert not holds_everywhere(index(Axis("i", Size("s0", 7, 2))), ())
    assert holds_everywhere(index(Axis("i", 1 << 19)), (wide - 3,))


S, T = Size("s0", 7, 2), Size("s1", 7, 2)
s, t = index(S), index(T)
I_, J, K = Axis("i", S), Axis("j", 12), Axis("k", s * 12)
i, j, k = map(index, (I_, J, K))
HALF, FIFTH = s // 2, s // 5
SPLIT = s // HALF  # what a view of s as (s // 2, -1) has in each row


@pytest.mark.parametrize(
    ("goal", "facts"),
    [
        (s - 1 - i, ()),
        (s * 12 - 1 - (12 * i + j), ()),
        (s - 1 - k // 12, ()),
        (11 - k // s, ()),
        (s - 1 - k % s, ()),
        (i - 2, (i - 2,)),
        (j - 2, (2 * j - 3,)),
        (i + s - 3, (i - 3,)),
        (i - index(3) % s, (i - index(3) % s,)),
        (s - 1 - (i + s - index(3) % s), (index(3) % s - 1 - i,)),
        (t - 1 - i, (t - s,)),
        (s // 2 - 1 - j, (s // 2 - 1 - j,)),
        (s // 2 - 1, ()),
        ((s - 1) // 2 - i, (s - 1 - 2 * i,)),
        (t - 1 - (i + t - s), ()),
        (s - 1 - (SPLIT * index(Axis("p", HALF)) + index(Axis("q", SPLIT * t)) // t), ()),
        (s - 1 - (FIFTH * index(Axis("p", 5)) + index(Axis("q", FIFTH))), ()),
        (5 - i // (s // 6), (-(s % 6),)),
        (s // 3 - 1, (3 * (s // 3) * t - s * t,)),
        (t - 1 - (i + j), (t - s * 12, s - 2)),
        (s * t - 1 - (i * t + index(Axis("p", t))), ()),
        (index(-1), (s - t, t - s - 1)),
    ],
    ids=str,
)
def test_what_accesses_rely_on_is_proved(goal, facts):
    assert proves(goal, facts)


@pytest.mark.parametrize(
    ("goal", "facts"),
    [
        (s - 2 - i, ()),
        (i - 1, ()),
        (t - 1 - i, ()),
        (t - 1 - i, (s - t,)),
        (10 - k // s, ()),
        (s - 2 - k % s, ()),
        (j - 3, (2 * j - 3,)),
        (s // 2 - 2, ()),
        (index(Size("n", 3, None)), ()),
        (5 - i // (s // 6), ()),
        (s - 1 - (SPLIT * index(Axis("p", HALF)) + index(Axis("q", SPLIT * t + 1)) // t), ()),
        (s - 1 - ((FIFTH + 1) * index(Axis("p", 5)) + index(Axis("q", FIFTH))), ()),
        (s // 3 - 1, (s * t - 3 * (s // 3) * t,)),
        (index(-1), (s - t, t - s)),
    ],
    ids=str,
)
def test_what_may_fail_is_not(goal, facts):
    assert not proves(goal, facts)


def test_the_two_sides_of_a_guard():
    bounds = ((j, index(3), index(9)), (i, index(0), s))
    assert proves(j - 3, inside(bounds)) and proves(8 - j, inside(bounds))
    cases = within_cases([()], outside(bounds))
    assert len(cases) == 2  # i is always in its bounds: j is below 3, or 9 or more
    assert sorted(proves(2 - j, case) for case in cases) == [False, True]
    assert sorted(proves(j - 9, case) for case in cases) == [False, True]
    assert within_cases(cases, [(j - 3, 8 - j)]) == ()


def test_facts_whose_quotients_may_be_rounded_otherwise_are_left_out():
    below = IndexExpr({(FloorDiv(s - 5, index(2)),): 1})
    assert well_defined((below, s // t - 1, s - t)) == (s // t - 1, s - t)
    assert well_defined((below, s - 5)) == (below, s - 5)
    assert not proves(s - 5, well_defined((below,)))


@pytest.mark.parametrize("least", range(-3, 4))
@pytest.mark.parametrize("divisor", [1, 2, 3])
def test_a_quotient_known_from_below_says_as_much_of_what_is_divided(divisor: int, least: int) -> None:
    difference = s - t
    fact = (
        IndexExpr({(FloorDiv(difference, index(divisor)),): 1}) - least if divisor > 1 else difference - least
    )
    for left in range(2, 12):
        for right in range(2, 12):
            holds = (left - right) // divisor >= least
            for said in unrounded([fact]):
                assert (said.evaluate({S: left, T: right}.__getitem__) >= 0) == holds
    assert len(list(unrounded([fact]))) == (divisor > 1)
    assert not list(unrounded([-fact, fact + s, fact * s]))


def test_a_proof_that_takes_too_long_is_none():
    sizes = [index(Size(f"n{place}", 3, 2)) for place in range(6)]
    facts = tuple(a * b // c - c // b * a for a in sizes for b in sizes for c in sizes if len({a, b, c}) == 3)
    start = time.perf_counter()
    assert not proves(sizes[0] * sizes[1] - sizes[2] * sizes[3], facts)
    assert time.perf_counter() - start < 5


def test_integers_of_any_sign_have_products_of_any_sign() -> None:
    n, m = Size("n", 3, None), Size("m", 4, None)
    i = Axis("i", 5)
    assert not proves(index(n) * m) and not proves(index(n) * m * i) and not proves(4 - index(n) * i)
    assert proves(index(n), (index(n),)) and proves(4 * index(Size("s", 3)) * i)


def test_the_ends_of_quotients_and_remainders_are_enough() -> None:
    """Without a search, of which there is a limit: thousands of these are one compile's."""
    i, j = Axis("i", 12), Axis("j", 7)
    for goal in (FloorDiv(index(i) * 7 + j, index(8)), FloorDiv(index(j), index(3))):
        highest = 10 if goal.denominator == 8 else 2
        assert proves(highest - index_of(goal)) and not proves(highest - 1 - index_of(goal))


def index_of(atom: FloorDiv) -> IndexExpr:
    return IndexExpr({(atom,): 1})
