"""Which convolutions are loops of ours on a CPU (``lower/small_convolutions.py``): who chooses how images
lie in memory has to know it too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

MOST_TERMS = 121
"""Products that are added up for one result: a window of 11 by 11, or 5 by 5 of the three colours."""
MOST_OF_MANY = 9
"""The same where results have so many channels that oneDNN has vectors of them: a window of 3 by 3."""
MOST_CHANNELS = 4
"""Channels that a result is made of."""
MOST_RESULTS = 8
"""Results that are made of the same channels: each reads the whole window again."""


def is_small(images: Sequence[Any], weight: Sequence[Any], groups: Any, transposed: bool) -> bool:
    """Whether a convolution of these sizes, the weight's being (results, channels of a group, window), is
    written out: no size is a symbol, none is 0, and a result is made of few numbers."""
    if transposed or not all(isinstance(size, int) and size for size in (*images, *weight, groups)):
        return False
    results, channels, *window = weight
    most = MOST_TERMS if results <= MOST_RESULTS else MOST_OF_MANY
    few = channels <= MOST_CHANNELS and channels * (results // groups) <= MOST_RESULTS
    return bool(few and channels * math.prod(window) <= most)
