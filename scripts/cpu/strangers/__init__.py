"""60 programs as users of PyTorch write them, by somebody who had read neither the compiler nor its tests.

Audio, vision, language, generative models, recommenders, graphs, reinforcement learning, statistics,
numerics, geometry, optimizer steps, attention, low precision, integers and odd shapes. ``PROGRAMS`` by name:
what makes a function and its arguments, the same every time. Functions take CPU tensors, return a tensor or
a tuple of them, draw nothing, leave their inputs as they were and take no gradients, so that ``TRAIN_LOSS``
is empty. Needs torch only.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from strangers import (
    audio,
    generative,
    geometry,
    language,
    lowbits,
    numerics,
    statistics,
    steps,
    tables,
    vision,
)
from strangers.corpus import PROGRAMS

__all__ = ["PROGRAMS", "TRAIN_LOSS", "build", "half"]
PARTS = (
    audio,
    vision,
    language,
    generative,
    tables,
    statistics,
    numerics,
    geometry,
    steps,
    lowbits,
)
TRAIN_LOSS: dict[str, Callable[[], Any]] = {}


def build(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A program and its arguments."""
    return PROGRAMS[name]()


def half(name: str) -> int:
    """Which half of the programs one belongs to, by its name."""
    return zlib.crc32(name.encode()) & 1
