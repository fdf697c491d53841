"""Sizes that no index arithmetic of ours is are computed in Python: one compile for all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.compiler.loop_ir.computed_sizes import (
    ComputedSize,
    PythonNumber,
    base_sizes,
    computed_in,
    told_by,
)
from nbcompile.compiler.loop_ir.expr import Load
from nbcompile.compiler.loop_ir.index import ONE, Axis, Size, index
from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.loop_ir.nodes import Buffer, Loop, LoopProgram, View
from tests.nightly import few

Tensor = torch.Tensor


pytestmark = pytest.mark.usefixtures("sizes_of_data_captured")


def number(n: Tensor) -> int:
    return int((n + 0).item())  # of an argument itself torch guards what it was


def up_to(x: Tensor, n: Tensor) -> Tensor:
    return x[: number(n)] * 2


def from_there(x: Tensor, n: Tensor) -> Tensor:
    return x[number(n) :].sin()


def between(x: Tensor, n: Tensor) -> Tensor:
    return x[number(n) : -1].exp() + 1


def two_parts(x: Tensor, n: Tensor) -> Tensor:
    return x[: number(n)].cos().sum(0) + x[number(n) :].sum(0)


@few(2)
@pytest.mark.parametrize("function", [up_to, from_there, between, two_parts])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_slice_up_to_a_number_that_data_holds(
    function: Callable[[Tensor, Tensor], Tensor], dynamic: bool | None
) -> None:
    """The bounds are those of Python: from the end where negative, and clipped."""
    run = nbcompile.compile(function, options={"cache": False}, dynamic=dynamic)
    x = torch.randn(7, 3)
    for n in (3, 0, 7, 6, 9, 100, -1, -3, -7, -20):
        torch.testing.assert_close(run(x, torch.tensor(n)), function(x, torch.tensor(n)))
    assert run.ran_compiled, run.eager_reason
    assert run.compilation.kernels and not run.compilation.breaks
    assert len([graph for graph in run.compilation.graphs if graph.stage == "forward"]) == 1


def one_row(x: Tensor, n: Tensor) -> Tensor:
    return x[number(n)].sin() * 2


def two_rows(x: Tensor, n: Tensor) -> Tensor:
    return x.narrow(0, number(n), 2).sin()


def a_row_written(x: Tensor, n: Tensor) -> Tensor:
    y = x * 2
    y[number(n)] = 5
    return y.sin()


def rows_written(x: Tensor, n: Tensor) -> Tensor:
    y = x * 2
    y[: number(n)] = 5
    return y.sin()


@few(2)
@pytest.mark.parametrize(
    "function", [up_to, from_there, two_parts, one_row, two_rows, a_row_written, rows_written]
)
def test_its_gradient(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    run = nbcompile.compile(function, options={"cache": False})
    for n in (3, 1, 0, 5, -2):
        own = torch.randn(7, 3, requires_grad=True)
        other = own.detach().clone().requires_grad_()
        run(own, torch.tensor(n)).square().sum().backward()
        function(other, torch.tensor(n)).square().sum().backward()
        torch.testing.assert_close(own.grad, other.grad)
    assert run.ran_compiled, run.eager_reason


def rounded(x: Tensor) -> Tensor:
    return torch.ones(int(x.sum().item())) * 2 + 1


def scaled(x: Tensor) -> Tensor:
    return torch.arange(int(x.mean().item() + 1.5)).cos() + 1


def rows_of_them(x: Tensor) -> Tensor:
    return (torch.zeros(int(x.sum().item()), x.shape[0]) + x).cumsum(0)


@pytest.mark.parametrize("function", [rounded, scaled, rows_of_them])
def test_a_size_of_a_float_that_data_holds(function: Callable[[Tensor], Tensor]) -> None:
    run = nbcompile.compile(function, options={"cache": False})
    for value in (2.3, 4.9, 0.1, 1.0):
        x = torch.full((3,), value)
        torch.testing.assert_close(run(x), function(x))
    assert run.ran_compiled, run.eager_reason
    assert run.compilation.kernels and not run.compilation.breaks
    with pytest.raises(ValueError, match="NaN"):
        run(torch.full((3,), float("nan")))


def diagonal(x: Tensor) -> Tensor:
    return F.pad(x.diagonal(1, 0, 1), (1, 1)) * 2  # Min(s0, s1 - 1)


def at_least_seven(x: Tensor) -> Tensor:
    return torch.cat([x.flatten(), x.new_zeros(max(7, x.shape[0] * 3 - 5))]).cumsum(0)


@few(1)
@pytest.mark.parametrize("function", [diagonal, at_least_seven])
def test_the_least_and_the_greatest_of_sizes(function: Callable[[Tensor], Tensor]) -> None:
    run = nbcompile.compile(function, dynamic=True, options={"cache": False})
    for rows, columns in ((4, 5), (6, 7), (9, 5), (6, 7), (3, 17)):
        own = torch.randn(rows, columns, requires_grad=True)
        other = own.detach().clone().requires_grad_()
        made, wanted = run(own), function(other)
        torch.testing.assert_close(made, wanted)
        made.square().sum().backward()
        wanted.square().sum().backward()
        torch.testing.assert_close(own.grad, other.grad)
    assert run.ran_compiled, run.eager_reason
    assert not [note for note in run.compilation.notes if "sizes of this call alone" in note]
    names = {graph.id for graph in run.compilation.graphs if graph.stage == "forward"}
    assert len(names) <= 2  # torch itself asks on which side of the other an extent is


def filled(x: Tensor) -> Tensor:
    return torch.full((3,), x.sum().item() * 2).cos() + x


def bounded(x: Tensor) -> Tensor:
    return x.clamp(max=x.mean().item()) * 2


def told(x: Tensor) -> Tensor:
    return x * bool((x.sum() > 0).item()) + 1


def two_numbers(x: Tensor) -> Tensor:
    return torch.tensor([x.sum().item(), x.mean().item()]).sin() * 2


@few(2)
@pytest.mark.parametrize("function", [filled, bounded, told, two_numbers])
def test_a_number_of_the_data_costs_the_node_that_takes_it(function: Callable[[Tensor], Tensor]) -> None:
    run = nbcompile.compile(function, options={"cache": False})
    for value in (2.3, -4.0, 0.0):
        x = torch.full((3,), value)
        torch.testing.assert_close(run(x), function(x))
    assert run.ran_compiled, run.eager_reason
    assert run.compilation.kernels and not run.compilation.breaks
    notes = [node.note for node in run.compilation.fused_nodes if node.kind == "fallback"]
    assert function is told or all("a number that Python computes" in note for note in notes)


def test_a_library_is_called_with_a_number_of_sizes() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.addmm(x.sum(0), x, y, alpha=1.5 / x.shape[0]).sin() * 2

    run = nbcompile.compile(function, dynamic=True, options={"cache": False})
    for rows in (3, 5, 8):
        given = torch.randn(rows, 4), torch.randn(4, 4)
        torch.testing.assert_close(run(*given), function(*given))
    assert run.ran_compiled, run.eager_reason
    assert len([graph for graph in run.compilation.graphs if graph.stage == "forward"]) == 1


def test_numbers_of_sizes_are_as_large_as_python_has_them() -> None:
    def function(n: int, x: Tensor) -> list[Tensor]:
        return [x * (n * n * n / 4), torch.full((2,), n**3 / 3.0), x * ((n * n + 1) * n / 2)]

    run = nbcompile.compile(function, dynamic=True, options={"cache": False})
    for n in (7, 3_000_000, 5):
        torch.testing.assert_close(run(n, torch.ones(2)), function(n, torch.ones(2)))
    assert run.ran_compiled, run.eager_reason


def test_a_tensor_called_as_a_size_is() -> None:
    def function(s77: Tensor, size_0: Tensor, u0: Tensor) -> Tensor:
        return s77[: int(size_0.sum().item())] * u0.sum().item()

    run = nbcompile.compile(function, dynamic=True, options={"cache": False})
    for rows in (4, 6):
        given = torch.randn(rows, 3), torch.ones(3), torch.ones(2, dtype=torch.int64)
        torch.testing.assert_close(run(*given), function(*given))
    assert run.ran_compiled, run.eager_reason


def test_a_number_of_numbers() -> None:
    s0 = Size("s0", 5)
    inner = ComputedSize("size_0", 2, 0, PythonNumber("max(0, s0 - 3)", frozenset({"s0"})))
    outer = ComputedSize("size_1", 4, 0, PythonNumber("2*size_0 + u0", frozenset({"s0", "u0"}), (inner,)))
    assert outer.number.value({"s0": 7, "u0": 1}) == 9
    place = index(outer) * 3 + index(s0)
    assert list(computed_in([place])) == ["size_0", "size_1"]
    assert base_sizes([place, PythonNumber("zuf0 * 2", frozenset({"zuf0"}))]) == {"s0", "u0", "zuf0"}
    assert inner.number.value({"s0": 1}) == 0


def test_the_reference_computes_them_too() -> None:
    size = Size("s0", 5, 1)
    less = index(ComputedSize("size_0", 2, 0, PythonNumber("max(0, s0 - 3)", frozenset({"s0"}))))
    x = Buffer("x", (index(size),), (ONE,), torch.float32, "input")
    axis = Axis("i", less)
    made = Buffer("made", (less,), (ONE,), torch.float32)
    loop = Loop("l0", (made,), (axis,), Load("x", (index(axis) + 3,), torch.float32))
    program = LoopProgram("g0.fw", (x,), (loop,), (View.whole(made), less), {}, {}, {}, ())
    for length in (2, 3, 7):
        given = torch.randn(length)
        found, count = interpret(program, [given])
        assert torch.equal(found, given[3:]) and count == max(0, length - 3)


@few(2)
@pytest.mark.parametrize("function", [one_row, two_rows, a_row_written])
def test_a_place_out_of_range_is_refused(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    run = nbcompile.compile(function, options={"cache": False})
    x = torch.randn(7, 3)
    for n in (7, -8):
        with pytest.raises((IndexError, RuntimeError)):
            run(x, torch.tensor(n))
    torch.testing.assert_close(run(x, torch.tensor(2)), function(x, torch.tensor(2)))
    assert run.ran_compiled, run.eager_reason


def test_an_extent_tells_the_one_size_that_it_is_made_of() -> None:
    """A backward graph after a graph break is given a gradient of ``s + 3`` columns, and nothing of ``s``."""
    s, t = (index(Size(name, 8, 2)) for name in "st")
    for extent, size in ((s, 7), (s + 3, 10), (s - 2, 5), (s * 4, 28), (s * 3 + 1, 22)):
        told = told_by(extent)
        assert told is not None and told.size.text == "s"
        assert (size - told.offset) // told.factor == 7 == eval(told.text("size"))
    assert all(told_by(extent) is None for extent in (s + t, s * s, index(5), s // 2, s * t + 1))


@few(1)
@pytest.mark.parametrize("dynamic", [None, True])
def test_backward_of_another_graphs_result_padded(dynamic: bool | None) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        wave = x.sin()
        part = wave[:, -3:-1]
        torch._dynamo.graph_break()
        return F.pad(wave, (1, 3, 1, 2)), part > 0

    run = nbcompile.compile(function, options={"cache": False}, dynamic=dynamic)
    for width in (5, 9, 12):
        x, y = (torch.linspace(-1, 1, 3 * width).reshape(3, width).requires_grad_() for _ in range(2))
        run(x)[0].square().sum().backward()
        function(y)[0].square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert run.ran_compiled and not run.recorder.ran_eagerly, run.eager_reason
