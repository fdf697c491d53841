"""multilabel_margin_loss: what ATen's kernel makes of rows that list fewer classes than they have places."""

from __future__ import annotations

from math import nan

import pytest
import torch
from torch.nn import functional as F

import nbcompile
from tests.nightly import few

LISTED = [[0, 3, -1, 1, 2], [1, -1, 0, 0, 0], [4, 3, 2, 1, 0], [-1, 0, 0, 0, 0]]


@few(4)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("row", [None, 0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_ends_at_minus_one(reduction: str, row: int | None, dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.multilabel_margin_loss(x * 2, y, reduction=reduction).float() * 2

    y = torch.tensor(LISTED[:4])
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)
    x, y = (x, y) if row is None else (x[row], y[row])
    gradients = []
    run = nbcompile.compile(program)
    for each in (program, run):
        leaf = x.clone().requires_grad_()
        result = each(leaf, y)
        result.sum().backward()
        gradients.append((result.detach(), leaf.grad))
    for found, expected in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(found, expected)
    assert run.ran_compiled, run.eager_reason


def test_what_is_not_a_number_and_what_keeps_to_the_margin_count_nothing() -> None:
    x, y = torch.tensor([[nan, 2.0, 1.0], [0.0, 1.0, 0.5]]), torch.tensor([[1, -1, 0], [1, -1, 0]])
    run = nbcompile.compile(torch.func.grad(F.multilabel_margin_loss))
    torch.testing.assert_close(run(x, y), torch.func.grad(F.multilabel_margin_loss)(x, y))
    module = nbcompile.compile(torch.nn.MultiLabelMarginLoss(reduction="none"))
    torch.testing.assert_close(module(x, y), F.multilabel_margin_loss(x, y, reduction="none"))


def test_what_eager_refuses() -> None:
    for x, y in (
        (torch.ones(2, 3), torch.zeros(2, 4, dtype=torch.int64)),
        (torch.ones(3), torch.full([3], 5)),
    ):
        with pytest.raises(RuntimeError):
            F.multilabel_margin_loss(x, y)
        with pytest.raises(RuntimeError):
            nbcompile.compile(F.multilabel_margin_loss)(x, y)
