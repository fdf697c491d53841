"""Layers: boxes of one never overlap, edges run down and round boxes, any graph has them, and quickly."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest

from nbcompile.view.drawing.layout import Layered, layered

Widths = dict[str, float]


def random_graph(seed: int, count: int, density: float) -> tuple[Widths, list[tuple[str, str]]]:
    draw = random.Random(seed)
    widths: Widths = {f"n{i}": draw.uniform(30, 200) for i in range(count)}
    names = list(widths)
    edges = [
        (names[draw.randrange(i)], names[i])
        for i in range(1, count)
        for _ in range(1 + (draw.random() < density))
    ]
    return widths, edges


def check(drawn: Layered, gap: float = 18.0) -> None:
    """Each item stands once, in the layer it says, apart from its neighbours; chains run down."""
    assert sorted(i.name for layer in drawn.layers for i in layer if i.name) == sorted(drawn.items)
    for number, layer in enumerate(drawn.layers):
        assert {item.layer for item in layer} <= {number}
        for left, right in pairwise(layer):
            apart = right.x - left.x - (left.width + right.width) / 2
            assert apart >= gap - 0.01
    for chain in drawn.chains.values():
        assert all(upper.layer < lower.layer for upper, lower in pairwise(chain))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("max_width", [float("inf"), 400.0])
def test_boxes_do_not_overlap(seed: int, max_width: float) -> None:
    widths, edges = random_graph(seed, 40, 0.5)
    drawn = layered(widths, edges, max_width=max_width)
    check(drawn)
    assert set(drawn.chains) == set(edges)
    assert all(
        sum(i.width + 18 for i in layer if not i.bend) <= max(max_width, 218) for layer in drawn.layers
    )


def test_a_long_edge_bends_round_the_boxes_between() -> None:
    drawn = layered({"a": 50, "b": 90, "c": 40}, [("a", "b"), ("b", "c"), ("a", "c")])
    check(drawn)
    above, bend, below = drawn.chains["a", "c"]
    assert (above.name, bend.bend, below.name) == ("a", True, "c")
    assert abs(bend.x - drawn.items["b"].x) >= 90 / 2


def test_a_chain_is_straight() -> None:
    widths: Widths = {f"n{i}": 40.0 + 20 * (i % 3) for i in range(9)}
    drawn = layered(widths, [(f"n{i}", f"n{i + 1}") for i in range(8)])
    assert len({round(item.x, 3) for item in drawn.items.values()}) == 1


def test_sources_stand_right_above_their_first_reader() -> None:
    widths: Widths = {"x": 30, "late": 30, **{f"n{i}": 30 for i in range(5)}}
    edges = [("x", "n0"), *((f"n{i}", f"n{i + 1}") for i in range(4)), ("late", "n4")]
    drawn = layered(widths, edges)
    assert drawn.items["late"].layer == drawn.items["n3"].layer


def test_ports_have_layers_of_their_own() -> None:
    drawn = layered({"a": 50, "b": 90}, [("in", "a"), ("a", "b"), ("a", "out")], top=["in"], bottom=["out"])
    check(drawn)
    assert [[item.name for item in layer if item.name] for layer in drawn.layers] == [
        ["in"], ["a"], ["b"], ["out"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "edges",
    [
        [("a", "b"), ("b", "a")],
        [("a", "a"), ("a", "b"), ("a", "b")],
        [("c", "a"), ("b", "gone"), ("gone", "c")],
        [],
    ],
    ids=["cycle", "loop and duplicate", "backwards and dangling", "no edges"],
)
def test_graphs_that_are_not_acyclic_have_layers_all_the_same(edges: list[tuple[str, str]]) -> None:
    drawn = layered(dict.fromkeys("abc", 40.0), edges)
    check(drawn)
    assert set(drawn.items) == set("abc")


def test_nothing_has_no_extent() -> None:
    assert not layered({}, []).items


def test_two_thousand_boxes_take_well_under_two_seconds() -> None:
    widths, edges = random_graph(1, 2000, 0.3)
    start = time.perf_counter()
    drawn = layered(widths, edges)
    assert time.perf_counter() - start < 2.0
    assert len(drawn.items) == 2000
