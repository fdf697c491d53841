"""Many tensors joined on a CPU, as a loop over time steps leaves them: one loop, up to a number."""

from __future__ import annotations

import pytest
import torch

import nbcompile
from nbcompile.compiler.lower.operators.joining import MOST_ON_CPU


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("steps", [17, MOST_ON_CPU, MOST_ON_CPU + 1])
def test_the_results_of_many_steps(steps: int, dim: int) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        h, found = torch.zeros_like(x[0]), []
        for step in range(steps):
            h = torch.tanh(x[step % 5] + h * 0.5)
            found.append(h if step % 2 else h * 2)
        return torch.stack(found, dim) + 1

    x = torch.randn(5, 6, 7)
    compiled = nbcompile.compile(program, options={"cache": False, "verify": True})
    torch.testing.assert_close(compiled(x), program(x))
    (fused,) = compiled.compilation.of_stage("fused")
    assert any(node.op == "aten.cat" for node in fused.nodes) == (steps > MOST_ON_CPU)
