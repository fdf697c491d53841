"""Inference engines behind AOTAutograd: the same cases for all of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nbcompile.api import compile as nb_compile
from nbcompile.record.compilation import Graph
from tests.backends.engines import ENGINES, bench_programs, in_a_cell, run
from tests.nightly import few, soon

engines = pytest.mark.parametrize("backend", ENGINES)
TWELVE = [program.name for program in bench_programs().TWELVE]


def in_float64(value: Any) -> Any:
    if isinstance(value, nn.Module):
        return copy.deepcopy(value).double()
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def error(got: Tensor, reference: Tensor) -> float:
    return float((got.double() - reference).norm() / reference.double().norm())


@few(2)
@engines
@pytest.mark.parametrize("name", TWELVE)
def test_the_twelve_programs(backend: str, name: str) -> None:
    fn, args = bench_programs().build(name, quick=True)
    with torch.no_grad():
        eager, reference = fn(*args), in_float64(fn)(*map(in_float64, args))
        got, compiled = run(backend, fn, *args)
    assert compiled.ran_compiled, compiled.eager_reason
    for mine, theirs, exact in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, eager, reference))):
        assert mine.dtype == theirs.dtype and mine.stride() == theirs.stride()
        if not mine.is_floating_point():
            assert torch.equal(mine, theirs)
        else:
            assert error(mine, exact) <= 4 * error(theirs, exact) + 1e-6


def test_there_are_twelve() -> None:
    assert len(set(TWELVE)) == 12


HELD = torch.arange(3.0)


def of_many_kinds(x: Tensor, changed: Tensor, none: Tensor, scalar: Tensor, yes: Tensor, n: Tensor) -> Any:
    """Outputs given twice, inputs returned, changed and empty, constants, numbers, views and strides."""
    changed.add_(1)
    twice = x.t() @ x + HELD
    numbers = (n * 3 - n, ~yes | (n > 1), torch.ones(2), 7, None)
    return twice, twice, x, (x * 2).t(), changed * 2, none + 1, none.sum(0), scalar * 2, x.sum(), *numbers


@few(1)
@engines
def test_values_of_many_kinds(backend: str) -> None:
    def arguments() -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        x, yes = torch.randn(3, 5).t(), torch.tensor([True, False])
        return x, torch.randn(3), torch.empty(0, 4), torch.tensor(2.0), yes, torch.tensor([1, 2])

    first, second = arguments(), arguments()
    got, compiled = run(backend, of_many_kinds, *second)
    assert compiled.ran_compiled, compiled.eager_reason
    expected = of_many_kinds(*first)
    torch.testing.assert_close(got, expected)
    assert got[0] is got[1] and got[2] is second[0]
    assert [x.stride() for x in got[:9]] == [x.stride() for x in expected[:9]]
    torch.testing.assert_close(second, first)  # what was changed


@few(1)
@engines
def test_parameters_changed_in_place_are_seen(backend: str) -> None:
    layer = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    with torch.no_grad():
        _, compiled = run(backend, layer, x)
        layer.weight.add_(1)
        torch.testing.assert_close(compiled(x), layer(x))
        layer.weight.data.mul_(3)  # which leaves the version as it was
        torch.testing.assert_close(compiled(x), layer(x))
    assert compiled.ran_compiled


@pytest.mark.parametrize("backend", soon(["openvino"], ENGINES))
def test_gradients(backend: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU(), nn.BatchNorm1d(6), nn.Linear(6, 3))
    other = copy.deepcopy(model)
    x, target = torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    F.cross_entropy(other(x), target).backward()
    compiled = nb_compile(lambda x: F.cross_entropy(model(x), target), backend=backend)
    compiled(x).backward()
    assert compiled.ran_compiled, compiled.eager_reason
    for mine, theirs in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(dict(model.named_buffers()), dict(other.named_buffers()))  # running means
    assert {"g0.joint", "g0.bw", "g0.bw.fused"} <= {graph.id for graph in compiled.compilation.graphs}


@pytest.mark.parametrize("backend", soon(["openvino"], ENGINES))
def test_sizes_that_change(backend: str) -> None:
    def f(x: Tensor) -> Tensor:
        return torch.softmax(x * x.shape[0], -1)

    compiled = nb_compile(f, backend=backend, dynamic=True)
    for rows in (3, 5, 3):
        x = torch.randn(rows, rows + 1)
        torch.testing.assert_close(compiled(x), f(x))
    assert compiled.ran_compiled
    assert len(compiled.recorder.parts(Graph)) == 3  # FX, ATen, and the engine's: nothing was captured again
    assert f"{backend} compiles graph g0.fw anew for each set of sizes" in compiled.compilation.notes


@few(1)
@engines
def test_what_it_lacks_is_named_with_its_line(backend: str) -> None:
    f = in_a_cell("def f(x):\n    y = x + 1\n    z, _ = torch.cummax(y, 0)\n    return z * 2\n")
    x = torch.randn(4, 4)
    got, compiled = run(backend, f, x)
    torch.testing.assert_close(got, f(x))
    assert "has no aten.cummax.default of f32" in compiled.eager_reason
    (note,) = compiled.compilation.notes
    assert note.startswith("line 3: graph g0.fw runs eagerly: ")


@engines
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("F.dropout(x)", "aten.native_dropout.default draws random numbers"),
        ("torch.view_as_real(torch.fft.fft(x))", "has no complex64"),
        ("torch.linalg.inv(x)", "has effects"),
    ],
)
def test_what_no_engine_does_as_eager_does(backend: str, statement: str, reason: str) -> None:
    f = in_a_cell(f"def f(x):\n    return {statement}\n")
    x = torch.randn(4, 4)
    torch.manual_seed(0)
    got, compiled = run(backend, f, x)
    torch.manual_seed(0)
    torch.testing.assert_close(got, f(x))
    assert not compiled.ran_compiled and reason in compiled.eager_reason
    assert compiled.compilation.notes[0].startswith("line 2: ")


@few(1)
@engines
def test_indices(backend: str) -> None:
    def f(x: Tensor, i: Tensor) -> Tensor:
        return x[i] + x[-1]

    x = torch.randn(5, 3)
    got, compiled = run(backend, f, x, torch.tensor([-1, 0, -5, 4]))
    torch.testing.assert_close(got, f(x, torch.tensor([-1, 0, -5, 4])))
    with pytest.raises(IndexError, match="out of bounds"):
        compiled(x, torch.tensor([-1, 0, 5, 4]))
    torch.testing.assert_close(compiled(x, torch.tensor([1, 1, 1, 1])), f(x, torch.tensor([1, 1, 1, 1])))
    assert compiled.ran_compiled  # the program was at fault


@few(1)
@engines
def test_what_the_engine_made_is_shown(backend: str) -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return torch.softmax(F.gelu(x @ w), -1)

    _, compiled = run(backend, f, torch.randn(4, 8), torch.randn(8, 8))
    record = compiled.compilation
    fused, aten = record.graph("g0.fw.fused"), record.graph("g0.fw")
    assert fused.parent == "g0.fw" and fused.text and "softmax" in fused.text.lower()
    assert fused.nodes and fused.nodes[-1].inputs and "softmax" in fused.nodes[-1].op.lower()
    if backend != "tvm":  # whose importer keeps no names
        (softmax,) = [node.id for node in aten.nodes if node.op == "aten._softmax.default"]
        assert fused.nodes[-1].origins == (softmax,)
    assert [step.after for step in record.passes if step.name == backend and step.after] == ["g0.fw.fused"]
