"""A name that was mistyped, and those it may have been meant for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

CLOSE = 0.6
"""How alike two names are, from 0 to 1, from which on one may have been meant for the other."""


def did_you_mean(name: str, known: Iterable[str], most: int = 3) -> str:
    """``Did you mean fuse? `` with up to ``most`` names, the nearest first; empty where none is near."""
    near = difflib.get_close_matches(name, list(known), most, CLOSE)
    return f"Did you mean {', '.join(near)}? " if near else ""
