"""Inputs of which a part is overwritten: by ranges, indices and diagonals, read before and after, returned or
not. The values, and what shares memory with what, are eager's, and only the part is touched."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import nbcompile
from tests.nightly import few

R = torch.randn


def first_rows(x: Tensor) -> None:
    x[:10].mul_(2)


def one_of_a_cache(c: Tensor, k: Tensor) -> Any:
    c[:, :, 5:6] = k
    return c[:, :, :6].sum()


def added_at_indices(b: Tensor, i: Tensor, v: Tensor) -> None:
    b.index_add_(0, i, v)


def diagonal(x: Tensor) -> None:
    x.diagonal().add_(1)


def one_row(x: Tensor) -> Any:
    x[3] += 1
    return x * 2


def one_column(x: Tensor) -> Any:
    x[:, 0] *= 2
    return x[0].sum()


def set_at_indices(b: Tensor, i: Tensor, v: Tensor) -> Any:
    b[i] = v
    return b + 1


def read_and_set_at_indices(b: Tensor, i: Tensor, v: Tensor) -> Any:
    b[i] += v
    return b.sum()


def scattered(b: Tensor, i: Tensor, v: Tensor) -> Any:
    b.scatter_add_(0, i, v)
    return b.clone()


def a_copy_is_returned(x: Tensor) -> Any:
    y = x.sin()
    z = y.clone()
    x.copy_(y)
    return z


def itself_is_returned(x: Tensor) -> Any:
    y = x.sin()
    x.copy_(y)
    return y


def views_are_returned(x: Tensor) -> Any:
    y = x.sin()
    x.copy_(y)
    return y.view(-1), y[0]


def the_input_is_returned(x: Tensor) -> Any:
    y = x.sin()
    x.copy_(y)
    return x.detach(), x[1:]


def read_by_a_product(x: Tensor, w: Tensor) -> Any:
    y = x.sin()
    x.copy_(y)
    return y @ w


def rows_of_a_product(x: Tensor, w: Tensor) -> Any:
    o = x @ w
    x[2] = o[0]
    x[:, 1] += 1
    return x.sum(1), o


def rows_of_each_other(x: Tensor) -> Any:
    x[1] = x[0] + x[2]
    x[0] = x[1]
    return x.mean()


def moved_by_one(x: Tensor) -> Any:
    x[1:] = x[:-1].clone()
    return x


def one_after_the_other(x: Tensor) -> Any:
    x[3] += x[4]
    x[4] += x[3]
    return x.max()


def copied_and_filled_at_indices(b: Tensor, i: Tensor, v: Tensor) -> Any:
    b.index_copy_(0, i, v.abs())
    b.index_fill_(0, i[:2], 3.0)
    return b.cumsum(0)


def every_second(x: Tensor) -> Any:
    x[::2] *= 3
    x[:, 1:5] -= 1
    return x[::2].sum()


def other_diagonals(x: Tensor) -> Any:
    x.diagonal(1).mul_(2)
    x.diagonal(-1)[:2].zero_()
    return x.diagonal()


def of_each_other(x: Tensor, y: Tensor) -> Any:
    x[2] = y[2]
    y[2] = x[3]
    return x - y


def added_twice(b: Tensor, i: Tensor, v: Tensor) -> Any:
    b.index_add_(0, i, v)
    b.index_add_(0, i, v)
    return b


def read_before(b: Tensor, i: Tensor, v: Tensor) -> Any:
    t = b[i]
    b[i] = t * 2 + v
    return t


def masked_and_set(b: Tensor, i: Tensor, v: Tensor) -> Any:
    b.masked_fill_(b > 0, 1.0)
    b[i] = 0
    return b


def through_views(x: Tensor) -> Any:
    x.unsqueeze(0)[0, 2] += 5
    x.t()[1] -= 2
    return x


def extremes_at_indices(b: Tensor, i: Tensor, v: Tensor) -> Any:
    b.scatter_(0, i, v)
    b.scatter_reduce_(0, i, v, "amax")
    return b


def rows_normalised(x: Tensor) -> Any:
    s = x.softmax(-1)
    x.copy_(s)
    return s.sum(-1)


def sums_along(x: Tensor) -> None:
    s = x.cumsum(0)
    x.copy_(s)


def transposed(x: Tensor) -> Any:
    x.copy_(x.t().contiguous())
    return x[0]


def flipped(x: Tensor) -> None:
    x.copy_(x.flip(0) + 1)


def single_elements(x: Tensor) -> Any:
    x[0, 0] = 5
    x[1, 1] += x[0, 0]
    return x.sum()


def a_part_is_returned(x: Tensor) -> Any:
    return x[:3].mul_(2)


def views_after(x: Tensor) -> Any:
    x[2:4] += 1
    return x[:3], x.view(-1), x


def vectors() -> tuple[Tensor, ...]:
    return R(50), torch.randint(0, 50, (7,)), R(7)


def matrix() -> tuple[Tensor, ...]:
    return (R(8, 8),)


def matrices() -> tuple[Tensor, ...]:
    return R(8, 8), R(8, 8)


PROGRAMS: dict[Callable[..., Any], Callable[[], tuple[Tensor, ...]]] = {
    first_rows: lambda: (R(30, 5),),
    one_of_a_cache: lambda: (R(1, 2, 16, 4), R(1, 2, 1, 4)),
    added_at_indices: vectors,
    diagonal: matrix,
    one_row: matrix,
    one_column: matrix,
    set_at_indices: vectors,
    read_and_set_at_indices: vectors,
    scattered: vectors,
    a_copy_is_returned: matrix,
    itself_is_returned: matrix,
    views_are_returned: matrix,
    the_input_is_returned: matrix,
    read_by_a_product: matrices,
    rows_of_a_product: matrices,
    rows_of_each_other: matrix,
    moved_by_one: matrix,
    one_after_the_other: matrix,
    copied_and_filled_at_indices: vectors,
    every_second: matrix,
    other_diagonals: matrix,
    of_each_other: matrices,
    added_twice: vectors,
    read_before: vectors,
    masked_and_set: vectors,
    through_views: matrix,
    extremes_at_indices: vectors,
    rows_normalised: matrix,
    sums_along: matrix,
    transposed: matrix,
    flipped: matrix,
    a_part_is_returned: matrix,
    views_after: matrix,
    single_elements: matrix,
}
FLOATS_ONLY = {rows_normalised, read_by_a_product, rows_of_a_product, a_copy_is_returned, itself_is_returned,
               views_are_returned, the_input_is_returned, rows_of_each_other}  # fmt: skip


def tensors(found: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]


def same(found: list[Tensor], expected: list[Tensor], dtype: torch.dtype) -> None:
    bound = 2e-2 if dtype == torch.bfloat16 else 1e-4
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=bound, rtol=bound, equal_nan=True)


@few(12)
@pytest.mark.parametrize("dynamic", [None, True], ids=["sizes", "symbols"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_parts_of_inputs(program: Callable[..., Any], dtype: torch.dtype, dynamic: bool | None) -> None:
    if dtype == torch.int64 and program in FLOATS_ONLY:
        pytest.skip("of floats")
    torch.manual_seed(0)
    given = [(a * 5).to(dtype) if a.is_floating_point() else a for a in PROGRAMS[program]()]
    one, other = [a.clone() for a in given], [a.clone() for a in given]
    torch._dynamo.reset()
    run = nbcompile.compile(program, dynamic=dynamic, options={"cache": False})
    for _ in range(2):
        found, expected = tensors(run(*one)), tensors(program(*other))
        same([*one, *found], [*other, *expected], dtype)
        assert [each.storage_offset() for each in found] == [each.storage_offset() for each in expected]
        for result in (*found, *expected):  # what shares memory with what
            result.add_(1)
        same([*one, *found], [*other, *expected], dtype)
    assert run.ran_compiled, run.eager_reason


@few(6)
@pytest.mark.parametrize(
    "program", [f for f in PROGRAMS if f not in (moved_by_one, flipped)], ids=lambda f: f.__name__
)
def test_parts_of_inputs_by_triton(program: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    given = PROGRAMS[program]()
    one, other = [a.clone() for a in given], [a.clone() for a in given]
    torch._dynamo.reset()
    found = tensors(nbcompile.compile(program, options={"cache": False, "interpret": True})(*one))
    same([*one, *found], [*other, *tensors(program(*other))], torch.float32)


@pytest.mark.parametrize(
    "program",
    [
        first_rows,
        one_of_a_cache,
        added_at_indices,
        diagonal,
        one_column,
        set_at_indices,
        scattered,
        a_part_is_returned,
        views_after,
    ],
    ids=lambda f: f.__name__,
)
def test_no_kernel_copies_the_input(program: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(program, options={"cache": False})
    run(*PROGRAMS[program]())
    assert not [each for each in run.compilation.decisions if "overwritten" in each.reason]
    assert all("copy" not in each.name for each in run.compilation.kernels)


def test_many_parts_one_after_the_other_compile_in_time() -> None:
    """Each of 24 rows is made of the one before it: with what each guard says kept along all ways that lead
    to a read, there are as many ways as the rows have subsets (38 s for twelve)."""

    def function(x: Tensor) -> Tensor:
        for row in range(24):
            x[row] += 1
            x[row + 1] += x[row]
        return x.sum()

    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    one, other = (torch.arange(200.0).view(25, 8) for _ in range(2))
    begun = time.perf_counter()
    found = run(one)
    assert time.perf_counter() - begun < 60
    torch.testing.assert_close((found, one), (function(other), other))


@pytest.mark.parametrize("program", [added_at_indices, set_at_indices], ids=lambda f: f.__name__)
def test_an_index_out_of_range_overwrites_nothing_else(program: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(program, options={"cache": False})
    run(R(50), torch.tensor([1, 2, 3]), torch.ones(3))
    given = R(50)
    found = given.clone()
    with pytest.raises(IndexError):
        run(found, torch.tensor([3, 77, 4]), torch.ones(3))
    assert set((found != given).nonzero().flatten().tolist()) <= {3}
    assert run.ran_compiled, run.eager_reason
