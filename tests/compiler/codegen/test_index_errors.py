"""What eager refuses when it runs, compiled code on a CPU refuses too: indices that are out of range, in
every schedule and under guards, and sources whose extents no shape function compares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import nbcompile
from tests.nightly import few

OPTIONS = {"cache": False, "verify": True}
Program = Callable[[torch.Tensor, torch.Tensor], Any]

ROWS: dict[str, Program] = {  # of six, counted from the end too
    "points": lambda x, i: x[i] * 2,
    "rows": lambda x, i: torch.softmax(x[i], -1),
    "columns": lambda x, i: x[i].sum(0),
    "row sums": lambda x, i: x[i].sum(1),
    "total": lambda x, i: x[i].sum(),
    "positions": lambda x, i: x[i].argmax(1),
    "scan": lambda x, i: x[i].cumsum(1),
    "joined": lambda x, i: torch.cat([x, x[i]]),
    "joined rows": lambda x, i: torch.cat([x, x[i]]).sum(1),
    "joined softmax": lambda x, i: torch.softmax(torch.cat([x[:2], x[i]], 1), -1),
    "joined columns": lambda x, i: torch.cat([x[:2], x[i]], 1).sum(0),
    "padded": lambda x, i: F.pad(x[i], (1, 1)),
    "index_put": lambda x, i: x.index_put((i,), torch.ones(2, 8)),
    "index_put of a sum": lambda x, i: (x + x[i].sum(0)).index_put((i,), x[i], accumulate=True),
    "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
    # nothing that is read depends on these
    "an expanded row": lambda x, i: x[:1].expand(6, 8)[i] * 2,
    "a row of sums, expanded": lambda x, i: (x.sum(0) * 2).expand(6, 8)[i] + 1,
    "equal rows": lambda x, i: (torch.full((6, 8), 3.0) * x[0])[i] + 1,
}
POSITIONS: dict[str, Program] = {  # of six, none negative
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "index_select": lambda x, i: x.index_select(0, i) + 1,
    "embedding": lambda x, i: F.embedding(i, x),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x[:2, :1]),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x[:2, :1], "amax"),
    "index_add": lambda x, i: x.index_add(0, i, x[:2] * 3),
    "index_copy": lambda x, i: x.index_copy(0, i, x[2:4]),
    "gather of one value": lambda x, i: torch.ones(6, 8).gather(0, i[:, None]) * x[0, 0],
    "one row": lambda x, i: x[:1].index_select(0, i // 6) + 1,
    "scattered gather": lambda x, i: x.scatter_add(0, (i % 6)[:, None], x.gather(0, i[:, None])),
}
ELEMENTS: dict[str, Program] = {  # of 48, counted from the end too
    "take": lambda x, i: x.take(i) * 2,
    "put": lambda x, i: x.put(i, x[0, :2]),
}
CASES = [
    *((name, fn, [6, -7], -1) for name, fn in ROWS.items()),
    *((name, fn, [6, -1], 5) for name, fn in POSITIONS.items()),
    *((name, fn, [48, -49], -1) for name, fn in ELEMENTS.items()),
]


@few(3)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("name", "fn", "bad", "good"), CASES, ids=[case[0] for case in CASES])
def test_indices_out_of_range(name: str, fn: Program, bad: list[int], good: int, dynamic: bool) -> None:
    run = nbcompile.compile(fn, options=OPTIONS, dynamic=dynamic)
    x = torch.randn(6, 8)
    for index in (torch.tensor([0, 1]), torch.tensor([0, good])):
        torch.testing.assert_close(run(x, index), fn(x, index))
    for number in (*bad, 2**40, -(2**40), 2**63 - 1, -(2**63)):
        for index in (torch.tensor([0, number]), torch.tensor([number, 1])):
            with pytest.raises((IndexError, RuntimeError), match="out of"):  # ATen's gather raises the latter
                run(x, index)
    assert run.ran_compiled, run.eager_reason


TABLES: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]] = {  # by one index
    "embeddings": lambda x, y, i: F.embedding(i, x) * F.embedding(i, y),
    "gathers": lambda x, y, i: x.gather(0, i[:, None]) + y.gather(0, i[:, None]),
    "sums": lambda x, y, i: (x.index_select(0, i) * y.index_select(0, i)).sum(1),
    "rows and columns": lambda x, y, i: (x @ y.t()).index_select(0, i).gather(1, i[:, None]) * 2,
}


@few(3)
@pytest.mark.parametrize("sizes", [(100, 10), (10, 100)])
@pytest.mark.parametrize("name", TABLES)
def test_one_index_into_two_tables(name: str, sizes: tuple[int, int]) -> None:
    """What the larger table holds is out of range in the smaller; a product of both ends is in no memory."""
    run = nbcompile.compile(TABLES[name], options=OPTIONS)
    x, y = (torch.randn(size, 8) for size in sizes)
    good = torch.tensor([3, 9, 0])
    torch.testing.assert_close(run(x, y, good), TABLES[name](x, y, good))
    for number in (10, 50, 99, 100, -1):
        with pytest.raises(IndexError, match="out of"):
            run(x, y, torch.tensor([3, number, 0]))
    assert run.ran_compiled, run.eager_reason


SOURCES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "index_add": lambda x, s: x.index_add(0, torch.tensor([0, 1]), s),
    "index_reduce": lambda x, s: x.index_reduce(0, torch.tensor([0, 1]), s, "amax"),
    "index_put": lambda x, s: x.index_put((torch.tensor([0, 1]),), s),
    "slice_scatter": lambda x, s: x.slice_scatter(s, 0, 0, 2),
    "diagonal_scatter": lambda x, s: x.diagonal_scatter(s[0]),
}


@few(2)
@pytest.mark.parametrize("columns", [8, 3])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", SOURCES)
def test_sources_of_other_extents(name: str, dynamic: bool, columns: int) -> None:
    fn = SOURCES[name]
    run = nbcompile.compile(fn, options=OPTIONS, dynamic=dynamic)
    x, fits, other = torch.randn(6, 4), torch.randn(2, 4), torch.randn(2, columns)
    with pytest.raises(RuntimeError):
        fn(x, other)
    with pytest.raises(RuntimeError):
        run(x, other)
    again = nbcompile.compile(fn, options=OPTIONS, dynamic=dynamic)
    torch.testing.assert_close(again(x, fits), fn(x, fits))
    assert again.ran_compiled, again.eager_reason
    with pytest.raises(RuntimeError):
        again(x, other)


@pytest.mark.parametrize("name", ["an expanded row", "equal rows", "one row"])
def test_where_no_kernel_checks_indices_they_need_not_be_read(name: str) -> None:
    """A GPU's kernels mask what is out of range; what is picked from what is equal everywhere is in one."""
    fn = {**ROWS, **POSITIONS}[name]
    run = nbcompile.compile(fn, options={**OPTIONS, "interpret": True})
    x, index = torch.randn(6, 8), torch.tensor([0, 5])
    torch.testing.assert_close(run(x, index), fn(x, index))
    assert run.ran_compiled and len(run.compilation.kernels) == 1, run.eager_reason


CLASSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mean": F.cross_entropy,
    "smoothed": lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    "each": lambda x, y: F.nll_loss(x.log_softmax(1), y, reduction="none"),
    "pixels": lambda x, y: F.cross_entropy(x.view(4, 5, 1, 1), y.view(4, 1, 1)),
    "trained": lambda x, y: F.cross_entropy(x.clone().requires_grad_(), y),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_that_is_none_is_eagers_error(name: str) -> None:
    """torch makes a ``gather`` of a loss, which raises another type of error."""
    run, x = nbcompile.compile(CLASSES[name], options=OPTIONS), torch.randn(4, 5)
    for wrong in (5, -1):
        with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
            run(x, torch.tensor([0, wrong, 1, 2]))
    good = torch.tensor([0, -100, 1, 2])
    torch.testing.assert_close(run(x, good), CLASSES[name](x, good))
    with pytest.raises(IndexError):
        run(x, torch.tensor([0, 5, 1, 2]))
    assert run.ran_compiled, run.eager_reason


@pytest.mark.parametrize("kind", [IndexError, RuntimeError])
def test_whoever_catches_eagers_error_catches_a_kernels(kind: type[Exception]) -> None:
    """Eager raises RuntimeError here, and IndexError for ``x[i] = 1``; a graph that overwrites is not run
    again in ATen."""
    run = nbcompile.compile(lambda x, i: x.index_add_(0, i, x.new_ones(2, 5)), options=OPTIONS)
    with pytest.raises(kind):
        run(torch.ones(4, 5), torch.tensor([0, 9]))
    assert run.ran_compiled, run.eager_reason
