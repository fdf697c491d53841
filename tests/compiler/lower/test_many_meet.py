"""Many numbers of a half type that meet in one element: 1 added to 256 of bfloat16 is 256."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import nbcompile
from tests.nightly import few

HALVES = [torch.bfloat16, torch.float16]
COUNT = 20_000


def _gradient(read: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def program(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
        w = x.detach().requires_grad_()
        return torch.autograd.grad((read(w, index) * source).sum(), w)[0]

    return program


PROGRAMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "scatter_add": lambda x, i, s: x.scatter_add(0, i[:, None].expand(-1, 2), s * 1),
    "scatter, add": lambda x, i, s: x.scatter(0, i[:, None].expand(-1, 2), s * 1, reduce="add"),
    "scatter_reduce, sum": lambda x, i, s: x.scatter_reduce(0, i[:, None].expand(-1, 2), s * 1, "sum"),
    "scatter_reduce, mean": lambda x, i, s: x.scatter_reduce(0, i[:, None].expand(-1, 2), s * 1, "mean"),
    "gradient of gather": _gradient(lambda w, i: w.gather(0, i[:, None].expand(-1, 2))),
    "gradient of index_select": _gradient(lambda w, i: w.index_select(0, i)),
}


@few(3)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_lost_that_eager_keeps(name: str, dtype: torch.dtype, dynamic: bool | None) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    x, source = torch.rand(3, 2).to(dtype), torch.rand(COUNT, 2).to(dtype)
    index = torch.randint(0, 3, (COUNT,))
    program = PROGRAMS[name]
    compiled = nbcompile.compile(program, dynamic=dynamic)
    found, eager = compiled(x, index, source), program(x, index, source)
    exact = program(x.double(), index, source.double())
    assert compiled.compilation.kernels
    assert found.dtype == dtype and found.stride() == eager.stride()

    def error(made: Tensor) -> float:
        return float(((made.double() - exact) / exact).abs().max())

    assert error(found) <= max(2 * error(eager), 2 * torch.finfo(dtype).eps)


def test_a_few_slices_into_many_are_no_reason_for_a_wider_copy() -> None:
    torch._dynamo.reset()
    x, rows = torch.rand(500, 8).bfloat16(), torch.rand(3, 8).bfloat16()
    compiled = nbcompile.compile(lambda x, rows: x.index_add(0, torch.tensor([3, 7, 3]), rows))
    torch.testing.assert_close(compiled(x, rows), x.index_add(0, torch.tensor([3, 7, 3]), rows))
    (kernel,) = compiled.compilation.kernels
    assert kernel.bytes_written <= 2 * 500 * 8 * 2
