"""Fewer of many alike: what ``make test`` leaves to ``make test-nightly``."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

Item = TypeVar("Item")


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


def soon(chosen: Iterable[Any], items: Iterable[Any]) -> list[Any]:
    """``items`` for ``parametrize``, where it matters which: ``make test`` runs those ``chosen``, the others
    are marked nightly. ValueError for a chosen one that is none of them."""
    kept, known = list(chosen), list(items)
    if missing := [item for item in kept if item not in known]:
        raise ValueError(f"no such case: {missing}")
    return [pytest.param(item, marks=() if item in kept else pytest.mark.nightly) for item in known]


def spaced(items: Sequence[Item], count: int) -> Sequence[Item]:
    """``count`` of the items, at equal distances, the first and the last among them; all if there are
    fewer."""
    if len(items) <= count:
        return items
    return [items[n * (len(items) - 1) // (count - 1)] for n in range(count)]


def few(count: int) -> pytest.MarkDecorator:
    """Of the decorated test's cases, ``make test`` runs ``count``, the same ones each time, with as many
    values of each parameter among them as that allows; ``make test-nightly`` runs all."""
    return pytest.mark.few(count)


def beyond_few(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Those of ``items`` that :func:`few` leaves to the night."""
    groups: dict[tuple[Any, ...], list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("few"):
            groups[item.path, item.cls, item.originalname].append(item)
    return [each for group in groups.values() for each in _beyond(group)]


def _beyond(group: list[pytest.Function]) -> list[pytest.Function]:
    marker = group[0].get_closest_marker("few")
    assert marker is not None
    rest = list(group)
    random.Random(group[0].originalname).shuffle(rest)
    values = [{(name, id(value)) for name, value in item.callspec.params.items()} for item in rest]
    missing: set[tuple[str, int]] = set().union(*values)
    for _ in range(min(marker.args[0], len(rest))):
        best = max(range(len(rest)), key=lambda place: len(values[place] & missing))
        missing -= values.pop(best)
        rest.pop(best)
    return rest
