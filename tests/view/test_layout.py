"""Layouts: boxes never overlap, edges run between boxes, any graph is laid out, and quickly."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from nbcompile.view.drawing.layout import Layout, lay_out

Sizes = dict[str, tuple[float, float]]


def overlaps(layout: Layout, sizes: Sizes) -> list[tuple[str, str]]:
    out = []
    for a, b in itertools.combinations(sizes, 2):
        (ax, ay), (bx, by) = layout.places[a], layout.places[b]
        (aw, ah), (bw, bh) = sizes[a], sizes[b]
        apart = 0.01
        if ax + aw > bx + apart and bx + bw > ax + apart and ay + ah > by + apart and by + bh > ay + apart:
            out.append((a, b))
    return out


def random_graph(seed: int, count: int, density: float) -> tuple[Sizes, list[tuple[str, str]]]:
    draw = random.Random(seed)
    sizes: Sizes = {f"n{i}": (draw.uniform(30, 200), draw.uniform(20, 60)) for i in range(count)}
    names = list(sizes)
    edges = [
        (names[draw.randrange(i)], names[i])
        for i in range(1, count)
        for _ in range(1 + (draw.random() < density))
    ]
    return sizes, edges


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("max_height", [float("inf"), 300.0])
def test_boxes_do_not_overlap_and_stay_inside(seed: int, max_height: float) -> None:
    sizes, edges = random_graph(seed, 40, 0.5)
    layout = lay_out(sizes, edges, max_height=max_height, fold_width=1500)
    assert overlaps(layout, sizes) == []
    for name, (x, y) in layout.places.items():
        width, height = sizes[name]
        assert x >= -0.01 and y >= -0.01
        assert x + width <= layout.width + 0.01 and y + height <= layout.height + 0.01


def test_an_edge_runs_from_the_bottom_of_its_source_to_the_top_of_its_target() -> None:
    sizes: Sizes = {"a": (50, 20), "b": (90, 30), "c": (40, 20)}
    layout = lay_out(sizes, [("a", "b"), ("b", "c"), ("a", "c")])
    for (source, target), route in layout.routes.items():
        (x, y), (tx, ty) = layout.places[source], layout.places[target]
        assert x <= route[0][0] <= x + sizes[source][0]
        assert route[0][1] == pytest.approx(y + sizes[source][1])
        assert tx <= route[-1][0] <= tx + sizes[target][0]
        assert route[-1][1] == pytest.approx(ty)
    assert len(layout.routes["a", "c"]) > 2, "the long edge bends round b"


def test_a_chain_is_straight() -> None:
    sizes: Sizes = {f"n{i}": (40.0 + 20 * (i % 3), 20.0) for i in range(9)}
    layout = lay_out(sizes, [(f"n{i}", f"n{i + 1}") for i in range(8)])
    assert len({round(layout.places[n][0] + sizes[n][0] / 2, 3) for n in sizes}) == 1


def test_sources_stand_right_above_their_first_reader() -> None:
    sizes: Sizes = {"x": (30, 20), "late": (30, 20), **{f"n{i}": (30, 20) for i in range(5)}}
    edges = [("x", "n0"), *((f"n{i}", f"n{i + 1}") for i in range(4)), ("late", "n4")]
    layout = lay_out(sizes, edges)
    assert layout.places["late"][1] == layout.places["n3"][1]


def test_wide_layers_wrap() -> None:
    sizes: Sizes = {"root": (50, 20), **{f"n{i}": (100, 20) for i in range(30)}}
    layout = lay_out(sizes, [("root", f"n{i}") for i in range(30)], max_width=500)
    assert layout.width <= 700
    assert overlaps(layout, sizes) == []


def test_tall_graphs_fold_into_columns() -> None:
    sizes: Sizes = {f"n{i}": (100, 20) for i in range(40)}
    edges = [(f"n{i}", f"n{i + 1}") for i in range(39)]
    tall, folded = lay_out(sizes, edges), lay_out(sizes, edges, max_height=500, fold_width=1000)
    assert folded.height < tall.height / 2 and folded.width <= 1000
    assert overlaps(folded, sizes) == []


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
def test_graphs_that_are_not_acyclic_are_laid_out_all_the_same(edges: list[tuple[str, str]]) -> None:
    sizes: Sizes = dict.fromkeys("abc", (40, 20))
    layout = lay_out(sizes, edges)
    assert set(layout.places) == set("abc")
    assert overlaps(layout, sizes) == []


def test_nothing_has_no_extent() -> None:
    assert lay_out({}, []) == Layout(0.0, 0.0, {}, {})


def test_two_thousand_boxes_take_well_under_two_seconds() -> None:
    sizes, edges = random_graph(1, 2000, 0.3)
    start = time.perf_counter()
    layout = lay_out(sizes, edges)
    assert time.perf_counter() - start < 2.0
    assert len(layout.places) == 2000
