"""FlexAttention is written out: what the user's functions make of the scores is fused with the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import nbcompile
from tests.nightly import few

Tensor = torch.Tensor
BIAS = torch.linspace(-1, 1, 4)


def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


def biased(q: Tensor, k: Tensor, v: Tensor) -> Any:
    mask = create_block_mask(causal, None, None, q.shape[2], k.shape[2], device=q.device.type)
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + BIAS[h] * (i - j), block_mask=mask)


def soft_capped(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q * 2, k, v, score_mod=lambda s, b, h, i, j: torch.tanh(s * 0.02) * 50) + 1


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k[:, :2], v[:, :2], enable_gqa=True, scale=0.3)


def with_sums(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, return_lse=True)


@few(1)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("function", [biased, soft_capped, grouped, with_sums])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_are_fused(function: Callable[..., Any], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 64, 16).to(dtype) for _ in range(3))
    torch._dynamo.reset()
    run = nbcompile.compile(function, options={"cache": False})
    found, expected = run(q, k, v), function(q, k, v)
    torch.testing.assert_close(found, expected)
    assert run.ran_compiled, run.eager_reason
    nodes = [node for node in run.compilation.fused_nodes if node.kind in ("kernel", "library", "fallback")]
    calls = [node.op for node in nodes if node.kind != "kernel"]
    assert calls.count("aten.bmm") == 2
    assert not any("flex" in call for call in calls)
    assert any("of scores in memory" in note for note in run.compilation.notes)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_a_view_of_the_result_is_one() -> None:
    def both(q: Tensor) -> tuple[Tensor, Tensor]:
        made = flex_attention(q, q, q)
        return made, made.view(1, 8, 8)  # type: ignore[union-attr]

    torch._dynamo.reset()
    run = nbcompile.compile(both, options={"cache": False})
    made, shown = run(torch.randn(1, 1, 8, 8))
    assert run.ran_compiled, run.eager_reason
    assert shown.untyped_storage().data_ptr() == made.untyped_storage().data_ptr()
