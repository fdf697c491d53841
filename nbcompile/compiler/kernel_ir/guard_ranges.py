"""Which guards a range of one axis decides, and where to cut a loop so that all are decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import ceil, floor

from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, at_least

Range = Mapping[Axis, tuple[int, int]]
"""Axes known to be in [low, high)."""

Bounds = tuple[tuple[IndexExpr, IndexExpr, IndexExpr], ...]
MOST_SEGMENTS = 8


def decide(bounds: Bounds, ranges: Range) -> bool | None:
    """True if every bound surely holds, False if one surely fails, else None."""
    sure = True
    for value, low, high in bounds:
        interval = _interval(value, ranges)
        if interval is None or low.constant is None or high.constant is None:
            sure = sure and at_least(value, low) and at_least(high - 1, value)
            continue
        least, most = interval
        if low.constant <= least <= most < high.constant:
            continue
        # what holds along the whole axes holds along parts of them: only nowhere is it to be asked for apart
        if not _somewhere(value, ranges) and at_least(value, low) and at_least(high - 1, value):
            continue
        if most < low.constant or least >= high.constant:
            return False
        if least < low.constant or most >= high.constant:
            sure = False
    return True if sure else None


def segments(
    axis: Axis, guards: Iterable[Bounds], ranges: Range | None = None, most: int = MOST_SEGMENTS
) -> list[tuple[int, int] | None]:
    """``[low, high)`` pieces of an axis where the others are in ``ranges``; ``[None]`` (the whole axis) if
    there is nothing to cut, the extent is symbolic, or there would be more than ``most`` pieces."""
    extent = axis.extent.constant
    if extent is None:
        return [None]
    cuts: set[int] = set()
    for bounds in guards:
        for value, low, high in bounds:
            cuts |= set(_cuts(axis, value, low, high, ranges or {}))
    inside = sorted(cut for cut in cuts if 0 < cut < extent)
    if not inside or len(inside) >= most:
        return [None]
    edges = [0, *inside, extent]
    return list(pairwise(edges))


def _cuts(axis: Axis, value: IndexExpr, low: IndexExpr, high: IndexExpr, ranges: Range) -> Sequence[int]:
    """Where along ``axis`` a bound begins or ceases to hold, wherever that is along the other axes: rows of a
    concatenation (``80*i + j < 160`` of j below 80) are cut between rows."""
    step, low_end, high_end = value.coefficient(axis), low.constant, high.constant
    if step is None or not step.constant or low_end is None or high_end is None:
        return ()
    rest = _interval(value - step * axis, ranges)
    if rest is None:
        return ()
    found = []
    for end in (low_end, high_end):  # value >= end from here on, or up to here
        first, second = ((end - each) / step.constant for each in rest)
        if step.constant > 0 and ceil(first) == ceil(second):
            found.append(ceil(first))
        elif step.constant < 0 and floor(first) == floor(second):
            found.append(floor(first) + 1)
    return found


def _somewhere(value: IndexExpr, ranges: Range) -> bool:
    """Whether the range of each axis in it is a part of that axis, and no empty one."""
    for axis in value.axes():
        extent = axis.extent.constant
        low, high = ranges.get(axis, (0, extent))
        if extent is None or high is None or not 0 <= low < high <= extent:
            return False
    return True


def _interval(value: IndexExpr, ranges: Range) -> tuple[int, int] | None:
    """Least and greatest value when every axis in it has a known range and it is affine."""
    least = most = 0
    for mono, coeff in value.terms:
        if not mono:
            least, most = least + coeff, most + coeff
            continue
        axis = mono[0]
        if len(mono) != 1 or not isinstance(axis, Axis):
            return None
        if axis in ranges:
            low, high = ranges[axis][0], ranges[axis][1] - 1
        elif axis.extent.constant is not None:
            low, high = 0, axis.extent.constant - 1
        else:
            return None
        least += coeff * (low if coeff > 0 else high)
        most += coeff * (high if coeff > 0 else low)
    return least, most
