"""Dynamo's guards in the words of the program: its names as it writes them, and its checks of identity."""

from __future__ import annotations

import re

IDENTITY = re.compile(r"___check_(type|obj)_id\((.+), (?:…|\d+)\)(?:, type=<class '([\w.]+)'>)?")
"""That an object, or its type, is the one that it was: ``type`` or ``obj``, of what, and its class."""
_SOURCE = re.compile(r"\b[LG]\['(\w+)'\]")


def in_own_names(code: str) -> str:
    """``x.shape[0]`` for ``L['x'].shape[0]``: a local or global name, without where it was found."""
    return _SOURCE.sub(r"\1", code)
