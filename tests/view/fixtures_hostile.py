"""A record with hostile text in every field."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from nbcompile.record.compilation import Compilation

NAMES = frozenset({"id", "inputs", "origins", "producer", "consumer", "loops", "graph", "parent"})
"""Fields that name other parts of a record."""

HOSTILE = "</pre></title><script>alert(1)</script><img src=x onerror=alert(2)>'\"&\x1b[2J\x00\ud800 '/*"


def hostile(kind: Any = Compilation, depth: int = 0, text: str = HOSTILE) -> Any:
    """An instance of ``kind`` with hostile text in every field that can hold text; a peer has none itself."""
    hints = typing.get_type_hints(kind)
    values = {
        field.name: _hostile_value(hints[field.name], text, field.default)
        for field in dataclasses.fields(kind)
        if field.name != "peers"
    }
    if kind is Compilation and depth == 0:
        values["peers"] = (hostile(kind, 1, text),)
    return kind(**values)


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


def poisoned(value: Any, text: str, keep: frozenset[str] = frozenset()) -> Any:
    """A realistic record with ``text`` appended to every string but the schema's, words of which only a few
    are allowed, and the fields ``keep``. Ids that get it get it everywhere: what is linked stays linked.
    """
    if isinstance(value, str):
        return value + text
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = typing.get_type_hints(type(value))
        changes = {
            name: poisoned(getattr(value, name), text, keep)
            for name, hint in hints.items()
            if name not in keep and name != "schema" and "Literal" not in str(hint)
        }
        return dataclasses.replace(value, **changes)
    if isinstance(value, tuple):
        return tuple(poisoned(item, text, keep) for item in value)
    if isinstance(value, dict):
        return {str(key) + text: poisoned(item, text, keep) for key, item in value.items()}
    return value
