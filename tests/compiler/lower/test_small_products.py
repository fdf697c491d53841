"""Products of a small matrix and a vector are loops on a CPU, and the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor
CASES: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "mm": (lambda x, y: x @ y, ((12, 8), (8, 1))),
    "row": (lambda x, y: x @ y, ((1, 8), (8, 12))),
    "dot": (lambda x, y: torch.mm(x, y), ((1, 8), (8, 1))),
    "bmm": (lambda x, y: torch.bmm(x, y), ((4, 48, 16), (4, 16, 1))),
    "einsum": (lambda h, c: torch.einsum("bdn,bn->bd", h, c), ((4, 48, 8), (4, 8))),
    "wide": (lambda x, y: x @ y, ((300, 3), (3, 40))),
    "points": (lambda p, r: torch.einsum("ij,nj->ni", r, p), ((50, 3), (3, 3))),
    "colours": (lambda p, r: torch.einsum("ij,bjhw->bihw", r, p), ((2, 3, 8, 9), (3, 3))),
    "poses": (lambda x, y: torch.matmul(x, y), ((2, 5, 4, 4), (2, 5, 4, 4))),
    "gram": (lambda x: x.mT @ x, ((20, 8, 3),)),
    "linear": (torch.nn.functional.linear, ((30, 2), (16, 2), (16,))),
    "one": (lambda x, y: x @ y, ((3, 1), (1, 4))),
    "transposed": (lambda x, y: x.t() @ y, ((8, 12), (8, 1))),
}


def calls(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, list[str]]:
    run = nbcompile.compile(function, options={"cache": False})
    found = run(*inputs)
    assert run.ran_compiled, run.eager_reason
    loops = next(graph for graph in run.compilation.graphs if graph.stage == "loops")
    return found, [node.op for node in loops.nodes if node.kind == "library"]


@few(3)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_numbers_agree_and_nothing_is_called(name: str, dtype: torch.dtype) -> None:
    function, shapes = CASES[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape, dtype=dtype) for shape in shapes]
    found, called = calls(function, *inputs)
    expected = function(*inputs)
    assert found.stride() == expected.stride() and not called
    torch.testing.assert_close(found, expected)


def test_infinities_and_none_of_a_number() -> None:
    x, y = torch.tensor([[torch.inf, 0.0], [torch.nan, 1.0], [1.0, 2.0]]), torch.tensor([[0.0], [1.0]])
    found, called = calls(torch.mm, x, y)
    torch.testing.assert_close(found, x @ y, equal_nan=True)
    assert not called


@pytest.mark.parametrize(
    "shapes",
    [((12, 65), (65, 1)), ((2000, 32), (32, 1)), ((12, 8), (8, 2)), ((0, 8), (8, 1)), ((4, 5), (5, 4))],
)
def test_the_blas_has_what_is_longer_larger_wider_or_empty(shapes: tuple[tuple[int, ...], ...]) -> None:
    inputs = [torch.randn(shape) for shape in shapes]
    found, called = calls(torch.mm, *inputs)
    torch.testing.assert_close(found, torch.mm(*inputs))
    assert called


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_attention_of_one_row_to_a_cache_of_half_types(dtype: torch.dtype) -> None:
    """A sum is rounded once, and what comes after reads it rounded."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape, dtype=dtype) for shape in ((6, 1, 64), (6, 1000, 64), (6, 1000, 64)))
    k[2, 5, 3], v[1, 1, 1] = torch.inf, torch.nan

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT * 0.1).softmax(-1) @ v

    found, called = calls(function, q, k, v)
    assert not called
    torch.testing.assert_close(found, function(q, k, v), equal_nan=True)
    x, y = torch.randn(64, 4096, dtype=dtype), torch.randn(4096, 1, dtype=dtype)
    found, called = calls(torch.mm, x[:32], y)
    exact = x[:32].double() @ y.double()
    assert not called and (found - exact).abs().max() <= torch.finfo(dtype).eps * exact.abs().max()
    assert calls(torch.mm, torch.randn(129, 4096, dtype=dtype), y)[1]


def test_short_sums_of_any_number_of_rows() -> None:
    def turned(points: Tensor, turn: Tensor, moved: Tensor) -> Tensor:
        return torch.relu(points @ turn.mT + moved)

    torch._dynamo.reset()
    run = nbcompile.compile(turned, options={"cache": False})
    for n in (7, 19, 0, 1):
        inputs = torch.randn(n, 3), torch.randn(3, 3), torch.randn(3)
        torch.testing.assert_close(run(*inputs), turned(*inputs))
    assert not run.compilation.library_calls


def test_gradients_of_poses() -> None:
    poses, points = torch.randn(6, 3, 3, requires_grad=True), torch.randn(6, 9, 3, requires_grad=True)

    def moved(poses: Tensor, points: Tensor) -> Tensor:
        return torch.bmm(points, poses).tanh()

    torch._dynamo.reset()
    found = torch.autograd.grad(nbcompile.compile(moved)(poses, points).square().sum(), (poses, points))
    torch.testing.assert_close(
        found, torch.autograd.grad(moved(poses, points).square().sum(), (poses, points))
    )


@pytest.mark.parametrize("dynamic", [None, True])
def test_inner_products_are_sums_with_what_is_around_them(dynamic: bool | None) -> None:
    def projected(x: Tensor, y: Tensor) -> Tensor:
        return x - torch.dot(x, y) / torch.vdot(y, y) * y

    torch._dynamo.reset()
    run = nbcompile.compile(projected, dynamic=dynamic, options={"cache": False})
    for n, dtype in ((301, torch.float32), (1, torch.float64), (0, torch.float32), (5000, torch.float32)):
        x, y = torch.randn(n, dtype=dtype), torch.randn(2, n, dtype=dtype)[1]
        torch.testing.assert_close(run(x, y), projected(x, y), equal_nan=True)
        assert torch.equal(calls(torch.dot, x, y)[0].isnan(), torch.dot(x, y).isnan())
    assert not run.compilation.library_calls
    matrix, vector = torch.randn(40, 30).t(), torch.randn(40)
    found, called = calls(torch.mv, matrix, vector)
    torch.testing.assert_close(found, torch.mv(matrix, vector))
    assert not called
