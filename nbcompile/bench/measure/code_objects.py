"""What a function's code, and the code of the functions inside it, is and names, and whose it is."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from pathlib import Path


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from codes(inner)


def names_in(code: types.CodeType) -> dict[str, None]:
    """The names of globals and attributes that it, or what is inside it, may look up, each once, in order."""
    return dict.fromkeys(name for each in codes(code) for name in each.co_names)


def is_users(file: str) -> bool:
    """Whether a file is Python of the user's own, and not of Python or an installed package."""
    path = Path(file)
    if path.suffix != ".py" or not path.is_absolute() or not path.is_file():
        return False
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return not installed and not path.is_relative_to(Path(inspect.__file__).parent)
