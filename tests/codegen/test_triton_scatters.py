"""The ways in which a GPU adds points into a table, in the interpreter, which refuses races."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ..lower.harness import as_list, compare
from .running import aten_of
from .triton_running import generated, run_interpreted, small_chip, titles

aten = torch.ops.aten
SMALL = "scatter into a small table"


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


@pytest.mark.parametrize("length", [6, 80])
def test_nan_stays_in_its_row(length):
    grad, at = torch.randn(400, length), torch.arange(400) % 5
    grad[7, 3], grad[11, 2] = float("nan"), float("inf")
    (got,) = check(embedding(5), grad, at, title=SMALL)
    assert got.isnan().sum() == 1 and got.isinf().sum() == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [6, 80])
def test_what_is_not_finite_stays_in_its_row_of_a_product(length, dtype):
    grad, at = torch.randn(400, length).to(dtype), torch.arange(400) % 5
    inf = float("inf")
    grad[7, 3], grad[11, 2], grad[12, 1], grad[3, 0], grad[8, 0] = float("nan"), inf, -inf, inf, -inf
    (got,) = check(embedding(5), grad, at, title=SMALL)
    assert got.isnan().nonzero().tolist() == [[2, 3], [3, 0]]
    assert (got == inf).nonzero().tolist() == [[1, 2]] and (got == -inf).nonzero().tolist() == [[2, 1]]


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
