"""Sizes that depend on data (what ``nonzero`` finds, what ``item`` gives) stay in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.compiler.fuse.dependencies import dependencies
from nbcompile.compiler.loop_ir.expr import SizeComparison, constant
from nbcompile.compiler.loop_ir.index import ONE, Axis, Size, index
from nbcompile.compiler.loop_ir.nodes import Buffer, LibraryCall, Loop, LoopProgram, View
from nbcompile.compiler.lower.sizes_of_data import checked
from tests.nightly import few

Tensor = torch.Tensor


pytestmark = pytest.mark.usefixtures("sizes_of_data_captured")


def masked_sum(x: Tensor) -> Tensor:
    return x[x > 0].sum() * 2


def picked(x: Tensor) -> Tensor:
    found = x[x > 0]
    return (found * 2 + 1).sin() / (found.abs() + 1)


def places(x: Tensor) -> tuple[Tensor, Tensor]:
    found = torch.nonzero(x > 0)
    return found.float().mean(0) + 1, found[:, 1] * 3


def two_of_them(x: Tensor) -> tuple[Tensor, Tensor]:
    high, low = x[x > 0.5], x[x < -0.5]
    return high.exp().sum() - low.exp().sum(), torch.cat([high * 2, low * 3])


def normalised(x: Tensor) -> Tensor:
    rows = x[x.sum(1) > 0]
    return torch.softmax(rows, -1) @ rows.t()


def counted(x: Tensor) -> Tensor:
    count = (x > 0).sum().item()
    return torch.arange(count, device=x.device).float().sin() * 2


def shortened(x: Tensor) -> Tensor:
    count = (x[:, 0] > 0).sum().item()
    torch._check(count <= x.shape[0])
    return x.narrow(0, 0, count).exp() + torch.zeros(count, x.shape[1], device=x.device)


def unique(x: Tensor) -> Tensor:
    values, where = torch.unique((x * 2).int(), return_inverse=True)
    return (values.float() * 2 + 1)[where]


FUNCTIONS = [masked_sum, picked, places, two_of_them, normalised, counted, shortened, unique]


@few(2)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_each_call_has_its_own_sizes(function: Callable[[Tensor], Any], dynamic: bool | None) -> None:
    run = nbcompile.compile(function, options={"cache": False}, dynamic=dynamic)
    for seed, shift in enumerate((0.0, 1.0, -10.0, 10.0)):  # some, more, none, all
        torch.manual_seed(seed)
        x = torch.randn(6, 5) + shift
        torch.testing.assert_close(run(x), function(x), equal_nan=True)
    assert run.ran_compiled, run.eager_reason
    assert run.compilation.kernels and not run.compilation.breaks
    assert len({graph.id for graph in run.compilation.graphs if graph.stage == "forward"}) == 1


@few(3)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_kernels_for_a_gpu_have_such_sizes_too(function: Callable[[Tensor], Any]) -> None:
    pytest.importorskip("triton")
    run = nbcompile.compile(function, options={"cache": False, "interpret": True, "target": "cuda:90"})
    for seed, shift in enumerate((0.0, -10.0, 10.0)):  # some, none, all
        torch.manual_seed(seed)
        x = torch.randn(6, 5) + shift
        torch.testing.assert_close(run(x), function(x), equal_nan=True)
    assert run.ran_compiled and not run.recorder.ran_eagerly, run.eager_reason


@pytest.mark.parametrize("dynamic", [None, True])
def test_positions_have_64_bits_where_no_guard_keeps_them_in_32(dynamic: bool | None) -> None:
    """Of a tensor of fixed sizes, it is known how many elements are picked at most."""
    pytest.importorskip("triton")
    options = {"cache": False, "interpret": True, "target": "cuda:90"}
    run = nbcompile.compile(picked, options=options, dynamic=dynamic)
    run(torch.randn(6, 5))
    (kernel,) = (item for item in run.compilation.kernels if "u0" in item.sources["triton"])
    assert ("tl.int64" in kernel.sources["triton"]) == bool(dynamic)


@few(1)
@pytest.mark.parametrize("function", [masked_sum, picked, two_of_them, normalised])
def test_gradients(function: Callable[[Tensor], Any]) -> None:
    run = nbcompile.compile(function, options={"cache": False})
    for seed in range(3):
        torch.manual_seed(seed)
        own = torch.randn(6, 5, requires_grad=True)
        other = own.detach().clone().requires_grad_()
        for made, x in ((run(own), own), (function(other), other)):
            first = made[0] if isinstance(made, tuple) else made
            first.sum().backward()
            assert x.grad is not None
        torch.testing.assert_close(own.grad, other.grad)
    assert run.ran_compiled, run.eager_reason


@pytest.mark.parametrize("name", ["amax", "argmin", "max"])
def test_an_extreme_of_nothing_is_refused_as_by_eager(name: str) -> None:
    def function(x: Tensor) -> Any:
        return getattr(torch, name)(x[x > 0], 0)

    run = nbcompile.compile(function, options={"cache": False})
    x = torch.randn(20)
    torch.testing.assert_close(tuple(torch.atleast_1d(run(x))), tuple(torch.atleast_1d(function(x))))
    for each in (function, run):  # torch checks the size before, in a graph
        with pytest.raises((IndexError, RuntimeError), match=r"non-zero size|assertion failed"):
            each(-x.abs())
    assert run.ran_compiled, run.eager_reason


def test_what_the_program_checks_is_checked() -> None:
    def function(x: Tensor) -> Tensor:
        count = x.sum().int().item()
        torch._check(count >= 2, lambda: "at least two")
        torch._check(count <= 8)
        return torch.ones(count) * 3

    run = nbcompile.compile(function, options={"cache": False})
    assert torch.equal(run(torch.ones(5)), torch.full((5,), 3.0))
    for length in (1, 9):
        with pytest.raises(RuntimeError, match=r"u0|at least two"):
            run(torch.ones(length))
    assert torch.equal(run(torch.ones(8)), torch.full((8,), 3.0))
    assert run.ran_compiled, run.eager_reason


def test_the_wrapper_learns_the_size_from_the_call() -> None:
    run = nbcompile.compile(masked_sum, options={"cache": False})
    run(torch.randn(6, 5))
    calls = [node for node in run.compilation.fused_nodes if node.kind in ("library", "fallback")]
    assert any("index" in node.op for node in calls)
    assert any(
        "u0" in str(source) for kernel in run.compilation.kernels for source in kernel.sources.values()
    )


def test_a_check_is_relied_on_where_nothing_needs_its_size_before() -> None:
    x, size = Buffer("x", (index(4),), (ONE,), torch.int64, "input"), index(Size("u0", 3, 0))
    found = Buffer("found", (size,), (ONE,), torch.int64)
    call = LibraryCall("c0", "unique", torch.unique, (View.whole(x),), {}, (found,))
    comparison = SizeComparison(size, "<=", index(4))
    check = LibraryCall("c1", "check", torch.ops.aten._assert_scalar.default, (comparison, "few"), {}, ())
    axis = Axis("i", size)
    made = Buffer("made", (size,), (ONE,), torch.int64)
    loop = Loop("l0", (made,), (axis,), constant(1, torch.int64))
    early, late = (
        LoopProgram("g0.fw", (x,), statements, (View.whole(made),), {}, {}, {}, ())
        for statements in ((call, check, loop), (call, loop, check))
    )
    assert checked(early) == (index(4) - size,) and checked(late) == ()
    assert dependencies(early, {})["l0"] == {"c0", "c1"}


@pytest.mark.parametrize("value", [1.5, -1.5, 0.0])
def test_a_comparison_of_a_float_that_data_tells_is_a_number(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch._dynamo.config, "capture_scalar_outputs", True)

    def function(x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + (s.item() > 0), x * (s.item() >= x.shape[0])

    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    inputs = torch.ones(2), torch.tensor(value)
    torch.testing.assert_close(run(*inputs), function(*inputs))
    assert run.ran_compiled and len(run.graphs_run) == 1, run.eager_reason
