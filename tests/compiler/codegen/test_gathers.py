"""Kernels that read at positions found in a tensor: each position is checked wherever it is used."""

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from tests.compiler.codegen.running import aten_of, compile_aten
from tests.nightly import few


def _lines(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).contiguous()


PROGRAMS = {
    # in a kernel that walks columns: made once a column
    "target of a column": lambda w, i: w.log_softmax(0).gather(0, i[None, :4]),
    "columns that read": lambda w, i: w.softmax(0)[:3] * 2 + w[i].amax(0),
    # where a guard says so, in each kind of kernel
    "sum of all": lambda w, i: F.pad(w[i], (0, 0, 1, 1)).sum(),
    "sums of rows": lambda w, i: F.pad(w[i], (1, 1, 1, 1)).sum(1),
    "sums of columns": lambda w, i: F.pad(w[i], (1, 1, 1, 1)).sum(0),
    "rows": lambda w, i: torch.cat([w[i], w]).softmax(1),
    "columns": lambda w, i: torch.cat([w, w[i]]).softmax(0),
    "points": lambda w, i: F.pad(w[i], (1, 1, 1, 1)),
    "in other order": lambda w, i: F.pad(_lines(w[i]), (1, 1, 1, 1)),
    "a guard in a guard": lambda w, i: F.pad(torch.cat([w, w[i]]), (1, 1, 1, 1)).sum(1),
    "below the diagonal": lambda w, i: torch.tril(w[i]).sum(0),
}


@few(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gathered_position_is_checked(name):
    program = PROGRAMS[name]
    weight = torch.randn(9, 6, generator=torch.Generator().manual_seed(0))
    if name == "target of a column":
        weight = weight[:, :4].contiguous()
    places, wrong = torch.tensor([1, 8, 2, 0]), torch.tensor([1, 3, 9, 0])
    run = compile_aten(aten_of(program, weight, places))
    torch.testing.assert_close(run([weight, places])[0], program(weight, places))
    with pytest.raises(IndexError, match="out of range"):
        run([weight, wrong])


def _at_constants(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    zero = x[i]
    zero.transpose(0, -1).zero_()
    return torch.cat([x, i])[zero], torch.cat([i, x])[zero + 3]


@pytest.mark.parametrize("options", [{}, {"interpret": True}], ids=["c", "triton"])
def test_guards_of_known_positions(options):
    """What a guard tests may be numbers of Python's: ``~`` of such is no opposite."""
    if options:
        pytest.importorskip("triton")
    x, i = torch.tensor([3, 5]), torch.tensor([1, 0])
    run = nbcompile.compile(_at_constants, options={**options, "cache": False})
    assert [item.tolist() for item in run(x, i)] == [[3, 3], [5, 5]]
    assert run.ran_compiled


def test_triton_takes_guards_of_known_positions():
    pytest.importorskip("triton")
    x, i = torch.tensor([3, 5]), torch.tensor([1, 0])
    run = nbcompile.compile(_at_constants, options={"target": "cuda:90", "cache": False})
    run(x, i)
    assert run.compilation.kernels and all("ptx" in kernel.sources for kernel in run.compilation.kernels)
