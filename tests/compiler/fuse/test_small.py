"""Small loops that are joined because a launch costs more than they do."""

from __future__ import annotations

import torch

import nbcompile


def test_small_loops_that_read_nothing_but_by_an_index() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        i = torch.arange(12).clamp(3, 6)[:, None].expand(12, 3)
        return (
            x.new_zeros(18, 3).scatter_reduce(0, i, x, "amax"),
            x.new_zeros(18, 3).scatter_reduce(0, i, x, "prod", include_self=False),
        )

    torch._dynamo.reset()
    x = torch.randn(12, 3, requires_grad=True)
    run = nbcompile.compile(function, options={"cache": False})
    found, expected = run(x), function(x)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad([each.sum() for each in item], x) for item in (found, expected)]
    torch.testing.assert_close(*gradients)
    assert run.ran_compiled, run.eager_reason
    assert "g0.bw.fused" in {graph.id for graph in run.compilation.graphs}
