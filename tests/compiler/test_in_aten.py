"""Graphs that run in ATen as they are: with the strides that they were traced with."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import nbcompile
from nbcompile.compiler.in_aten import as_traced, handed_on, in_aten, restride
from nbcompile.errors import LaunchError


def test_results_lie_as_traced() -> None:
    """ATen's roll keeps the layout of a transposed tensor, the traced one is contiguous; what reads a saved
    tensor by its strides (a compiled backward graph) goes by the traced ones."""

    def f(x: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        rolled = torch.ops.aten.roll.default(x, [1], [0])
        return rolled, torch.ops.aten.view.default(rolled, [-1]), torch.ops.aten.unbind_copy.int(rolled, 0)

    x = torch.randn(3, 5).t()
    traced = make_fx(f, tracing_mode="fake")(x)
    (node,) = (node for node in traced.graph.nodes if node.target is torch.ops.aten.roll.default)
    given = [x]
    rolled, flat, rows = in_aten(traced)(given)
    assert given == []
    assert rolled.stride() == node.meta["val"].stride()
    torch.testing.assert_close(rolled, x.roll(1, 0))
    torch.testing.assert_close(flat, x.roll(1, 0).reshape(-1))
    torch.testing.assert_close(torch.stack(rows), rolled)


def test_a_view_of_such_a_result_in_a_graph_that_is_not_compiled() -> None:
    """Where sizes are symbols, a result that shows a part of an overwritten input is made in ATen."""

    def f(x: Tensor, at: Tensor) -> Tensor:
        square = x.view(x.shape[0], 2, 1, x.shape[0])
        rolled = square.roll(1, 0)
        first, last = square.chunk(2, 0)
        last.add_(last)
        at += torch.take(rolled, at)
        return first

    run = nbcompile.compile(f, options={"cache": False})
    for size in (2, 3, 4):
        memory = torch.arange(2 * size * size, dtype=torch.int32).view(size, size, 1, 2)
        one, two = memory.clone().permute(0, 3, 1, 2), memory.clone().permute(0, 3, 1, 2)
        at = torch.tensor([3])
        other = at.clone()
        torch.testing.assert_close(run(one, at), f(two, other))
        torch.testing.assert_close(one, two)
        torch.testing.assert_close(at, other)


def test_what_a_library_gives_is_as_it_was_traced() -> None:
    """Kernels that read it go by the traced dtype and strides, and would read beyond a shorter one."""
    x = torch.arange(6.0).view(2, 3)
    assert as_traced(x, (2, 3), (3, 1), torch.float32) is x
    wide = as_traced(x, (2, 3), (1, 2), torch.float64)
    assert wide is not None and wide.dtype == torch.float64 and wide.stride() == (1, 2)
    assert torch.equal(wide.float(), x)
    assert as_traced(None, (2, 3), (3, 1), torch.float32) is None
    with pytest.raises(LaunchError, match=r"gave \[2, 3\], and was traced as \[4, 3\]"):
        as_traced(x, (4, 3), (3, 1), torch.float32)


def test_what_is_traced_as_expanded_is_expanded() -> None:
    x = torch.randn(2, 1, 3)
    found = restride(x.repeat(1, 4, 1), (8, 0, 2))
    assert found.stride() == (8, 0, 2) and torch.equal(found, x.expand(2, 4, 3))


def test_what_is_handed_on_stays_as_it_is() -> None:
    """The sums of an attention in float64 are traced as float32 by torch 2.11, and its gradient wants them as
    they are; an embedding bag's offsets are traced with elements that it does not give."""
    sums = torch.randn(2, 3, dtype=torch.float64)
    assert handed_on(sums, (3, 1)) is sums
    turned = handed_on(sums, (1, 2))
    assert turned is not None and turned.stride() == (1, 2) and torch.equal(turned, sums)
    none = torch.empty(0, dtype=torch.int64)
    assert handed_on(none, (1,)) is none
    assert handed_on(None, (1,)) is None
    assert handed_on(none, ()) is none


def test_an_embedding_bag_gives_less_than_it_is_traced_with() -> None:
    def bag(at: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding_bag(at, table, mode="sum") * 2

    at, table = torch.randint(0, 5, (6, 4)), torch.randn(5, 3, dtype=torch.bfloat16)
    torch._dynamo.reset()
    run = nbcompile.compile(bag, options={"cache": False})
    torch.testing.assert_close(run(at, table), bag(at, table))
    assert run.ran_compiled, run.eager_reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_attention_in_training(dtype: torch.dtype) -> None:
    def attention(q: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q * 2, q, q).sum()

    q = torch.randn(1, 2, 5, 4, dtype=dtype, requires_grad=True)
    attention(q).backward()
    expected, q.grad = q.grad, None
    torch._dynamo.reset()
    run = nbcompile.compile(attention, options={"cache": False})
    run(q).backward()
    torch.testing.assert_close(q.grad, expected)
    assert run.ran_compiled, run.eager_reason
