"""Which axis of a loop is which axis of a nest."""

from __future__ import annotations

import math

import pytest

from nbcompile.compiler.fuse.alignment import (
    CommonFactors,
    match_extents,
    nest_of,
    place_by_equations,
    place_by_shape,
)
from nbcompile.compiler.loop_ir.fused import Nest
from nbcompile.compiler.loop_ir.index import ONE, ZERO, Axis, Size, at_least, floordiv, index, mod
from nbcompile.compiler.loop_ir.substitution import substitute


def axes(*extents, name="a"):
    return tuple(Axis(f"{name}{n}", index(extent)) for n, extent in enumerate(extents))


def extents(matching: CommonFactors | None):
    if matching is None:
        return None
    plain = [[[item.constant for item in axis] for axis in side] for side in (matching.left, matching.right)]
    return plain[0], plain[1]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([6, 4], [6, 4], ([[6], [4]], [[6], [4]])),
        ([24], [6, 4], ([[6, 4]], [[6], [4]])),
        ([6, 4], [24], ([[6], [4]], [[6, 4]])),
        ([2, 12], [6, 4], ([[2], [3, 4]], [[2, 3], [4]])),
        ([2, 3, 4], [6, 4], ([[2], [3], [4]], [[2, 3], [4]])),
        ([], [], ([], [])),
        ([6, 4], [4, 6], None),
        ([6, 4], [6], None),
        ([6], [6, 4], None),
        ([5], [3], None),
    ],
)
def test_match_extents(left, right, expected):
    found = match_extents([index(n) for n in left], [index(n) for n in right])
    assert extents(found) == expected


def test_matched_factors_multiply_to_the_extents_of_both_sides():
    left, right = [4, 6, 10, 3], [24, 2, 15]
    found = match_extents([index(n) for n in left], [index(n) for n in right])
    assert [math.prod(side) for side in extents(found)[0]] == left
    assert [math.prod(side) for side in extents(found)[1]] == right


def test_match_extents_of_symbolic_sizes():
    n = index(Size("s0", 32))
    found = match_extents([n * 4], [n, index(4)])
    assert found == CommonFactors(((n, index(4)),), ((n,), (index(4),)))
    assert match_extents([n], [index(32)]) is None, "the hint of a size is not its value"


def test_nest_of_leaves_out_axes_of_one_element():
    (rows, one, columns) = axes(5, 1, 7)
    nest, binding = nest_of((rows, one, columns))
    assert [axis.extent.constant for axis in nest.axes] == [5, 7]
    assert binding[one] == ZERO
    assert [binding[rows].axis, binding[columns].axis] == list(nest.axes)


def nest(*extents):
    return Nest(axes(*extents, name="d"))


def test_equal_shapes_are_placed_as_they_are():
    target, (a, b) = nest(5, 7), axes(5, 7)
    d0, d1 = target.axes
    placed = place_by_equations(target, (a, b), [(index(a), index(d0)), (index(b), index(d1))])
    assert placed is not None and not placed.splits
    assert placed.binding == {a: index(d0), b: index(d1)}


def test_a_transposed_reader_is_placed_transposed():
    target, (a, b) = nest(5, 7), axes(7, 5)
    d0, d1 = target.axes
    placed = place_by_equations(target, (a, b), [(index(b), index(d0)), (index(a), index(d1))])
    assert placed is not None
    assert placed.binding == {a: index(d1), b: index(d0)}


def test_axes_without_an_equation_take_what_is_free():
    target, (a, b) = nest(5, 7), axes(5, 7)
    placed = place_by_equations(target, (a, b), [(index(b), index(target.axes[1]))])
    assert placed is not None and placed.binding[a] == index(target.axes[0])


def test_contradicting_equations_place_nothing():
    target, (a, b) = nest(5, 5), axes(5, 5)
    d0, d1 = target.axes
    assert place_by_equations(target, (a, b), [(index(a), index(d0)), (index(a), index(d1))]) is None
    assert place_by_equations(target, (a, b), [(index(a), index(d0)), (index(b), index(d0))]) is None


def walked(placed, target, loop_axes):
    """Every point of the nest as indices of the loop's axes: each point of the loop exactly once."""
    sizes = [axis.extent.constant for axis in placed.nest.axes]
    points = set()
    for flat in range(math.prod(sizes)):
        rest, where = flat, {}
        for axis, size in zip(reversed(placed.nest.axes), reversed(sizes), strict=True):
            where[axis] = index(rest % size)
            rest //= size
        points.add(tuple(substitute(placed.binding[axis], where).constant for axis in loop_axes))
    return points


def every_point(loop_axes):
    sizes = [axis.extent.constant for axis in loop_axes]
    return {
        tuple((flat // math.prod(sizes[n + 1 :])) % size for n, size in enumerate(sizes))
        for flat in range(math.prod(sizes))
    }


def test_a_flattened_nest_is_split_for_a_loop_that_sees_two_dimensions():
    """4a + b of the loop is d of the nest."""
    target, (a, b) = nest(24), axes(6, 4)
    placed = place_by_equations(target, (a, b), [(index(a) * 4 + b, index(target.axes[0]))])
    assert placed is not None
    assert [axis.extent.constant for axis in placed.nest.axes] == [6, 4]
    old = placed.apply({a: index(target.axes[0])})[a]
    assert old == index(placed.nest.axes[0]) * 4 + placed.nest.axes[1]
    assert walked(placed, target, (a, b)) == every_point((a, b))


def test_a_loop_over_a_flattened_tensor_joins_two_axes_of_the_nest():
    """a // 4 and a % 4 of the loop are the two axes of the nest."""
    target, (a,) = nest(6, 4), axes(24)
    d0, d1 = target.axes
    quotient, rest = floordiv(index(a), index(4)), mod(index(a), index(4))
    placed = place_by_equations(target, (a,), [(quotient, index(d0)), (rest, index(d1))])
    assert placed is not None and placed.nest == target
    assert placed.binding == {a: index(d0) * 4 + d1}
    assert place_by_equations(target, (a,), [(quotient, index(d0))]) is None, "half of it is not enough"


def test_a_split_keeps_inner_axes_inner():
    d0, d1 = axes(6, 8, name="d")
    (a, b) = axes(2, 4)
    placed = place_by_equations(Nest((d0, d1), frozenset({d1})), (a, b), [(index(a) * 4 + b, index(d1))])
    assert placed is not None
    assert [axis.extent.constant for axis in placed.nest.inner_axes] == [2, 4]
    assert placed.nest.rows == (d0,)


@pytest.mark.parametrize(
    ("host", "guest"),
    [((6, 4), (24,)), ((24,), (6, 4)), ((2, 12), (6, 4)), ((6, 1, 4), (6, 4)), ((6,), (1, 6))],
)
def test_placing_by_shape_is_one_to_one(host, guest):
    target, _ = nest_of(axes(*host, name="h"))
    loop_axes = axes(*guest)
    placed = place_by_shape(target, loop_axes, target.axes)
    assert placed is not None
    assert walked(placed, target, loop_axes) == every_point(loop_axes)
    assert all(axis.extent != ONE for axis in placed.nest.axes)


def test_placing_by_shape_on_the_rows_only():
    d0, d1 = axes(6, 8, name="d")
    (a,) = axes(6)
    target = Nest((d0, d1), frozenset({d1}))
    placed = place_by_shape(target, (a,), target.rows)
    assert placed is not None and placed.binding == {a: index(d0)}
    assert place_by_shape(target, (a,), target.axes) is None


def test_a_shifted_index_places_nothing():
    """y[i + 1] read by a loop of the same extent, as in a roll: y has points that no i reaches."""
    target, (a,) = nest(5), axes(5)
    (d0,) = target.axes
    for place in (index(d0) + 1, index(d0) - 1, index(d0) * 2):
        assert place_by_equations(target, (a,), [(index(a), place)]) is None


def test_a_flipped_index_is_placed_backwards():
    target, (a,) = nest(5), axes(5)
    (d0,) = target.axes
    placed = place_by_equations(target, (a,), [(index(a), 4 - index(d0))])
    assert placed is not None and walked(placed, target, (a,)) == every_point((a,))


def test_what_is_left_of_a_division_is_not_negative():
    """C rounds towards 0: ``(40*i + j - 3) // 40`` must not become ``i + (j - 3) // 40``."""
    (i, j) = axes(2, 40)
    place = index(i) * 40 + j - 3
    for found in (floordiv(place, index(40)), mod(place, index(40))):
        for atom in found.atoms():
            if not isinstance(atom, Axis):
                assert at_least(atom.numerator, ZERO), found
    for row in range(2):
        for column in range(40):
            where = {i: index(row), j: index(column)}
            assert substitute(floordiv(place, index(40)), where).constant == (40 * row + column - 3) // 40
            assert substitute(mod(place, index(40)), where).constant == (40 * row + column - 3) % 40
