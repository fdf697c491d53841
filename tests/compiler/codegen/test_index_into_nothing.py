"""An index into a dimension without elements, or of a number that is taken for one element: no kernel reads
what is not there, and what eager refuses is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import nbcompile
from tests.nightly import few

OPTIONS = {"cache": False}
Program = Callable[..., Any]
AT_ZERO = torch.tensor([0])
REFUSED = (IndexError, RuntimeError)  # which of them, eager's own operators do not agree on

ROWS: dict[str, Program] = {  # of a tensor without any
    "index": lambda x, i: x[i] * 2,
    "constant": lambda x, i: x[torch.tensor([0])] * 2,
    "index_select": lambda x, i: x.index_select(0, i) * 2,
    "gather": lambda x, i: x.gather(0, i[:, None].expand(len(i), 4)) * 2,
    "embedding": lambda x, i: F.embedding(i, x) * 2,
    "take": lambda x, i: torch.take(x, i) * 2,
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_none(name: str) -> None:
    fn = ROWS[name]
    run = nbcompile.compile(fn, options=OPTIONS)
    for f in (fn, run):
        with pytest.raises(REFUSED):
            f(torch.randn(0, 4), AT_ZERO)
    again = nbcompile.compile(fn, options=OPTIONS)
    if name != "constant":
        torch.testing.assert_close(again(torch.randn(0, 4), AT_ZERO[:0]), fn(torch.randn(0, 4), AT_ZERO[:0]))


WRITTEN: dict[str, Program] = {
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None].expand(len(i), 4), torch.ones(1, 4)).sum(),
    "scatter_reduce": lambda x, i: x.scatter_reduce(
        0, i[:, None].expand(len(i), 4), torch.ones(1, 4), "amax"
    ).sum(),
    "index_put": lambda x, i: x.index_put((i,), torch.ones(1, 4)).sum(),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0).sum(),
}
PICKED: dict[str, Program] = {
    **{name: fn for name, fn in ROWS.items() if name != "constant"},
    "chosen": lambda x, i: torch.where(i[:, None] > 5, x[i], 0.0),
    "sums": lambda x, i: x[i].sum(1),
    "total": lambda x, i: x[i].sum(),
    "nearest": lambda x, i: F.interpolate(x[None, None], size=(4, 4), mode="nearest") + i,
    "bilinear": lambda x, i: F.interpolate(x[None, None], size=(4, 4), mode="bilinear") + i,
}


@few(4)
@pytest.mark.parametrize("name", [*PICKED, *WRITTEN])
def test_rows_of_which_data_decide_how_many(name: str, sizes_of_data_captured: None) -> None:
    fn = {**PICKED, **WRITTEN}[name]

    def program(mask: torch.Tensor, x: torch.Tensor, i: torch.Tensor) -> Any:
        return fn(x[mask] * 2, i)

    run = nbcompile.compile(program, options=OPTIONS)
    x, every = torch.randn(6, 4), torch.ones(6, dtype=torch.bool)
    torch.testing.assert_close(run(every, x, AT_ZERO), program(every, x, AT_ZERO))
    with pytest.raises(REFUSED):
        run(~every, x, AT_ZERO)
    torch.testing.assert_close(run(every, x, AT_ZERO), program(every, x, AT_ZERO))
    assert run.ran_compiled, run.eager_reason
    for kernel in run.compilation.kernels:
        linked = {link.line for link in kernel.line_map if link.origins}
        lines = enumerate(kernel.sources["c"].split("\n"), start=1)
        assert all(number in linked for number, line in lines if line.endswith("{ *status = 1; return; }"))


NUMBERS: dict[str, Program] = {  # a 0-d tensor counts as one element
    "index_select": lambda x, i: (x * 2).index_select(0, i),
    "gather": lambda x, i: (x * 2).gather(0, i),
    "index_copy": lambda x, i: (x * 2).index_copy(0, i, torch.ones(1)),
    "index_fill": lambda x, i: (x * 2).index_fill(0, i, 1.0),
    "take": lambda x, i: torch.take(x * 2, i),
    "scatter": lambda x, i: (x * 2).scatter(0, i, 1.0),
    "scatter_add": lambda x, i: (x * 2).scatter_add(0, i, torch.ones(1)),
    "scatter_reduce": lambda x, i: (x * 2).scatter_reduce(0, i, torch.ones(1), "amax"),
    "put": lambda x, i: (x * 2).put(i, torch.ones(1)),
}


@few(4)
@pytest.mark.parametrize("name", NUMBERS)
def test_an_index_of_a_number(name: str) -> None:
    fn, x = NUMBERS[name], torch.tensor(2.5)
    run = nbcompile.compile(fn, options=OPTIONS)
    torch.testing.assert_close(run(x, AT_ZERO), fn(x, AT_ZERO))
    for f in (fn, run):
        with pytest.raises(REFUSED):
            f(x, torch.tensor([3]))


REDUCED: dict[str, tuple[Program, tuple[int, ...]]] = {
    "max": (lambda x: (x * 2).max(0), (0, 4)),
    "min": (lambda x: (x * 2).min(0), (0, 4)),
    "as_strided": (lambda x: (x * 2).as_strided((2, 2), (1, 2)) + 1, (0, 3)),
    "as_strided of the input": (lambda x: x.as_strided((2, 2), (1, 2)) + 1, (0, 3)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (2, 2)) * 2, (1, 1, 0, 3)),
    "area": (lambda x: F.interpolate(x, size=(4, 4), mode="area") * 2, (1, 1, 0, 3)),
    "nearest": (lambda x: F.interpolate(x, size=(4, 4), mode="nearest") * 2, (1, 1, 0, 3)),
    "nearest-exact": (lambda x: F.interpolate(x, size=(4, 4), mode="nearest-exact") * 2, (1, 1, 0, 3)),
    "bilinear": (lambda x: F.interpolate(x, size=(4, 4), mode="bilinear") * 2, (1, 1, 0, 3)),
    "bicubic": (lambda x: F.interpolate(x, size=(4, 4), mode="bicubic") * 2, (1, 1, 0, 3)),
}


@few(4)
@pytest.mark.parametrize("name", REDUCED)
def test_what_no_elements_have_none_of(name: str) -> None:
    fn, shape = REDUCED[name]
    for f in (fn, nbcompile.compile(fn, options=OPTIONS)):
        with pytest.raises(REFUSED):
            f(torch.randn(shape))


@pytest.mark.parametrize("correction", [1, 0, -5])
def test_the_variance_of_nothing_is_no_number(correction: int) -> None:
    run = nbcompile.compile(
        lambda x: torch.stack([x.var(correction=correction), x.std(correction=correction)]), options=OPTIONS
    )
    assert run(torch.randn(0, 4)).isnan().all() and run.ran_compiled
