"""The ways in which a GPU adds points into a table, in the interpreter, which refuses races."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.targets import parse
from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton_running import generated, run_interpreted, small_chip, titles
from tests.compiler.lower.harness import as_list, compare
from tests.nightly import few, one_in

aten = torch.ops.aten
SMALL = "scatter into a small table"
LISTED = "scatter by listed rows"
AXES = "scatter by listed axes"
ANY_SIZE = {"LEAST_POINTS": 1}
ANY_TABLE = {"LEAST_TABLE": 1, "LEAST_ADDED": 1}


def check(
    fn: Any, *inputs: torch.Tensor, title: str, expected: Any = None, **limits: int
) -> list[torch.Tensor]:
    """The results of ``fn``'s kernels, which agree with eager's (or ``expected``) for every config."""
    graph = aten_of(fn, *inputs)
    with small_chip(**limits):
        _, source = generated(graph)
    assert titles(source) == [title]
    wide = [item.double() if item.is_floating_point() else item for item in inputs]
    results = []
    for candidate in range(max(len(launch.configs) for launch in source.launches)):
        results = run_interpreted(source, graph, [item.clone() for item in inputs], candidate)
        compare(
            results,
            as_list(fn(*inputs)) if expected is None else expected,
            as_list(fn(*wide)) if expected is None else None,
        )
    return results


def embedding(rows: int, padding: int = -1) -> Any:
    return lambda grad, at: aten.embedding_dense_backward(grad, at, rows, padding, False)


# -- small tables ------------------------------------------------------------------------------------------


@few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(("rows", "length"), [(3, 5), (1, 4), (7, 1), (16, 12), (2, 70), (5, 200), (64, 64)])
def test_small_tables(rows, length, dtype):
    points = max(rows * 32, 333)
    grad, at = torch.randn(points, length).to(dtype), torch.randint(rows, (points,))
    check(embedding(rows), grad, at, title=SMALL)


def test_transposed_and_padded():
    grad, at = torch.randn(5, 20, 21), torch.randint(9, (20, 21))
    check(lambda grad, at: embedding(9, 4)(grad.permute(1, 2, 0), at), grad, at, title=SMALL)


def test_a_base_is_added_once():
    x, at, src = torch.randn(4, 3, 70), torch.randint(-4, 4, (150,)), torch.randn(150, 3, 70)
    check(lambda x, at, src: torch.index_put(x, (at,), src, accumulate=True), x, at, src, title=SMALL)


def test_tables_beside_one_another():
    x, at, src = torch.randn(3, 4, 5), torch.randint(4, (150,)), torch.randn(3, 150, 5)
    check(lambda x, at, src: torch.index_add(x * 2, 1, at, src * 3), x, at, src, title=SMALL)


def test_a_histogram():
    at = torch.randint(10, (3000,))
    fn = lambda at: torch.zeros(10).index_add(0, at, torch.ones(3000))
    check(fn, at, title=SMALL)


@few(1)
@pytest.mark.parametrize("length", [6, 80])
def test_nan_stays_in_its_row(length):
    grad, at = torch.randn(400, length), torch.arange(400) % 5
    grad[7, 3], grad[11, 2] = float("nan"), float("inf")
    (got,) = check(embedding(5), grad, at, title=SMALL)
    assert got.isnan().sum() == 1 and got.isinf().sum() == 1


@few(1)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [6, 80])
def test_what_is_not_finite_stays_in_its_row_of_a_product(length, dtype):
    grad, at = torch.randn(400, length).to(dtype), torch.arange(400) % 5
    inf = float("inf")
    grad[7, 3], grad[11, 2], grad[12, 1], grad[3, 0], grad[8, 0] = float("nan"), inf, -inf, inf, -inf
    (got,) = check(embedding(5), grad, at, title=SMALL)
    assert got.isnan().nonzero().tolist() == [[2, 3], [3, 0]]
    assert (got == inf).nonzero().tolist() == [[1, 2]] and (got == -inf).nonzero().tolist() == [[2, 1]]


@few(1)
@pytest.mark.parametrize("length", [6, 80])
def test_rows_that_do_not_exist_are_left_out(length):
    grad, at = torch.randn(400, length), torch.arange(400) % 9 - 2
    at[5], at[6] = 2**40 + 1, -(2**40)
    kept = (at >= 0) & (at < 5)
    expected = torch.zeros(5, length).index_add(0, at[kept], grad[kept])
    check(embedding(5), grad, at, title=SMALL, expected=[expected])


def test_sums_are_made_in_one_order():
    grad, at = torch.randn(2000, 20), torch.randint(3, (2000,))
    (first,) = check(embedding(3), grad, at, title=SMALL)
    (second,) = check(embedding(3), grad, at, title=SMALL)
    assert torch.equal(first, second)


def test_few_points_meet_seldom():
    grad, at = torch.randn(100, 20), torch.randint(30, (100,))
    check(embedding(30), grad, at, title="scatter")


def test_points_along_the_row_itself_are_no_row():
    """Each element names a place of its own: nothing of this kind."""
    x, at, src = torch.randn(4, 5), torch.randint(4, (300, 5)), torch.randn(300, 5)
    check(lambda x, at, src: torch.scatter_add(x, 0, at, src), x, at, src, title="scatter")


# -- listed rows -------------------------------------------------------------------------------------------


def often(points: int, rows: int) -> torch.Tensor:
    """Rows of which some are named more than eight times, some just as often, and some never."""
    at = torch.randint(rows // 2, (points,))
    at[:20], at[20:28], at[28:37] = 3, 5, 7
    return at[torch.randperm(points)]


@few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("points", "rows", "length"), [(5, 9, 64), (60, 90, 70), (200, 333, 300), (130, 200, 128)]
)
def test_listed_rows(points, rows, length, dtype):
    grad, at = torch.randn(points, length).to(dtype), often(max(points, 37), rows)[:points]
    check(embedding(rows), grad, at, title=LISTED, **ANY_TABLE)


def test_a_padded_row_is_not_listed_at_all():
    grad, at = torch.randn(10, 6, 80).bfloat16(), torch.randint(3, (10, 6))
    grad[at == 1] = float("nan")
    (got,) = check(embedding(70, 1), grad, at, title=LISTED, **ANY_TABLE)
    assert not got.isnan().any()


def test_all_points_in_one_row():
    grad, at = torch.randn(60, 100).bfloat16(), torch.full((60,), 44)
    check(embedding(61), grad, at, title=LISTED, **ANY_TABLE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_added_to_a_base(dtype):
    x, at, src = torch.randn(90, 72), often(50, 90) - 45, torch.randn(50, 72)
    fn = lambda x, at, src: torch.index_put(x * 2, (at,), src, accumulate=True)
    check(fn, x.to(dtype), at, src.to(dtype), title=LISTED, **ANY_TABLE)


def test_a_row_may_lie_across_several_dimensions():
    x, at, src = torch.randn(4, 90, 5, 6), often(50, 90), torch.randn(4, 50, 5, 6)
    fn = lambda x, at, src: torch.index_add(x, 1, at, src.exp(), alpha=2)
    check(fn, x, at, src, title=LISTED, **ANY_TABLE)


def test_rows_that_do_not_exist_are_not_listed():
    grad, at = torch.randn(60, 80).bfloat16(), often(60, 90)
    at[3], at[4], at[5] = -1, 90, 2**40
    kept = (at >= 0) & (at < 90)
    expected = torch.zeros(90, 80).index_add(0, at[kept], grad[kept].float()).bfloat16()
    check(embedding(90), grad, at, title=LISTED, expected=[expected], **ANY_TABLE)


def test_nan_stays_in_its_listed_row():
    grad, at = torch.randn(60, 80).bfloat16(), often(60, 90)
    for row in (3, 5):
        grad[(at == row).nonzero()[0, 0], row] = float("nan")
    (got,) = check(embedding(90), grad, at, title=LISTED, **ANY_TABLE)
    assert got.isnan().nonzero().tolist() == [[3, 3], [5, 5]]


def test_sums_of_half_types_are_rounded_once():
    grad, at = torch.randn(200, 64).bfloat16(), torch.randint(40, (200,))
    (got,) = check(embedding(300), grad, at, title=LISTED, **ANY_TABLE)
    exact = embedding(300)(grad.double(), at)
    assert ((got.double() - exact).abs() <= exact.abs() * 2**-8 + 1e-6).all()


@few(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [20, 150, 4])
def test_rows_that_are_named_several_times(rows, dtype):
    grad, at = (
        torch.randn(220, 80).to(dtype),
        torch.randint(rows, (220,)) if rows > 4 else torch.arange(220) % 20,
    )
    at[:50] = 2
    check(embedding(max(rows, 20)), grad, at, title=LISTED, **ANY_TABLE)


def test_many_more_points_than_rows_keep_to_atomics():
    grad, at = torch.randn(30, 80), torch.randint(1, (30,))
    check(embedding(1), grad, at, title="scatter", **ANY_TABLE)


# -- listed axes -------------------------------------------------------------------------------------------


def put(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    *places, src = rest
    return aten.index_put(x, [None, None, places[0][:, None], places[-1]], src, True)


def lanes(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Points whose neighbours in memory lie along dimension 1."""
    return torch.randn(shape[0], *shape[2:], shape[1]).to(dtype).movedim(-1, 1)


TABLES = [((5, 7), (10, 14)), ((4, 40), (3, 90)), ((33, 3), (64, 5)), ((1, 4), (5, 3))]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("table", "dtype", "last"), one_in(2, TABLES, [torch.float32, torch.float64], [False, True])
)
def test_two_listed_axes(table, dtype, last):
    size, points = table
    x, src = torch.randn(3, 17, *size).to(dtype), lanes(3, 17, *points, dtype=dtype)
    x = x.to(memory_format=torch.channels_last) if last else x
    rows, columns = (torch.randint(-each, each, (count,)) for each, count in zip(size, points, strict=True))
    check(put, x, rows, columns, src, title=AXES, **ANY_SIZE)


@pytest.mark.nightly
def test_points_along_a_listed_axis_in_another_order_keep_to_atomics():
    rows, columns, src = torch.randint(5, (10,)), torch.randint(7, (64,)), torch.randn(3, 33, 10, 64)
    x = torch.randn(3, 5, 7, 33).permute(0, 3, 1, 2)
    check(put, x, rows, columns, src, title="scatter", **ANY_SIZE)


@few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("size", "points"), [((5, 7), (10, 64)), ((4, 40), (3, 90)), ((3, 2), (40, 16))])
def test_points_that_lie_along_a_listed_axis(size, points, dtype):
    """Numbers of very different sizes: a sum of rounded ones would be far off."""
    torch.manual_seed(0)  # of others, eager's own error may be more than is allowed
    x, src = torch.randn(3, 33, *size), torch.randn(3, 33, *points) * 10 ** torch.randn(points[-1])
    rows, columns = (torch.randint(-each, each, (count,)) for each, count in zip(size, points, strict=True))
    fn = lambda x, rows, columns, src: put(x, rows, columns, src.to(x.dtype))
    check(fn, x, rows, columns, src.to(dtype), title=AXES, **ANY_SIZE)


def test_points_that_lie_along_the_only_listed_axis():
    x, at, src = torch.randn(20, 70), torch.randint(70, (100,)), torch.randn(20, 100)
    fn = lambda x, at, src: torch.index_add(x.exp(), 1, at, src * 2)
    check(fn, x, at, src, title=AXES, **ANY_SIZE)


def test_what_is_not_finite_stays_in_its_place_of_the_line():
    inf, at = float("inf"), torch.arange(64) // 4
    src = torch.randn(18, 3, 64)
    src[1, 2, 5], src[2, 0, 7], src[2, 0, 40], src[3, 1, 9] = float("nan"), inf, -inf, 3e38
    src[4, 0, 12], src[4, 0, 13] = inf, -inf
    fn = lambda x, at, src: torch.index_add(x, 2, at, src)
    (got,) = check(fn, torch.zeros(18, 3, 16), at, src, title=AXES, **ANY_SIZE)
    assert (~got.isfinite()).nonzero().tolist() == [[1, 2, 1], [2, 0, 1], [2, 0, 10], [4, 0, 3]]


def test_places_along_a_line_that_do_not_exist_are_left_out():
    x, src = torch.zeros(19, 6), torch.randn(19, 20)
    at = torch.arange(20) % 9 - 1
    kept = (at >= 0) & (at < 6)
    fn = lambda x, at, src: torch.scatter_add(x, 1, at[None].expand(19, 20), src)
    expected = [x.index_add(1, at[kept], src[:, kept])]
    check(fn, x, at, src, title=AXES, expected=expected, **ANY_SIZE)


@pytest.mark.parametrize("dim", [0, 1])
def test_one_listed_axis(dim):
    shape = [6, 7, 40]
    x = torch.randn(shape)
    at = torch.randint(shape[dim], (20,))
    shape[dim] = 20
    fn = lambda x, at, src: torch.index_add(x.exp(), dim, at, src * 2)
    check(fn, x, at, torch.randn(shape), title=AXES, **ANY_SIZE)


@pytest.mark.nightly
def test_a_place_where_many_meet():
    x, src = torch.randn(2, 18, 4, 5), lanes(2, 18, 30, 40)
    rows, columns = torch.randint(4, (30,)), torch.randint(5, (40,))
    rows[:22], columns[:20] = 1, 3
    check(put, x, rows, columns, src, title=AXES, **ANY_SIZE)


def test_places_that_do_not_exist_are_on_no_list():
    x, src = torch.zeros(6, 19), torch.randn(20, 19)
    at = torch.arange(20) % 9 - 1
    kept = (at >= 0) & (at < 6)
    fn = lambda x, at, src: torch.scatter_add(x, 0, at[:, None].expand(20, 19), src)
    check(fn, x, at, src, title=AXES, expected=[x.index_add(0, at[kept], src[kept])], **ANY_SIZE)


def test_nan_stays_in_its_listed_place():
    x, src = torch.randn(1, 16, 4, 5), lanes(1, 16, 8, 10)
    src[0, 1, 3, 4] = float("nan")
    rows, columns = torch.arange(8) // 2, torch.arange(10) // 2
    (got,) = check(put, x, rows, columns, src, title=AXES, **ANY_SIZE)
    assert got.isnan().nonzero().tolist() == [[0, 1, 1, 2]]


@few(1)
@pytest.mark.parametrize("length", [2, 8, 70])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_that_do_not_vary_along_all_axes(dtype, length):
    """One number, one a point, or one an element of the row."""
    at = torch.randint(5, (400,))
    ones = lambda at: torch.zeros(5, length, dtype=dtype).index_add(
        0, at, torch.ones(400, length, dtype=dtype)
    )
    check(ones, at, title=SMALL)
    for shape in ((400, 1), (1, length)):
        fn = lambda at, src: src.new_zeros(5, length).index_add(0, at, src.expand(400, length))
        check(fn, at, torch.randn(shape).to(dtype), title=SMALL)


@few(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (50, 1), (1, 70)])
def test_listed_values_that_do_not_vary_along_all_axes(shape, dtype):
    x, at = torch.randn(90, 70).to(dtype), often(50, 90)
    fn = lambda x, at, src: torch.index_add(x, 0, at, src.expand(50, 70))
    check(fn, x, at, torch.randn(shape).to(dtype), title=LISTED, **ANY_TABLE)


@pytest.mark.nightly
@pytest.mark.parametrize("shape", [(1, 18, 1, 1), (1, 18, 1, 14), (3, 18, 10, 1)])
def test_values_along_some_listed_axes(shape):
    x, rows, columns = torch.randn(3, 18, 4, 6), torch.randint(4, (10,)), torch.randint(6, (14,))
    fn = lambda x, rows, columns, src: put(x, rows, columns, src.expand(3, 18, 10, 14))
    check(fn, x, rows, columns, lanes(*shape), title=AXES, **ANY_SIZE)


def test_nothing_is_added_to_an_empty_table() -> None:
    """Triton's atomics take no mask that is one number for a whole tile."""
    pytest.importorskip("triton")
    graph = aten_of(lambda v, at: v.index_add(1, at, v), torch.randn(0, 2), torch.tensor([0, 1]))
    _, source = generated(graph)
    assert triton_build.build(source, parse("cuda:90"))
    compare(
        run_interpreted(source, graph, [torch.randn(0, 2), torch.tensor([0, 1])], 0),
        [torch.randn(0, 2)],
        None,
    )
