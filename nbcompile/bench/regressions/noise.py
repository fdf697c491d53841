"""Which difference of two times is more than noise.

A time varies more from one process to the next (where memory lies, what else the machine does) than within
one, so a process is one observation: the logarithm of its median. Two sides are held against each other by
Welch's t interval of the difference of their means (Georges, Buytaert and Eeckhout, "Statistically rigorous
Java performance evaluation", OOPSLA 2007, section 3; Kalibera and Jones, "Rigorous benchmarking in reasonable
time", ISMM 2013, on what counts as an observation). The machine may be slower today as a whole: the same is
asked of the ratio to eager, which took turns with the compiled code in the same process.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Student's t, 99% two-sided, for 1, 2, ... degrees of freedom; the normal distribution's beyond.
_T99 = (
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947,
    2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
)  # fmt: skip
_Z99 = 2.576


@dataclass(frozen=True)
class Ratio:
    """A time after divided by the time before, with its 99% interval. ``assumed``: a side had one process
    only, so its spread from process to process is a supposition."""

    ratio: float
    low: float
    high: float
    assumed: bool = False

    def slower(self, threshold: float) -> bool:
        """Whether it is certainly more than 1, and at least ``1 + threshold``."""
        return self.low > 1 and self.ratio > 1 + threshold

    def faster(self, threshold: float) -> bool:
        return self.high < 1 and self.ratio < 1 / (1 + threshold)


def ratio_of(before: Sequence[float], after: Sequence[float], *, spread: float) -> Ratio | None:
    """The ratio of two times from positive observations of each, one a process; ``None`` if a side has none.

    ``spread``: the relative spread from process to process that is supposed where it cannot be seen.
    """
    one, two = ([math.log(value) for value in side if value > 0] for side in (before, after))
    if not one or not two:
        return None
    middle = statistics.fmean(two) - statistics.fmean(one)
    assumed = min(len(one), len(two)) < 2
    if assumed:
        half = _Z99 * math.sqrt(sum(_variance(side, spread) / len(side) for side in (one, two)))
    else:
        half = _welch(one, two)
    return Ratio(math.exp(middle), math.exp(middle - half), math.exp(middle + half), assumed)


def _welch(one: Sequence[float], two: Sequence[float]) -> float:
    """Half the width of Welch's interval."""
    parts = [statistics.variance(side) / len(side) for side in (one, two)]
    total = sum(parts)
    if total == 0:
        return 0.0
    freedom = total**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (one, two)))
    place = math.floor(freedom + 1e-9) - 1
    return (_T99[place] if place < len(_T99) else _Z99) * math.sqrt(total)


def _variance(values: Sequence[float], spread: float) -> float:
    return max(spread**2, statistics.variance(values) if len(values) > 1 else 0.0)
