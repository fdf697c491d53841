"""Long sums of floats: added up in float32 a piece at a time, the pieces in double."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor

FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "row": (lambda x: x.sum(-1), (7, 1000)),
    "row of equal pieces": (lambda x: x.exp().mean(-1), (5, 4096)),
    "row of one piece and one element": (lambda x: x.sum(-1), (3, 769)),
    "everything": (lambda x: (x.sin() ** 2).sum(), (300, 1000)),
    "everything of a little": (lambda x: x.sum(), (11, 100)),
    "several axes": (lambda x: x.var((0, 2)), (6, 5, 900)),
    "short rows of several axes": (lambda x: x.sum((0, 2)), (60, 5, 33)),
    "column": (lambda x: x.sum(0), (2000, 9)),
    "column of each image": (lambda x: (x * 2).sum(1), (3, 2000, 40)),
    "columns in two passes": (lambda x: x.softmax(0), (2000, 40)),
    "variance of columns": (lambda x: x.var(1), (3, 900, 40)),
    "product": (lambda x: (1 + x * 1e-3).prod(-1), (4, 1500)),
    "parts with a border within a piece": (lambda x: torch.cat([x[:, :700], x.exp()], 1).sum(1), (5, 1000)),
    "padded": (lambda x: F.pad(x, (3, 2), value=0.5).sum(1), (5, 1600)),
    "beside an extreme": (lambda x: x.logsumexp(-1) + x.amax(-1) + x.argmax(-1), (6, 1300)),
    "one at a time": (lambda x: torch.fmod(x, 0.7).sum(-1), (2, 1000)),
    "each row, then all": (lambda x: (x - x.mean(-1, keepdim=True)).square().mean().sqrt(), (40, 1111)),
}

OF_FLOATS = ("one at a time", "product")  # of halves eager rounds what it then adds up or multiplies


@few(17)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_further_from_float64_than_eager(name: str, dynamic: bool) -> None:
    function, shape = FUNCTIONS[name]
    torch._dynamo.reset()
    run = nbcompile.compile(function, dynamic=dynamic, options={"cache": False})
    for dtype in (torch.float32, torch.bfloat16) if name not in OF_FLOATS else (torch.float32,):
        ours, theirs, rounding = 0.0, 0.0, 0.0
        for seed in range(4):  # one sum may be off by several roundings, with whatever vectors it is made
            x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
            found, eager, exact = run(x), function(x), function(x.double())
            rounding += torch.finfo(dtype).eps * exact.abs().max().item()
            ours += (found - exact).abs().max().item()
            theirs += (eager - exact).abs().max().item()
        assert ours <= 2 * theirs + rounding
    left = run.compilation.library_calls
    assert run.ran_compiled and not left, run.eager_reason


def test_what_is_no_number_comes_through() -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(lambda x: (x.sum(-1), x.mean()), options={"cache": False})
    for value in (torch.inf, -torch.inf, torch.nan):
        x = torch.randn(4, 1000)
        x[1, 3], x[2, 999] = value, value
        for found, expected in zip(run(x), (x.sum(-1), x.mean()), strict=True):
            torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize(
    ("columns", "pieces"), [(768, 0), (769, 400), (1000, 512), (1024, 512), (4096, 512), (3072, 768)]
)
def test_the_pieces_of_a_row(columns: int, pieces: int) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(lambda x: x.sum(-1), options={"cache": False})
    run(torch.randn(8, columns))
    text = run.compilation.kernels[0].sources["c"]
    assert re.findall(r"_block \+= (\d+)", text) == ([str(pieces)] if pieces else [])
    assert ("double" in text) == (pieces > 0) and text.count("reduction(+:") == 1


AT_ONCE: dict[str, tuple[Callable[..., tuple[Tensor, ...]], tuple[tuple[int, ...], ...], int]] = {
    "a sum": (lambda x: (x.sum(0),), ((2000, 48),), 8),
    "sums of two tensors": (lambda x, y: (x.sum(0), (x * y).sum(0)), ((2000, 48), (2000, 48)), 4),
    "a store beside": (lambda x: (x.relu(), x.sum(0)), ((2000, 48),), 4),
    "five rows": (lambda x: (x.sum(0),), ((2005, 48),), 5),
    "rows of a prime number": (lambda x: (x.sum(0),), ((2003, 48),), 0),
    "what costs more than a sum": (lambda x: (x.exp().sum(0),), ((2000, 48),), 0),
    "rows with parts": (lambda x, y: (torch.cat([x, y], 1).sum(0),), ((2000, 20), (2000, 28)), 0),
    "a row's number": (lambda x, y: ((x * y).sum(0),), ((2000, 48), (2000, 1)), 4),
    "a column's number": (lambda x, y: ((x - y).square().sum(0),), ((2000, 48), (48,)), 8),
    "the mean of all beside": (lambda x: (x.sum(0), x.square().mean()), ((2000, 48),), 8),
    "a batch norm's gradient": (
        lambda x, g, m: (torch.where(x > 0, g, 0.0).sum(0), (g * (x - m)).sum(0)),
        ((800, 64), (800, 64), (64,)), 4,
    ),
}  # fmt: skip


@few(11)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", AT_ONCE)
def test_several_rows_are_added_to_their_columns_at_once(name: str, dtype: torch.dtype) -> None:
    function, shapes, rows = AT_ONCE[name]
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    given = [torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype) for shape in shapes]
    given[0][3, 5], given[0][7, 2] = torch.nan, torch.inf
    exact = function(*(x.double() for x in given))
    for found, eager, known in zip(run(*given), function(*given), exact, strict=True):
        assert torch.equal(found.isnan(), eager.isnan()) and torch.equal(found.isinf(), eager.isinf())
        plain = known.isfinite()
        if not plain.any():
            continue
        found, eager, known = (x[plain].double() for x in (found, eager, known))
        rounding = torch.finfo(dtype).eps * known.abs().max()
        assert (found - known).abs().max() <= 2 * (eager - known).abs().max() + rounding
    assert run.ran_compiled and not run.compilation.library_calls, run.eager_reason
    texts = "".join(kernel.sources["c"] for kernel in run.compilation.kernels)
    assert re.findall(r"GCC unroll (\d+)", texts) == ([str(rows)] if rows else [])
