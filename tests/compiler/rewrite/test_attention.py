"""Masked attention calls that eager gives to cuDNN are given to it by name, and only those."""

from __future__ import annotations

import pytest
import torch
from torch import fx
from torch.nn import functional

from nbcompile.compiler.rewrite import attention


def graph_of(**given):
    """A graph with one attention call on three CPU tensors; ``mask`` adds one."""
    graph = fx.Graph()
    mask = given.pop("mask", True)
    nodes = [graph.placeholder(name) for name in ("q", "k", "v", "m")[: 4 if mask else 3]]
    for node in nodes:
        node.meta["example_value"] = torch.empty(2, 4, 8, 16)
    call = graph.call_function(functional.scaled_dot_product_attention, tuple(nodes), given)
    graph.output((call,))
    return fx.GraphModule({}, graph), call


def test_tensors_on_the_cpu_stay():
    module, call = graph_of()
    assert attention.choose_attention(module) == 0
    assert call.target is functional.scaled_dot_product_attention


@pytest.mark.parametrize(
    ("given", "chosen", "changes"),
    [
        ({}, attention.CUDNN, True),
        ({"dropout_p": 0.1, "scale": 0.5}, attention.CUDNN, True),
        ({}, 0, False),
        ({"enable_gqa": True}, attention.CUDNN, False),
        ({"mask": False}, attention.CUDNN, False),
    ],
)
def test_only_what_eager_gives_to_cudnn_is_rewritten(monkeypatch, given, chosen, changes):
    asked = []

    def choice(*args, **options):
        asked.append((args, options))
        return chosen

    monkeypatch.setattr(attention, "_like", lambda node: None if node is None else node.meta["example_value"])
    monkeypatch.setattr(torch, "_fused_sdp_choice", choice)
    module, call = graph_of(**given)
    assert attention.choose_attention(module) == changes
    assert (call.target is attention.fused_attention) == changes
    if changes:
        assert asked[0][0][4] == given.get("dropout_p", 0.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
@pytest.mark.parametrize("kind", [torch.bool, torch.bfloat16])
def test_numbers_agree_with_eager_on_a_gpu(kind):
    import nbcompile

    q, k, v = (
        torch.randn(2, 128, 4, 64, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
        for _ in range(3)
    )
    keep = torch.rand(2, 1, 1, 128, device="cuda") < 0.8
    mask = keep if kind == torch.bool else torch.where(keep, 0.0, -1e4).to(kind)
    mask = mask.expand(2, 1, 128, 128)

    def attend(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    compiled = nbcompile.compile(attend, options={"cache": False})
    got, expected = compiled(q, k, v), attend(q, k, v)
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)
    gradients = torch.autograd.grad(got.sum(), (q, k, v))
    for one, other in zip(gradients, torch.autograd.grad(expected.sum(), (q, k, v)), strict=True):
        torch.testing.assert_close(one, other, rtol=4e-2, atol=4e-2)
