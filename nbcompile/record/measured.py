"""What was measured of a compile: times, accuracy, the candidates of a search. Parts of a Compilation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

SHAKY = 0.5
"""Of a median, between the quartiles, beyond which it says little: a machine that is busy with other work."""
FEW = 8
"""Samples, of which no spread is told."""
NARROW = 11
"""Samples, from which on the interval of their median lies within their p10 and p90: of fewer it is nearly
all of their range, and that it overlaps another's is for want of samples."""
LEAST_TOLD = 4
"""Samples of a side, below which no difference is one: by chance two sides of four lie apart in one case of
35."""
TIE = 0.97
"""Medians closer than that are the same, however well they are known: one process differs from the next by as
much."""
_SIGMAS = 2.576  # 99%, two-sided
RAISED = "raised "
"""How the reason of a contestant begins that has no times since it failed: what follows is the error."""
NOT_TIMED = "not timed"
NOT_COMPARED = "not compared"
"""How the reason of a :class:`Measurement` begins that is of the timing alone: what it is of ran compiled."""


@dataclass(frozen=True)
class Measurement:
    """Times of one contestant, in seconds. ``None`` means not measured.

    ``cold`` is a compile with every cache empty, ``warm`` one with caches full, ``first`` the first
    call after that, ``steady`` the interleaved samples of one call. A time is only ever present if
    the compiled code ran; else ``ran_compiled`` is false and ``reason`` says why. The contestant
    ``eager`` is what the others are held against: it has nothing compiled to run, and its times count.

    ``peak_bytes``: the most that was held while one call ran, above what was held before this contestant
    was compiled. On a GPU as torch's allocator counts it, on a CPU resident memory of the whole process.
    """

    what: str  # "forward", "forward+backward", "cell"; of a part of a cell TimedCellPart.name
    contestant: str  # "eager", "nbcompile", "inductor", ...
    mode: str = "default"
    cold: float | None = None
    warm: float | None = None
    first: float | None = None
    steady: tuple[float, ...] = ()
    ran_compiled: bool = True
    reason: str = ""
    threads: int = 0
    graphs: int = 0
    breaks: int = 0
    kernels: int | None = None
    recompiles: int = 0
    peak_bytes: int | None = None

    def quantile(self, q: float) -> float | None:
        """Quantile ``q`` in [0, 1] of the steady samples, by linear interpolation, in seconds."""
        if not self.steady:
            return None
        ordered = sorted(self.steady)
        place = q * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    @property
    def median(self) -> float | None:
        return self.quantile(0.5)

    @property
    def median_interval(self) -> tuple[float, float] | None:
        """Between which samples the median lies by 99%, from their order alone, so that no distribution is
        supposed (e.g. Conover, Practical Nonparametric Statistics, 3.2); of fewer than eight samples that is
        all of their range, and of fewer than :data:`LEAST_TOLD` nothing is known."""
        count = len(self.steady)
        if count < LEAST_TOLD:
            return None
        ordered, away = sorted(self.steady), _SIGMAS / 2 * count**0.5
        low, high = max(0, math.floor(count / 2 - away)), min(count - 1, math.ceil(count / 2 + away))
        return ordered[low], ordered[high]

    @property
    def shaky(self) -> bool:
        """Whether the samples lie too far apart for their median to be trusted."""
        low, middle, high = (self.quantile(q) for q in (0.25, 0.5, 0.75))
        if len(self.steady) < FEW or low is None or not middle or high is None:
            return False
        return (high - low) / middle > SHAKY

    @property
    def counts(self) -> bool:
        """Whether the times are what they say: compiled code ran, or this is eager itself."""
        return self.ran_compiled or (self.contestant == "eager" and not self.reason)


Difference = Literal["faster", "slower", "same", "unclear"]


def difference(ours: Measurement, other: Measurement, tie: float = TIE) -> Difference:
    """What may be said of two contestants that were timed by turns: one is faster where the intervals of
    their medians lie apart. How far single samples lie from each other does not matter: of many, the medians
    are known far better than that. Medians whose ratio is nearer to 1 than ``tie`` are the same."""
    mine, theirs = ours.median, other.median
    own, its = ours.median_interval, other.median_interval
    if mine is None or theirs is None or own is None or its is None:
        return "unclear"
    if theirs * tie < mine < theirs / tie:
        return "same"
    if own[0] <= its[1] and its[0] <= own[1]:
        return "unclear"
    return "faster" if mine < theirs else "slower"


@dataclass(frozen=True)
class TimedLoop:
    """A loop of a cell that Python runs step by step: what is compiled in it is timed once, and was run
    ``passes`` times."""

    line: int
    passes: int


@dataclass(frozen=True)
class TimedCellPart:
    """What of a cell its times are of, where that is not the whole cell.

    ``python`` are lines that ran in Python, ``kept`` lines that were compiled and cannot be run again: both
    are outside of all times. ``loops``: of these one pass is timed. ``single``: nothing is timed but one pass
    of one loop. ``python_seconds`` is what Python took for its lines when the cell ran.
    """

    python: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    loops: tuple[TimedLoop, ...] = ()
    single: bool = False
    python_seconds: float | None = None

    @property
    def name(self) -> str:
        """What was timed, in a word or two: never "cell"."""
        return "one pass" if self.single else "compiled lines"


@dataclass(frozen=True)
class Accuracy:
    """Relative error ``|got - ref| / |ref|`` (Frobenius) of one output against a float64 reference,
    beside eager's own. ``eager_error`` is ``None`` when no float64 reference could be run."""

    contestant: str
    output: str
    error: float | None
    eager_error: float | None
    max_difference: float | None = None  # from eager, absolute
    agrees: bool = True
    reason: str = ""

    @property
    def is_compared(self) -> bool:
        """Whether the output could be: of an object that holds no tensors nothing is known."""
        return not self.reason.startswith(NOT_COMPARED)


@dataclass(frozen=True)
class AutotuneChoice:
    """One candidate of a search and its time in seconds (``None`` if it failed: see ``note``)."""

    kernel: str
    candidate: str
    seconds: float | None
    chosen: bool = False
    note: str = ""
