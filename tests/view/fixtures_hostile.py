"""A record with hostile text in every field."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from nbcompile.compilation import Compilation

HOSTILE = "</pre></title><script>alert(1)</script><img src=x onerror=alert(2)>'\"&\x1b[2J\x00\ud800 '/*"


def hostile(kind: Any = Compilation, depth: int = 0, text: str = HOSTILE) -> Any:
    """An instance of ``kind`` with hostile text in every field that can hold text."""
    hints = typing.get_type_hints(kind)
    return kind(**{f.name: _hostile_value(hints[f.name], text, f.default) for f in dataclasses.fields(kind)})


def _hostile_value(hint: Any, text: str, default: Any) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return hostile(hint, text=text)
    if hint is str:
        return default if isinstance(default, str) and default.startswith("nbcompile.compilation/") else text
    if origin is typing.Literal:
        return args[0]
    if origin is tuple:
        return (_hostile_value(args[0], text, None),)
    if origin is dict:
        return {text: _hostile_value(args[1], text, None)}
    if origin in (typing.Union, types.UnionType):
        return _hostile_value(
            next((a for a in args if a is str or dataclasses.is_dataclass(a)), args[0]), text, None
        )
    return {int: 7, float: 1.5, bool: True}.get(hint, text)
