"""Where the programs register themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Made = tuple[Callable[..., Any], tuple[Any, ...]]
PROGRAMS: dict[str, Callable[[], Made]] = {}
TRAIN_LOSS: dict[str, Callable[[], Made]] = {}


def seeded(make: Callable[[], Made]) -> Callable[[], Made]:
    """``make``, from the same random numbers every time."""

    def factory() -> Made:
        torch.manual_seed(0)
        return make()

    return factory


def program(make: Callable[[], Made]) -> Callable[[], Made]:
    """Register what makes a program under its own name."""
    assert make.__name__ not in PROGRAMS
    PROGRAMS[make.__name__] = seeded(make)
    return make


def loss_of(name: str) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Register what makes the loss of a training program alone."""

    def register(make: Callable[[], Made]) -> Callable[[], Made]:
        TRAIN_LOSS[name] = seeded(make)
        return make

    return register
