"""Sizes that are symbols of which too little can be said: the graph is compiled for the numbers they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from nbcompile import errors
from nbcompile.compiler.kernel_ir.bounds import Counts, verify_bounds
from nbcompile.compiler.loop_ir.fused import FusedProgram
from tests.nightly import few

Tensor = torch.Tensor


def diagonal(x: Tensor) -> Tensor:
    return F.pad(x.diagonal(1, 0, 1), (1, 1)) * 2  # Min(s0, s1 - 1)


def at_least_seven(x: Tensor) -> Tensor:
    return torch.cat([x.flatten(), x.new_zeros(max(7, x.shape[0] * 3 - 5))]).cumsum(0)


def shorter(x: Tensor) -> Tensor:
    return x[1:].diagonal().relu().roll(1) * 2


@few(1)
@pytest.mark.parametrize("function", [diagonal, at_least_seven, shorter])
@pytest.mark.parametrize("cache", [False, True])
def test_each_size_has_its_own_graph(function: Callable[[Tensor], Tensor], cache: bool) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(function, dynamic=True, options={"cache": cache})
    for rows, columns in ((4, 5), (6, 7), (9, 5), (6, 7)):
        given = [torch.randn(rows, columns).requires_grad_() for _ in range(1)] * 2
        found, expected = run(given[0]), function(given[1])
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(
            torch.autograd.grad(found.sum(), given[0]), torch.autograd.grad(expected.sum(), given[1])
        )
        assert run.ran_compiled, run.eager_reason


def test_what_cannot_be_proved_of_symbols_is_compiled_for_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    from nbcompile.compiler import pipeline

    def checked(program: FusedProgram, **given: bool) -> Counts:
        shapes = [buffer.shape for buffer in program.program.buffers().values()]
        if any(extent.constant is None for shape in shapes for extent in shape):
            raise errors.SymbolicSizeError("too little is known of it")
        return verify_bounds(program, **given)

    monkeypatch.setattr(pipeline, "verify_bounds", checked)
    torch._dynamo.reset()
    run = nbcompile.compile(lambda x: x.sin() + 1, dynamic=True, options={"cache": False})
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(run(x), x.sin() + 1)
        assert run.ran_compiled, run.eager_reason
    assert any("for the sizes of this call alone" in note for note in run.compilation.notes)


def test_what_numbers_do_not_help_runs_eagerly_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from nbcompile.compiler import pipeline

    def refuse(*_: object, **__: object) -> None:
        raise errors.SymbolicSizeError("nothing is known of it")

    monkeypatch.setattr(pipeline, "verify_bounds", refuse)
    torch._dynamo.reset()
    run = nbcompile.compile(lambda x: x.sin() + 1, dynamic=True, options={"cache": False})
    x = torch.randn(3, 4)
    torch.testing.assert_close(run(x), x.sin() + 1)
    assert not run.ran_compiled and "nothing is known of it" in run.eager_reason


def every_third(x: Tensor) -> Tensor:
    part = x[..., ::3]
    torch.count_nonzero(part)
    return x + part


def gated(x: Tensor) -> Tensor:
    x[0:].div_(F.glu(x, 1) + 2)
    return x


@few(1)
@pytest.mark.parametrize("function", [every_third, gated])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_extent_that_was_one_is_broadcast(
    function: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(function, dynamic=True, options={"cache": False})
    for columns in (2, 3, 1) if function is every_third else (2, 2):
        x = torch.randn(1, columns, dtype=dtype)
        expected = function(x.clone())
        torch.testing.assert_close(run(x.clone()), expected)
        assert run.ran_compiled, run.eager_reason


@pytest.mark.nightly
def test_an_extent_that_a_pool_made_one_is_dropped_as_one() -> None:
    """The extent of what is pooled, ``s // 2``, is 1 by a guard, and was not for who drops extents of 1."""
    torch._dynamo.reset()

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        pooled = F.lp_pool1d(x.abs(), 2, 2)[None]
        parts = pooled / (x.abs() + 1)
        return parts.mT @ parts, pooled.unflatten(2, (-1, 7)).movedim(-3, 0)

    run = nbcompile.compile(program, dynamic=True, options={"cache": False})
    x = torch.randn(2, 3, 7, dtype=torch.float16).permute(0, 2, 1)
    torch.testing.assert_close(run(x), program(x), rtol=5e-3, atol=1e-4)  # eager rounds more often
    assert run.ran_compiled, run.eager_reason


def test_a_size_that_nothing_names_is_said() -> None:
    """AOTAutograd gives a graph the tensor that its inputs show parts of, whose extents no guard can name."""
    torch._dynamo.reset()

    def program(x: Tensor, y: Tensor) -> Tensor:
        y += 0.5
        return x.sort(dim=0).indices.diagonal() * 1

    run = nbcompile.compile(program, options={"cache": False})
    for rows, columns in ((3, 4), (4, 3), (3, 3)):
        x, y = (torch.arange(12.0)[: rows * columns].view(rows, columns).flip(0) for _ in range(2))
        torch.testing.assert_close(run(x, x.t()), program(y, y.t()))
        assert torch.equal(x, y)
    assert not run.ran_compiled and "no guard can name" in run.eager_reason


@few(1)
@pytest.mark.parametrize("sizes", [((6, 9), (6, 2), (6, 3), (6, 7)), ((12, 9), (24, 2), (6, 3), (5, 7))])
def test_a_number_that_no_guard_holds_is_no_number(sizes: tuple[tuple[int, int], ...]) -> None:
    """Of a tensor beside a view of it AOTAutograd takes sizes whose guards Dynamo drops: what it traced holds
    the 2 of the second call, and stood for every call after."""

    def inner(x: Tensor, turned: Tensor) -> tuple[Tensor, Tensor]:
        return (x * 2)[:, 1:-1], torch.diagonal(turned, 0, 0, 1)

    torch._dynamo.reset()
    run = nbcompile.compile(inner)
    for rows, columns in sizes:
        x = torch.randn(rows, columns, 8)
        for found, expected in zip(run(x, x.mT), inner(x, x.mT)):
            torch.testing.assert_close(found, expected)
            assert found.stride() == expected.stride()
    assert "no guard can name" in run.eager_reason


def test_what_a_dropped_graph_supposed_is_no_guard() -> None:
    """It named a size that has no name, and Dynamo failed to write the guard: the call raised."""

    def program(x: Tensor, part: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        _, places = torch.sort(x, dim=1)
        return part.select(0, 0), torch.diag(torch.index_add(places, 0, rows, places), 1)

    torch._dynamo.reset()
    run = torch.compile(program, backend="nbcompile", dynamic=True)
    rows = torch.tensor([2, 0, 0])
    for columns in (4, 3, 5):
        x = torch.randn(3, columns)
        part = x.flatten()[1:]
        for found, expected in zip(run(x, part, rows), program(x, part, rows)):
            assert torch.equal(found, expected)


def test_an_extent_that_guards_made_one_is_squeezed() -> None:
    def inner(x: Tensor, w: Tensor) -> Tensor:
        F.conv_transpose1d(x, w)
        return torch.logsumexp(w.unflatten(0, (-1, 2)).squeeze(0), 0)

    torch._dynamo.reset()
    run = nbcompile.compile(inner, dynamic=True, options={"cache": False})
    x, w = torch.randn(2, 1), torch.randn(2, 1, 2)
    torch.testing.assert_close(run(x, w), inner(x, w))
    assert run.ran_compiled, run.eager_reason


@pytest.mark.nightly
def test_gradients_twice_of_symbolic_sizes() -> None:
    """Backward is compiled before it runs then; torch would have it that what is saved may be overwritten."""

    def inner(x: Tensor) -> Tensor:
        return x / (x.abs() + 0)

    torch._dynamo.reset()
    run = nbcompile.compile(inner, options={"cache": False})
    for size in (1, 2):
        x = torch.randn(size, dtype=torch.complex64, requires_grad=True)
        found, expected = run(x), inner(x)
        for keep in (True, False):
            one = torch.autograd.grad(found.abs().sum(), x, retain_graph=keep)
            torch.testing.assert_close(one, torch.autograd.grad(expected.abs().sum(), x, retain_graph=keep))
