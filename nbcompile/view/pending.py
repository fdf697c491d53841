"""A record that is shown while it is still being measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pending:
    """What is still to come: ``text`` says what is being done, ``since`` is when measuring began, in seconds
    since 1970."""

    text: str
    since: float
