"""Index arithmetic: every simplification holds at every point, and the ones views rely on are made."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from nbcompile.compiler.loop_ir.expr import IndexValue, Indirect, Load
from nbcompile.compiler.loop_ir.index import (
    Axis,
    FloorDiv,
    IndexExpr,
    Mod,
    Size,
    at_least,
    floordiv,
    index,
    mod,
    within,
)
from nbcompile.compiler.loop_ir.substitution import substitute
from tests.nightly import few

SIZE_VALUES = (1, 2, 3, 5)
Tree = tuple[Any, ...]  # ("atom", Axis | Size), ("const", n), ("+" | "-" | "*" | "//" | "%", Tree, Tree)


def points(axes: list[Axis], sizes: list[Size]) -> Iterator[dict[str, int]]:
    """Every value of the axes, for several values of the sizes."""
    for chosen in itertools.product(SIZE_VALUES, repeat=len(sizes)):
        point = {size.text: value for size, value in zip(sizes, chosen, strict=True)}
        extents = [value_at(axis.extent, point) for axis in axes]
        for places in itertools.product(*map(range, extents)):
            yield point | {axis.text: place for axis, place in zip(axes, places, strict=True)}


def value_at(expr: IndexExpr, point: dict[str, int]) -> int:
    return expr.evaluate(lambda atom: point[atom.text])


def meaning(tree: Tree, point: dict[str, int]) -> int:
    """The tree's value by Python's own integers."""
    if tree[0] == "atom":
        return point[tree[1].text]
    if tree[0] == "const":
        return int(tree[1])
    left, right = meaning(tree[1], point), meaning(tree[2], point)
    return {
        "+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right,
        "//": lambda: left // right, "%": lambda: left % right,
    }[tree[0]]()  # fmt: skip


def built(tree: Tree) -> IndexExpr:
    if tree[0] in ("atom", "const"):
        return index(tree[1])
    left, right = built(tree[1]), built(tree[2])
    return {
        "+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right,
        "//": lambda: left // right, "%": lambda: left % right,
    }[tree[0]]()  # fmt: skip


def grown(rng: random.Random, axes: list[Axis], sizes: list[Size], depth: int) -> Tree:
    """A random non-negative expression whose divisors are positive."""
    choice = rng.random()
    if depth == 0 or choice < 0.15:
        leaves: list[Tree] = [("atom", axis) for axis in axes] + [("const", rng.randint(0, 7))]
        return rng.choice(leaves + [("atom", size) for size in sizes])
    left = grown(rng, axes, sizes, depth - 1)
    if choice < 0.45:
        return ("+", left, grown(rng, axes, sizes, depth - 1))
    number: Tree = ("const", rng.choice([2, 3, 4, 6, 8, 12]))
    if sizes and rng.random() < 0.3:
        symbol: Tree = ("atom", rng.choice(sizes))
        number = rng.choice([symbol, ("*", symbol, ("const", rng.choice([2, 3, 4])))])
    return ("*" if choice < 0.62 else "//" if choice < 0.81 else "%", left, number)


def domain(rng: random.Random) -> tuple[list[Axis], list[Size]]:
    sizes = [Size("s0", 3), Size("s1", 5)][: rng.choice([0, 0, 1, 2])]
    extents: list[Any] = [1, 2, 3, 4, 6, 8, *sizes, *(index(size) * 2 for size in sizes)]
    return [Axis(name, rng.choice(extents)) for name in "ijk"[: rng.choice([1, 2, 3])]], sizes


@few(4)
@pytest.mark.parametrize("block", range(10))
def test_random_expressions_keep_their_value(block):
    for seed in range(block * 60, block * 60 + 60):
        rng = random.Random(seed)
        axes, sizes = domain(rng)
        tree = grown(rng, axes, sizes, rng.choice([2, 3, 4]))
        made = built(tree)
        for point in points(axes, sizes):
            assert value_at(made, point) == meaning(tree, point), (seed, tree, made, point)


@pytest.mark.parametrize("block", range(6))
def test_quotients_and_remainders_stay_within_their_contract(block):
    """C's ``/`` and ``%`` agree with Python's for a numerator of at least 0 and a positive divisor only."""
    for seed in range(block * 50, block * 50 + 50):
        rng = random.Random(seed)
        axes, sizes = domain(rng)
        made = built(grown(rng, axes, sizes, 4))
        inner = [atom for atom in made.atoms() if isinstance(atom, FloorDiv | Mod)]
        for point in points(axes, sizes) if inner else ():
            for atom in inner:
                assert value_at(atom.numerator, point) >= 0 and value_at(atom.denominator, point) > 0


@pytest.mark.parametrize("block", range(4))
def test_bounds_that_are_proved_hold(block):
    proved = 0
    for seed in range(block * 60, block * 60 + 60):
        rng = random.Random(seed)
        axes, sizes = domain(rng)
        left, right = grown(rng, axes, sizes, 2), grown(rng, axes, sizes, 2)
        if at_least(built(left), built(right)):
            proved += 1
            for point in points(axes, sizes):
                assert meaning(left, point) >= meaning(right, point), (seed, left, right, point)
    assert proved > 5  # or nothing was tested


@few(2)
@pytest.mark.parametrize("block", range(4))
def test_differences_products_slopes_and_substitution(block):
    for seed in range(block * 10, block * 10 + 10):
        rng = random.Random(seed)
        axes, sizes = domain(rng)
        left, right = grown(rng, axes, sizes, 2), grown(rng, axes, sizes, 2)
        first, made = axes[0], built(left) - built(right)
        slope, times = made.coefficient(first), built(left) * built(right)
        for point in points(axes, sizes):
            x, y = meaning(left, point), meaning(right, point)
            assert value_at(made, point) == x - y
            assert value_at(times, point) == x * y
            if slope is not None and point[first.text] + 1 < value_at(first.extent, point):
                after = point | {first.text: point[first.text] + 1}
                assert value_at(made, after) - value_at(made, point) == value_at(slope, point)
        y, z = Axis("y", first.extent), Axis("z", 3)
        for other in (index(y), (3 * index(y) + z) % first.extent, first.extent - 1 - index(y)):
            replaced = substitute(built(left), {first: other})
            for point in points([y, z, *axes[1:]], sizes):
                moved = point | {first.text: value_at(other, point)}
                assert value_at(replaced, point) == meaning(left, moved)


def towards_zero(expr: IndexExpr, point: dict[str, int]) -> int:
    """The value where quotients are rounded as generated code rounds them."""
    total = 0
    for mono, coeff in expr.terms:
        for atom in mono:
            if isinstance(atom, FloorDiv | Mod):
                top, bottom = towards_zero(atom.numerator, point), towards_zero(atom.denominator, point)
                quotient = abs(top) // bottom * (-1 if top < 0 else 1)
                coeff *= quotient if isinstance(atom, FloorDiv) else top - quotient * bottom
            else:
                coeff *= point[atom.text]
        total += coeff
    return total


@few(2)
@pytest.mark.parametrize("block", range(4))
def test_quotients_of_differences_hold_in_generated_code(block):
    """Wherever a numerator is not negative, that may be under a guard only, parts of it may be."""
    met = 0
    for seed in range(block * 60, block * 60 + 60):
        rng = random.Random(seed)
        axes, sizes = domain(rng)
        top: Tree = ("-", grown(rng, axes, sizes, 3), grown(rng, axes, sizes, 1))
        divisor: Tree = ("const", rng.choice([2, 3, 8]))
        if sizes and rng.random() < 0.6:
            divisor = ("*", ("const", rng.choice([1, 2])), ("atom", rng.choice(sizes)))
        for sign in ("//", "%"):
            made = built((sign, top, divisor))
            for point in points(axes, sizes):
                if meaning(top, point) >= 0:
                    met += 1
                    assert towards_zero(made, point) == meaning((sign, top, divisor), point), (
                        seed,
                        made,
                        point,
                    )
    assert met > 100


def test_integers_that_may_be_negative_prove_nothing():
    n, rows = Size("n", 3, None), Size("rows", 3, 2)
    i = Axis("i", rows)
    assert at_least(index(rows), index(2)) and not at_least(index(rows), index(3))
    assert at_least(index(rows) - 1, index(i)) and at_least(index(rows) * 3 - 6, index(0))
    assert not at_least(index(n), index(0)) and not at_least(index(i) * n, index(0))
    assert not at_least(floordiv(index(n), index(2)), index(0)) and not within(index(n) % 4, index(4))
    assert not at_least(index(Size("m", 3, 0)), index(1)) and at_least(index(Size("m", 3, 0)), index(0))


S = Size("s0", 7)
I_, J, K, V, W = Axis("i", 8), Axis("j", 16), Axis("k", S), Axis("v", 480), Axis("w", index(S) * 12)
i, j, k, v, w, s = map(index, (I_, J, K, V, W, S))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ((16 * i + j) // 16, i),
        ((16 * i + j) % 16, j),
        ((32 * i + 2 * j) // 4, 8 * i + j // 2),
        ((16 * i + j) % 8, j % 8),
        ((i * s + k) // s, i),
        ((s - 1) // s, index(0)),
        ((s - 1) % s, s - 1),
        ((i * s + s - 1) % (s * 8), i * s + s - 1),
        ((i * s + k) % s, k),
        ((j * s * 2 + 2 * k + 1) // (2 * s), j),
        (v // 4 // 5, v // 20),
        (v % 20 % 4, v % 4),
        (v % 20 // 5, v // 5 % 4),
        (v % (6 * s) // s, v // s % 6),
        (7 * (v % 49 // 7) + v % 7, v % 49),
        (49 * (v // 49) + 7 * (v % 49 // 7) + v % 49 % 7, v),
        (6 * (v // 6) + v % 6, v),
        (30 * (v // 30) + 5 * (v // 5 % 6) + v % 5, v),
        (7 * (6 * (v // 6)) + 7 * (v % 6), 7 * v),
        (s * (w // s) + w % s, w),
        (24 * s * (w // 12) + 2 * s * (w % 12), 2 * s * w),
        (i // 8, index(0)),
        (i % 8, i),
        (k // s, index(0)),
        ((i + j) - (j + i), index(0)),
        ((v // 480) + (v % 480), v),
        ((4 * i + 2) // 8, i // 2),
        ((5 * v + i % 5) // 30, v // 6),
        ((5 * v + i % 5) % 30, 5 * (v % 6) + i % 5),
        ((s * i + k) // (2 * s), i // 2),
        ((s * i + k) % (2 * s), s * (i % 2) + k),
        ((v // 5 + 4 * i) // 6, (20 * i + v) // 30),
        (30 * ((20 * i + v) // 30) + 5 * ((v // 5 + 4 * i) % 6) + v % 5, 20 * i + v),
    ],
    ids=str,
)  # fmt: skip
def test_forms_that_views_rely_on(made, expected):
    assert made == expected and str(made) == str(expected) and hash(made) == hash(expected)


def test_slopes():
    place = 16 * i * s + 3 * j + 5
    assert place.coefficient(I_) == 16 * s and place.coefficient(J) == index(3)
    assert place.coefficient(K) == index(0)
    assert (j // 2).coefficient(J) is None and (j * j).coefficient(J) is None


def test_ranges_that_need_sizes():
    assert within(i * s + k, 8 * s) and not within(i * s + k, 8 * s - 1)
    assert at_least(s, index(1)) and not at_least(s, index(2))
    assert at_least(2 * s - 1, s) and not at_least(s, 2 * s - 1)


def test_gathers_are_atoms_with_a_range():
    picked = Indirect(Load("x", (i,), torch.int64), index(10))
    place = IndexExpr({(picked,): 1})
    assert (place * 4 + i % 4) // 4 == place
    assert place % 10 == place and place // 10 == 0
    assert place.axes() == {I_}
    moved = substitute(place, {I_: j // 2})
    assert moved.axes() == {J} and str(moved) == "[x[(j//2)]]"


def test_symbolic_values_print_and_evaluate_alike():
    assert str(16 * i + j - 3) == "16*i + j - 3"
    assert str(index(0) - i) == "-i" and str(index(0)) == "0"
    assert (s * 3 + i).hint() == 21
    assert IndexValue(i + 1, torch.int64).axes() == {I_}


def test_axes_of_other_extents_are_other_axes():
    assert index(Axis("i", 8)) == i and index(Axis("i", 9)) != i
    assert floordiv(index(Axis("i", 9)), index(8)) != 0 and mod(i, index(9)) == i


def test_quotients_of_other_axes_are_other_quotients() -> None:
    """The axes have one name, and what is proved of the one quotient does not hold of the other."""
    short, long = (index(Axis("i", index(extent))) // 2 for extent in (8, 32))
    assert str(short) == str(long) and short != long
    assert short == index(Axis("i", index(8))) // 2


def test_atoms_come_in_the_order_in_which_they_stand() -> None:
    """And not in that of their hashes, which is another one in each process: kernels are printed by it."""
    axes = [Axis(f"a{number:02}", 3 + number) for number in range(12)]
    place = sum((index(axis) * (axis.extent + 1) for axis in reversed(axes)), index(0))
    assert list(place.atoms()) == axes
    quotient = IndexExpr({(FloorDiv(place, index(7)),): 1})
    assert [atom for atom in quotient.atoms() if isinstance(atom, Axis)] == axes
