"""Inputs that share memory, one of them overwritten: never the numbers of before, at any call."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.backends.nbcompile import _warn
from tests.nightly import few

Tensor = torch.Tensor
Program = Callable[..., Any]


def shown(wide: Tensor, tensor: Tensor) -> Tensor:
    tensor.add_(1)
    return wide.permute(0, 1, 2)


def half(wide: Tensor, tensor: Tensor) -> Tensor:
    tensor.add_(1)
    return torch.chunk(wide, 2, 1)[1].permute(0, 1, 2)


@pytest.mark.parametrize("function", [shown, half])
def test_views_of_an_expanded_input(function: Callable[..., Tensor]) -> None:
    """The process died of the second, with torch's own backends as well."""
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    one, other = torch.ones(2, 1, 2), torch.ones(2, 1, 2)
    found, expected = (each(x.expand(2, 2, 2), x[None]) for each, x in ((run, one), (function, other)))
    assert torch.equal(found, expected) and torch.equal(one, other)
    assert found.untyped_storage().data_ptr() == one.untyped_storage().data_ptr()
    assert "expanded from a tensor that another shows" in run.eager_reason


def row_then_column(row: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
    before = column * column
    row.masked_fill_(row > 0, 1)
    return before, column * 2


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_row_and_a_column_of_one_matrix(dynamic: bool | None) -> None:
    """AOTAutograd takes them for tensors apart (fuzzer's seed 7490217): the column's new number was lost."""
    torch._dynamo.reset()
    run = nbcompile.compile(row_then_column, dynamic=dynamic, options={"cache": False})
    one, other = torch.rand(5, 6), torch.rand(5, 6)
    other.copy_(one)
    found, expected = run(one[2:3], one[:, :1]), row_then_column(other[2:3], other[:, :1])
    torch.testing.assert_close((found, one), (expected, other))
    assert "AOTAutograd takes them for tensors apart" in run.eager_reason


def test_parts_of_one_matrix_that_lie_apart_are_compiled() -> None:
    torch._dynamo.reset()
    run = nbcompile.compile(row_then_column, options={"cache": False})
    one, other = torch.rand(5, 6), torch.rand(5, 6)
    other.copy_(one)
    found, expected = run(one[2:3, 1:], one[:, :1]), row_then_column(other[2:3, 1:], other[:, :1])
    torch.testing.assert_close((found, one), (expected, other))
    assert run.ran_compiled


def test_parts_of_a_flat_buffer_are_compiled() -> None:
    torch._dynamo.reset()
    flat = torch.rand(64 * 12)
    expected = flat * 2

    def doubled(*parts: Tensor) -> Tensor:
        torch._foreach_mul_(list(parts), 2)
        return parts[0] + 1

    run = nbcompile.compile(doubled, options={"cache": False})
    run(*flat.split(12))
    torch.testing.assert_close(flat, expected)
    assert run.ran_compiled, run.eager_reason


def added(one: Tensor, other: Tensor) -> Any:
    one.mul_(2)
    return other + one


def one_shown(one: Tensor, other: Tensor) -> Any:
    one.mul_(2)
    return other + 1, one.view(-1)[3:10]


def other_shown(one: Tensor, other: Tensor) -> Any:
    other.mul_(2)
    return one + 1, other.view(-1)[3:10]


def both_shown(one: Tensor, other: Tensor) -> Any:
    part, turned = one[1:], other.t()
    one.add_(1)
    return part, turned, other, one.sum()


def views(storage: Tensor, *starts: int) -> list[Tensor]:
    return [storage[start : start + 24].view(4, 6) for start in starts]


def no_views(storage: Tensor, *starts: int) -> list[Tensor]:
    """The same, but unknown to autograd, as ``deepcopy`` of a module with views for parameters makes them."""
    held = storage.untyped_storage()
    return [torch.empty(0).set_(held, start, (4, 6), (6, 1)) for start in starts]


def apart(storage: Tensor, *starts: int) -> list[Tensor]:
    return [each.clone() for each in views(storage, *starts)]


def once(storage: Tensor, *starts: int) -> list[Tensor]:
    return views(storage, starts[0]) * 2


Call = tuple[Callable[..., list[Tensor]], int, int, int]  # how it is given, of how much memory, from where on
SEQUENCES: list[list[Call]] = [
    [(views, 40, 0, 16), (views, 60, 0, 16), (views, 60, 0, 20), (views, 60, 4, 16), (views, 60, 4, 30)],
    [(no_views, 40, 0, 16), (no_views, 60, 0, 16), (no_views, 60, 4, 20), (views, 60, 4, 20)],
    [(apart, 60, 0, 16), (views, 60, 0, 16), (no_views, 60, 0, 16)],
    [(views, 60, 0, 30), (views, 60, 0, 16)],
    [(no_views, 60, 0, 30), (no_views, 60, 0, 16), (apart, 60, 0, 16)],
    [(apart, 60, 0, 16), (once, 60, 0, 0), (views, 60, 0, 0)],
]


@few(3)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("sequence", range(len(SEQUENCES)))
@pytest.mark.parametrize("program", [added, one_shown, other_shown, both_shown])
def test_calls_that_share_memory_otherwise(program: Program, sequence: int, dynamic: bool | None) -> None:
    """``aot_eager`` reads and writes where the inputs of the call lay that it was compiled for."""
    torch._dynamo.reset()
    run = torch.compile(program, backend="nbcompile", dynamic=dynamic, options={"cache": False})
    for made, held, *starts in SEQUENCES[sequence]:
        storage, other = torch.arange(float(held)), torch.arange(float(held))
        inputs, wanted = made(storage, *starts), made(other, *starts)
        found, expected = run(*inputs), program(*wanted)
        torch.testing.assert_close((found, inputs, storage), (expected, wanted, other), rtol=0, atol=0)


def test_what_was_compiled_in_another_process_asks_as_well() -> None:
    """A graph that is found whole in the cache had been called for any inputs."""
    for _ in range(2):
        torch._dynamo.reset()
        run = torch.compile(added, backend="nbcompile")
        for made in (apart, views):
            storage, other = torch.arange(60.0), torch.arange(60.0)
            assert torch.equal(run(*made(storage, 0, 16)), added(*made(other, 0, 16)))


def test_such_a_call_is_told_once_and_noted(caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    run = torch.compile(added, backend="nbcompile", options={"cache": False})
    _warn.cache_clear()  # one reason is told once a process
    said = "its inputs share memory in another way"
    with caplog.at_level(logging.WARNING, "nbcompile"):
        run(*apart(torch.arange(60.0), 0, 16))
        assert said not in caplog.text
        for _ in range(3):
            run(*views(torch.arange(60.0), 0, 16))
    assert caplog.text.count(said) == 1
    torch._dynamo.reset()
    compiled = nbcompile.compile(added, options={"cache": False})
    for made in (apart, views):
        compiled(*made(torch.arange(60.0), 0, 16))
    assert any(said in note for note in compiled.compilation.notes)


def test_parts_that_are_only_read_may_overlap() -> None:
    def counted(total: Tensor, one: Tensor, other: Tensor) -> Tensor:
        total.add_(1)
        return one * other + total

    torch._dynamo.reset()
    run = nbcompile.compile(counted, options={"cache": False})
    for starts in ((0, 16), (0, 4)):
        parts = views(torch.arange(60.0), *starts)
        torch.testing.assert_close(run(torch.zeros(()), *parts), counted(torch.zeros(()), *parts))
    assert not any("ran eagerly" in note for note in run.compilation.notes)


def test_a_deepcopy_of_buffers_that_overlap() -> None:
    """Raised ``LaunchError`` in a later call: the storage that AOTAutograd took for both had another size."""

    class Net(torch.nn.Module):
        def __init__(self, held: int) -> None:
            super().__init__()
            memory = torch.arange(float(held))
            self.register_buffer("one", memory[:24].view(4, 6))
            self.register_buffer("other", memory[16:40].view(4, 6))

        def forward(self, x: Tensor) -> Tensor:
            self.one.mul_(0.5)
            return x @ self.one.t() + self.other.sum()

    torch._dynamo.reset()
    for held in (40, 60):
        net = Net(held)
        run, eager = torch.compile(copy.deepcopy(net), backend="nbcompile"), copy.deepcopy(net)
        for _ in range(2):
            x = torch.ones(3, 6)
            torch.testing.assert_close(run(x), eager(x))


def column_between(column: Tensor, others: Tensor) -> Tensor:
    column.lerp_(column * 2, 0.25)
    return torch.diff(others, dim=2).sin()


@pytest.mark.parametrize("dynamic", [None, True])
def test_columns_between_each_other_that_autograd_knows_not_for_views(dynamic: bool | None) -> None:
    """They lie apart, and AOTAutograd takes them for one: of a size that is not that of the memory behind
    them (fuzzer's seed 14208827, a ``LaunchError``)."""
    torch._dynamo.reset()
    run = nbcompile.compile(column_between, dynamic=dynamic, options={"cache": False})
    one = torch.rand(8, 7, 21)
    other = one.clone()
    found, expected = (
        function(x[..., :1].detach(), x[:, :, 1::3].detach())
        for function, x in ((run, one), (column_between, other))
    )
    torch.testing.assert_close((found, one), (expected, other))


@pytest.mark.parametrize("first", [0, 1])
def test_views_of_what_is_computed_beside_inputs_that_overlap(first: int) -> None:
    """``aot_eager`` raises an IndexError, or shows another tensor: it renumbers what they are views of."""

    def shown_in_parts(weight: Tensor, one: Tensor, other: Tensor) -> Any:
        made = weight * 2
        one.mul_(2)
        return made[:1], made[1:].t(), other + one

    def other_order(one: Tensor, weight: Tensor, other: Tensor) -> Any:
        return shown_in_parts(weight, one, other)

    torch._dynamo.reset()
    function = (shown_in_parts, other_order)[first]
    run = torch.compile(function, backend="nbcompile", options={"cache": False})
    for starts in ((0, 16), (4, 20)):
        outcomes = []
        for call in (run, function):
            weight = torch.ones(3, 4, requires_grad=True)
            inputs = views(torch.arange(60.0), *starts)
            inputs.insert(first, weight)
            found = call(*inputs)
            found[1].sum().backward()
            outcomes.append((*found, inputs, weight.grad))
        torch.testing.assert_close(*outcomes, rtol=0, atol=0)


def test_an_overwritten_input_among_those_that_overlap_is_itself() -> None:
    """With torch 2.11 it was the whole tensor that it is a part of."""

    def kept(one: Tensor, other: Tensor) -> Any:
        one += 1
        torch._dynamo.graph_break()
        return one[one.sum(1) > 20], other

    torch._dynamo.reset()
    run = torch.compile(kept, backend="nbcompile", dynamic=False, options={"cache": False})
    for starts in ((0, 30), (16, 0), (0, 16)):
        inputs, wanted = views(torch.arange(60.0), *starts), views(torch.arange(60.0), *starts)
        torch.testing.assert_close((run(*inputs), inputs), (kept(*wanted), wanted), rtol=0, atol=0)


def written_beside(row: Tensor, w: Tensor, other: Tensor) -> Tensor:
    row.add_(w)
    return other * 2


@pytest.mark.parametrize("wanted", [True, False])
def test_a_view_that_requires_a_gradient_by_what_is_written_beside_it(wanted: bool) -> None:
    """At the second call both are views of one tensor, of elements apart (fuzzer's seed 17000832)."""
    torch._dynamo.reset()
    run = nbcompile.compile(written_beside, options={"cache": False})
    for views in (False, True):
        both = []
        for function in (run, written_beside):
            w, memory = torch.ones(2, requires_grad=wanted), torch.rand(2, 2, generator=torch.manual_seed(0))
            row, other = (memory[0], memory[1]) if views else (memory[0].clone(), memory[1].clone())
            result = function(row, w, other)
            both.append((result, memory, row, other))
        for found, expected in zip(*both, strict=True):
            torch.testing.assert_close(found, expected)
            assert found.requires_grad == expected.requires_grad
    said = [note for note in run.compilation.notes if "share memory in another way" in note]
    assert len(said) == (1 if wanted else 0)


def test_a_part_beside_the_whole_is_itself() -> None:
    """With torch 2.11 it was the whole tensor (the fuzzer's seed 17700156 on a GPU)."""

    def kept(part: Tensor, places: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        lowest = torch.amin(part, -2)
        taken = torch.take(part, places)
        part += lowest
        return taken + whole, part

    torch._dynamo.reset()
    run = torch.compile(kept, backend="nbcompile", options={"cache": False})
    whole, other = torch.arange(6).view(3, 2).clone(), torch.arange(6).view(3, 2).clone()
    places = torch.tensor([[0, 1], [1, 2], [2, 0]])
    found, wanted = run(whole[:, 1:], places, whole), kept(other[:, 1:], places, other)
    torch.testing.assert_close((found, whole), (wanted, other), rtol=0, atol=0)


def _of_one(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    memory = torch.zeros(4, dtype=dtype)
    shown = torch.view_as_real(memory) if dtype.is_complex else memory
    return memory[0], shown[1, :1] if dtype.is_complex else shown[1:2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_what_is_written_beside_what_backward_needs(dtype: torch.dtype) -> None:
    """Written after the graph, as complex numbers are, it would count as a write to what is saved: two parts
    of one tensor have one version (seed 24103279)."""

    def program(written: Tensor, x: Tensor, read: Tensor) -> Tensor:
        written.fill_(2)
        return x * read

    torch._dynamo.reset()
    run = nbcompile.compile(program, options={"cache": False})
    written, read = _of_one(dtype)
    x = torch.randn(1, 3, dtype=torch.complex64, requires_grad=True)
    run(written, x, read).abs().sum().backward()
    assert x.grad is not None and written == 2
    assert ("beside another input in the same memory" in run.eager_reason) == dtype.is_complex
