"""The table of faults: one function each, registered with how often it is tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lab import Lab

Trial = Callable[[Lab], None]


@dataclass(frozen=True)
class Kind:
    """``trials``: how often it is tried for the table; ``each``: how often by one call of ``run``, in one
    session. ``about``: what is expected, a sentence."""

    group: str
    name: str
    trials: int
    run: Trial
    about: str
    each: int = 1


KINDS: dict[str, Kind] = {}


def kind(group: str, name: str, trials: int, each: int = 1) -> Callable[[Trial], Trial]:
    """Register a fault. The function provokes it once, in the lab that it is given, and raises LostError
    (AssertionError will do) unless the user's program lives on; its docstring says what is expected."""

    def register(run: Trial) -> Trial:
        assert name not in KINDS, name
        about = " ".join((run.__doc__ or "").split())
        assert about, name
        KINDS[name] = Kind(group, name, trials, run, about, each)
        return run

    return register
