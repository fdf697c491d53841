"""What a function's code, and the code of the functions inside it, is and names, and whose it is."""

from __future__ import annotations

import dis
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path

INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Where Python's own files and those of installed packages lie: a file's name begins with one of these."""


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from codes(inner)


def names_in(code: types.CodeType) -> dict[str, None]:
    """The names of globals and attributes that it, or what is inside it, may look up, each once, in order."""
    return dict.fromkeys(name for each in codes(code) for name in each.co_names)


def names_bound(code: types.CodeType) -> frozenset[str]:
    """The names that code of a module or a cell gives values, functions and classes included."""
    stores = ("STORE_NAME", "STORE_GLOBAL")
    return frozenset(str(each.argval) for each in dis.get_instructions(code) if each.opname in stores)


def is_users(file: str) -> bool:
    """Whether a file is Python of the user's own, and not of Python or an installed package."""
    path = Path(file)
    if path.suffix != ".py" or not path.is_absolute() or not path.is_file():
        return False
    return not file.startswith(INSTALLED) and not {"site-packages", "dist-packages"} & set(path.parts)


def is_users_class(kind: type) -> bool:
    """Whether a class is of the user's own: of a cell, or of a file that is."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return kind.__module__ not in sys.builtin_module_names and not file.startswith(INSTALLED)
