"""Dynamo's guards in the words of the program: its names as it writes them, and its checks of identity."""

from __future__ import annotations

import re
from collections.abc import Iterable

IDENTITY = re.compile(r"___check_(type|obj)_id\((.+), (?:…|\d+)\)(?:, type=<class '([\w.]+)'>)?")
"""That an object, or its type, is the one that it was: ``type`` or ``obj``, of what, and its class."""
_SIZE = re.compile(r"(\w{1,40}) = input (.{1,200}?)(?:\.size\(\)\[(\d{1,4})\])?\s+SymInt\(")
"""A line of a graph's text: a symbol, and where Dynamo takes it from."""
_SOURCE = re.compile(r"\b[LG]\['(\w+)'\]")


def in_own_names(code: str) -> str:
    """``x.shape[0]`` for ``L['x'].shape[0]``: a local or global name, without where it was found."""
    return _SOURCE.sub(r"\1", code)


def dimensions(lines: Iterable[str]) -> dict[str, str]:
    """``x.shape[0]`` for ``s77``: what symbols stand for, by the lines of a graph's inputs."""
    found = {}
    for each in map(_SIZE.match, lines):
        if each is not None:
            symbol, source, place = each.groups()
            found[symbol] = in_own_names(source) + (f".shape[{place}]" if place is not None else "")
    return found
