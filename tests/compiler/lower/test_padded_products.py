"""Matrix products of an odd width on a GPU: padded, and the same numbers."""

from __future__ import annotations

import pytest
import torch

import nbcompile
from nbcompile.compiler.lower import padded_products
from tests.nightly import few


def compiled(function, *inputs):
    made = nbcompile.compile(function, options={"interpret": True, "cache": False})
    result = made(*inputs)
    assert made.ran_compiled, made.eager_reason
    return result, made.compilation


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch):
    monkeypatch.setattr(padded_products, "LEAST_WORK", 1)


@few(3)
@pytest.mark.parametrize("width", [13, 16, 65])
@pytest.mark.parametrize("bias", [False, True])
def test_numbers_agree(width, bias):
    torch.manual_seed(0)
    x, weight = torch.randn(6, 24, dtype=torch.bfloat16), torch.randn(width, 24, dtype=torch.bfloat16)
    shift = torch.randn(width, dtype=torch.bfloat16) if bias else None

    def linear(x, weight):
        return torch.nn.functional.linear(x, weight, shift)

    got, record = compiled(linear, x, weight)
    expected = linear(x, weight)
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)
    loops = next(graph for graph in record.graphs if graph.stage == "loops")
    calls = [node for node in loops.nodes if node.kind == "library"]
    assert ("padded" in calls[0].note) == (width % 8 != 0)


def test_what_reads_the_result_fuses_with_the_cut():
    x, weight = torch.randn(6, 24, dtype=torch.bfloat16), torch.randn(13, 24, dtype=torch.bfloat16)
    got, record = compiled(lambda x, w: torch.softmax(x @ w.t(), -1), x, weight)
    torch.testing.assert_close(got, torch.softmax(x @ weight.t(), -1), rtol=2e-2, atol=2e-2)
    assert len(record.kernels) == 2  # the padding, and a softmax of the real columns


def test_float32_stays_as_it_is():
    x, weight = torch.randn(6, 24), torch.randn(13, 24)
    _, record = compiled(lambda x, w: x @ w.t(), x, weight)
    assert not record.kernels
