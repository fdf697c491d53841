"""Where the programs register themselves."""

from __future__ import annotations

from collections.abc import Callable

from users.corpus import Made, seeded

PROGRAMS: dict[str, Callable[[], Made]] = {}


def program(make: Callable[[], Made]) -> Callable[[], Made]:
    """Register what makes a program under its own name."""
    assert make.__name__ not in PROGRAMS
    PROGRAMS[make.__name__] = seeded(make)
    return make
