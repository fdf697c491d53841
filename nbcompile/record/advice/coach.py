"""What a finding costs, and the rewrite that mends it, as part of the record."""

from __future__ import annotations

from dataclasses import dataclass

OF_SIZES = r"size mismatch|\.size\(\)|shape"
"""What is in the reason of a recompile that sizes have caused."""


@dataclass(frozen=True)
class Price:
    """What something costs a call. ``measured``: with and without it, timed; else ``how`` says from what it
    is estimated. ``milliseconds`` below zero: the call is faster with what is priced. ``once``: it is paid
    when it happens, not at each call. ``most``: it costs no more than that."""

    milliseconds: float | None = None
    kernels: int | None = None
    graphs: int | None = None
    measured: bool = False
    how: str = ""
    once: bool = False
    most: bool = False


@dataclass(frozen=True)
class Mend:
    """A rewrite of the cell, tried on copies: it compiled whole and agreed with eager. ``after`` is the whole
    new text, ``diff`` what changes. Where none held (``after`` empty), ``note`` says why. ``cell``: what is
    rewritten is another cell of the session, called so (``In [3]``), or a file (``model.py``), whose whole
    text is ``before``."""

    title: str = ""
    diff: str = ""
    after: str = ""
    note: str = ""
    graphs_before: int = 0
    graphs_after: int = 0
    kernels_before: int = 0
    kernels_after: int = 0
    milliseconds_before: float | None = None
    milliseconds_after: float | None = None
    error: float | None = None  # the largest, against float64 where that could be run
    cell: str = ""
    before: str = ""

    @property
    def speedup(self) -> float:
        """Of a call, over the cell as it is; 1 where it was not timed."""
        before, after = self.milliseconds_before, self.milliseconds_after
        return before / after if before and after else 1.0
