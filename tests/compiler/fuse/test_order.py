"""Kernels can be put in an order: none needs, through others, what it makes itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import nbcompile
from tests.nightly import few


def far_apart(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """The sum of the three joins the test far behind it, and stands before the write that joins ``b * a``,
    which the test needs: the search for a way round once stopped at the sum's own place."""
    joined = torch.cat([x, x, x], 0)
    found = joined.reshape(21 * joined.shape[1], 2, 1)[a, b]
    b.mul_(a)
    padded = F.pad(b, (1, 1), value=-2)
    return found, torch.logical_xor(padded, joined)


def written_between(v0: Tensor, v1: Tensor, v9: Tensor) -> tuple[Tensor, ...]:
    v2 = v1 / (v1.abs() + 1)
    v5 = v2[:, 1:-1]
    v10 = F.prelu(torch.log1p(v5), v9)
    v9.tanh_()
    v11 = v9 * 1
    return v10, torch.std(v2, -2), v11 - v5, torch.stack([v11, v9], -2)


PROGRAMS: dict[str, tuple[Callable[..., tuple[Tensor, ...]], Callable[[], tuple[Tensor, ...]]]] = {
    "far apart": (
        far_apart,
        lambda: (
            torch.arange(7 * 16 * 2).view(7, 16, 2, 1),
            torch.tensor([3, 0, 200, 5]),
            torch.tensor([1, 0, 1, 0]),
        ),
    ),
    "written between": (
        written_between,
        lambda: (torch.ones(1), torch.arange(9.0).view(3, 3), torch.tensor([0.3])),
    ),
}


@few(1)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_that_overwrite(name: str) -> None:
    program, inputs = PROGRAMS[name]
    run = nbcompile.compile(program, options={"cache": False, "verify": True})
    one, two = inputs(), inputs()
    torch.testing.assert_close(run(*one), program(*two))
    torch.testing.assert_close(one, two)
    assert not run.eager_reason
