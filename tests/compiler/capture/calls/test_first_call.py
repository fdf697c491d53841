"""A graph's first call gives the numbers of all its calls."""

from __future__ import annotations

import pytest
import torch

import nbcompile
from nbcompile.compiler.capture.calls.first_call import outside_checks


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.float32])
def test_an_operator_composed_of_others_sees_its_conjugates(dtype: torch.dtype) -> None:
    x = torch.randn(5, 5, dtype=dtype)
    run = nbcompile.compile(lambda x: torch.linalg.pinv(x) * 2)
    first, second = run(x), run(x)
    assert run.ran_compiled
    torch.testing.assert_close(first, torch.linalg.pinv(x) * 2)
    torch.testing.assert_close(second, first)


def test_gradients_of_the_first_call() -> None:
    found = []
    for function in (nbcompile.compile(torch.linalg.pinv), torch.linalg.pinv):
        x = torch.randn(4, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
        x.requires_grad_()
        function(x).abs().sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(*found)


def test_a_graph_without_complex_numbers_or_with_custom_operators_is_left_alone() -> None:
    def call(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return inputs

    def graph(dtype: torch.dtype, target: torch._ops.OpOverload) -> torch.fx.GraphModule:
        made = torch.fx.Graph()
        given = made.placeholder("x")
        given.meta["val"] = torch.empty(2, dtype=dtype)
        made.output((made.call_function(target, (given,)),))
        return torch.fx.GraphModule(torch.nn.Module(), made)

    library = torch.library.Library("nbcompile_first_call", "DEF")
    library.define("own(Tensor x) -> Tensor")
    own = torch.ops.nbcompile_first_call.own.default
    sin = torch.ops.aten.sin.default
    assert outside_checks(call, graph(torch.float32, sin)) is call
    assert outside_checks(call, graph(torch.complex64, own)) is call
    assert outside_checks(call, graph(torch.complex64, sin)) is not call
