"""Views of one tensor, one of which is overwritten with what requires a gradient: the others come to require
one, within a graph and across a graph break."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor
Program = Callable[[Tensor, Tensor], Tensor]


def base_and_view(x: Tensor, w: Tensor) -> Tensor:
    out = x.sin()
    column = out[:, -1]
    torch._dynamo.graph_break()
    column.sub_(w.sum())
    return out * 2


def view_overwritten_before(x: Tensor, w: Tensor) -> Tensor:
    out = x.sin()
    column = out[:, -1]
    column.sub_(1)
    torch._dynamo.graph_break()
    column.mul_(w.sum())
    return out * 2


def views_alone(x: Tensor, w: Tensor) -> Tensor:
    out = x.cos()
    column, row = out[:, -1], out[1].view(2, 2)
    torch._dynamo.graph_break()
    with torch.no_grad():
        column.sub_(1)
    return row * w.sum() + column.sum()


def run(function: Program, compiled: bool, dynamic: bool | None) -> tuple[Tensor, Tensor | None, str]:
    torch.manual_seed(0)
    x, w = torch.randn(3, 4), torch.randn(4, requires_grad=True)
    if not compiled:
        out = function(x, w)
        out.sum().backward()
        return out.detach(), w.grad, ""
    torch._dynamo.reset()
    call = nbcompile.compile(function, options={"cache": False}, dynamic=dynamic)
    out = call(x, w)
    assert out.requires_grad
    out.sum().backward()
    return out.detach(), w.grad, call.eager_reason or ""


@few(2)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [base_and_view, view_overwritten_before, views_alone])
def test_across_a_graph_break(function: Program, dynamic: bool | None) -> None:
    """Inductor refuses the first two. (Where the base is overwritten, Dynamo itself fails.)"""
    expected, gradient, _ = run(function, compiled=False, dynamic=dynamic)
    found, made, _ = run(function, compiled=True, dynamic=dynamic)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(made, gradient)


def test_inputs_that_are_views() -> None:
    """Without a gradient, in silence, in torch's own backends as well."""

    def function(view: Tensor, w: Tensor, base: Tensor) -> Tensor:
        view.sub_(w.sum())
        return base * 2

    torch._dynamo.reset()
    call = nbcompile.compile(function, options={"cache": False})
    base, w = torch.randn(3, 4), torch.randn(4, requires_grad=True)
    out = call(base[:, -1], w, base)
    out.sum().backward()
    assert torch.equal(w.grad, torch.full((4,), -6.0)) and base.requires_grad
    assert "requires a gradient by what is written to another view of it" in call.eager_reason


def test_a_view_that_nothing_is_written_to_is_compiled() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        out = x.sin()
        return out, out[0]

    torch._dynamo.reset()
    call = nbcompile.compile(function, options={"cache": False})
    x = torch.randn(3, 4)
    out, row = call(x)
    assert call.ran_compiled and row._base is out
    torch.testing.assert_close(row, x[0].sin())
    with torch.no_grad():
        out, row = call(x)
    assert out.untyped_storage().data_ptr() == row.untyped_storage().data_ptr()
