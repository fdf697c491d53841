"""What a function's code, and the code of the functions inside it, is and names."""

from __future__ import annotations

import types
from collections.abc import Iterator


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from codes(inner)


def names_in(code: types.CodeType) -> dict[str, None]:
    """The names of globals and attributes that it, or what is inside it, may look up, each once, in order."""
    return dict.fromkeys(name for each in codes(code) for name in each.co_names)
