"""Numbers drawn by Python's ``random`` within a program: the numbers that eager has, of its types."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

import nbcompile
from tests.nightly import few


def jitter(x: torch.Tensor) -> torch.Tensor:
    return x * random.uniform(0.9, 1.1)


def chained(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = 1 + 2 * random.random()
    shift = random.gauss(0, 1) / scale
    return (x * scale + shift).sin(), x.clone().mul_(scale).add_(random.randint(1, 5))


def returned(x: torch.Tensor) -> tuple[torch.Tensor, float]:
    drawn = random.random() + 1
    return x + drawn, drawn


def filled(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > random.random(), x, random.uniform(-1, 0)) + torch.full_like(x, random.random())


PROGRAMS = [jitter, chained, returned, filled]
KINDS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.complex64]


def _refused(fn: Callable[..., object], kind: torch.dtype) -> bool:
    """By eager: a place of integers takes no fraction, complex numbers have no order."""
    return (fn, kind) in ((chained, torch.int64), (filled, torch.complex64))


@few(8)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_a_draw_is_the_number_that_eager_has(fn: Callable[..., object], kind: torch.dtype) -> None:
    if _refused(fn, kind):
        return
    x = torch.linspace(0.1, 3, 7).to(kind)
    compiled = nbcompile.compile(fn)
    for seed in (1, 2, 3):
        found = []
        for each in (compiled, fn):
            random.seed(seed)
            result = each(x)
            found.append((result, random.random()))
        # A kernel rounds to a half type once, where eager does after each operator.
        near = 0.05 if kind.itemsize == 2 else 1e-6
        torch.testing.assert_close(found[0], found[1], rtol=near, atol=near)
    assert not compiled.compilation.notes
    assert compiled.compilation.kernels


def test_a_draw_in_a_program_of_doubles_keeps_its_places() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * (random.random() / 3 + 1)

    x = torch.ones(2, dtype=torch.float64)
    random.seed(5)
    found = nbcompile.compile(program)(x)
    random.seed(5)
    assert found.tolist() == program(x).tolist()
