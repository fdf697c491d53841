"""Sums of two 16-bit numbers at once, in PTX, taken apart before ptxas sees them.

LLVM counts lanes in 16 bits where it knows that few are enough, and adds to two of them at once. ptxas 12.8
(Triton 3.6's) folds the constants of such sums with the comparisons behind them and takes 0 for some: lanes
then read, or keep, the wrong side of a guard (tests/compiler/runtime/gpu/test_ptx_halves.py has a kernel;
right with ``-O0``). One by one it adds them rightly.
"""

from __future__ import annotations

import itertools
import re

_SUM = re.compile(r"add\.[su]16x2\s+(%r\d+), (%r\d+), (%r\d+);")


def one_by_one(ptx: str) -> str:
    """``ptx`` with two sums for each of ``add.s16x2`` and ``add.u16x2``."""
    numbers = itertools.count()
    return _SUM.sub(lambda match: _apart(match, next(numbers)), ptx)


def _apart(match: re.Match[str], number: int) -> str:
    result, left, right = match.groups()
    low, high, low_right, high_right = (f"%half{4 * number + place}" for place in range(4))
    return (
        f"{{ .reg .b16 {low}, {high}, {low_right}, {high_right}; "
        f"mov.b32 {{{low}, {high}}}, {left}; mov.b32 {{{low_right}, {high_right}}}, {right}; "
        f"add.s16 {low}, {low}, {low_right}; add.s16 {high}, {high}, {high_right}; "
        f"mov.b32 {result}, {{{low}, {high}}}; }}"
    )
