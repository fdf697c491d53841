"""Special functions that C's library lacks, as double-precision C with their sources."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Special:
    """A C function ``<name>_f64``; ``functions`` are the C library functions it calls, ``needs`` other
    special functions it calls."""

    text: str
    functions: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


SPECIAL: dict[str, Special] = {}
