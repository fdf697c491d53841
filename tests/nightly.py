"""Fewer of many alike: what ``make test`` leaves to ``make test-nightly``."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from typing import Any

import pytest


def one_in(number: int, *axes: Iterable[Any]) -> list[Any]:
    """The combinations of ``axes`` for ``parametrize``: one in ``number``, the same ones each time, runs in
    ``make test``; the others are marked nightly."""
    combinations = list(itertools.product(*axes))
    count = -(-len(combinations) // number)
    kept = set(random.Random(0).sample(range(len(combinations)), count))
    return [
        pytest.param(*values, marks=() if place in kept else pytest.mark.nightly)
        for place, values in enumerate(combinations)
    ]
