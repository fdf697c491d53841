"""Tensor subclasses: AOTAutograd gives the compiler the plain tensors that they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor
PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "points": lambda x: x.sin() * 2 + 1,
    "rows": lambda x: torch.softmax(x, -1) * x.size(0),
    "layer_norm": lambda x: F.layer_norm(x, (8,)) + x,
    "padded": lambda x: torch.nested.to_padded_tensor(x, 0.0) * 2,
}


def jagged(*lengths: int) -> Tensor:
    rows = [torch.randn(length, 8) for length in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)


def values(tensor: Any) -> Tensor:
    return tensor.values() if tensor.is_nested else tensor  # type: ignore[no-any-return]


@few(1)
@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nested_tensors_of_other_lengths(name: str, interpret: bool) -> None:
    """How long the rows are is no number to torch, and none that a kernel asks for."""
    if interpret:
        pytest.importorskip("triton")
    torch._dynamo.reset()
    run = nbcompile.compile(PROGRAMS[name], options={"cache": False, "interpret": interpret})
    for x in (jagged(3, 2), jagged(4, 1, 5)):
        found, expected = values(run(x)), values(PROGRAMS[name](x))
        torch.testing.assert_close(found, expected)
        ours, theirs = (torch.autograd.grad(made.sum(), x)[0] for made in (found, expected))
        torch.testing.assert_close(values(ours), values(theirs))
    assert run.ran_compiled, run.eager_reason


def test_a_subclass_of_two_tensors() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    torch._dynamo.reset()
    run = nbcompile.compile(lambda x: x.sin() * 2, options={"cache": False})
    x = TwoTensor(torch.randn(5), torch.randn(5))
    found = run(x)
    assert isinstance(found, TwoTensor) and run.ran_compiled, run.eager_reason
    torch.testing.assert_close(found.a, x.a.sin() * 2)
    torch.testing.assert_close(found.b, x.b.sin() * 2)
