"""What was measured of a compile: times, accuracy, the candidates of a search. Parts of a Compilation."""

from __future__ import annotations

from dataclasses import dataclass

SHAKY = 0.5
"""Of a median, between the quartiles, beyond which it says little: a machine that is busy with other work."""
FEW = 8
"""Samples, of which no spread is told."""


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

    what: str  # "forward", "forward+backward", "cell"
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


@dataclass(frozen=True)
class AutotuneChoice:
    """One candidate of a search and its time in seconds (``None`` if it failed: see ``note``)."""

    kernel: str
    candidate: str
    seconds: float | None
    chosen: bool = False
    note: str = ""
