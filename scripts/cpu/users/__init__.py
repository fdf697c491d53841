"""80 programs as users write them, by somebody who had read neither the compiler nor its benchmarks.

Models, losses, physics, images, signals, statistics, finance, graphs, reinforcement learning, geometry,
optimizer steps, quantised, half and complex numbers, training. ``PROGRAMS`` by name: what makes a function
and its arguments, the same every time. Functions take CPU tensors, return tensors, draw nothing and leave
their inputs as they were. Training programs take gradients within, where Dynamo breaks: ``TRAIN_LOSS`` has
their losses alone. Once :func:`half` 0 had been worked on, half 1 was timed for the first time; both have
been seen since. Needs torch only.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from users import data, models, numbers, science, training
from users.corpus import PROGRAMS, TRAIN_LOSS

__all__ = ["PROGRAMS", "TRAIN_LOSS", "build", "half"]
PARTS = (models, science, data, numbers, training)


def build(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A program and its arguments."""
    return PROGRAMS[name]()


def half(name: str) -> int:
    """Which half of the programs one belongs to, by its name."""
    return zlib.crc32(name.encode()) & 1
