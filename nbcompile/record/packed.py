"""Records as JSON values, and those packed: what a notebook, a page and a widget hold of a record.

The packed form is ``{"schema", "id", "title", "deflate"}``. ``deflate`` is all of it: the JSON text that
:func:`nbcompile.record.compilation.json_schema` describes, in zlib's format (RFC 1950) and base64, since a
notebook is JSON and a page is text. The rest is what a reader of the file, or a list of records, needs before
it is unpacked. A browser reads it with its own ``DecompressionStream`` (labextension/src/record/read.ts).
"""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from nbcompile.errors import RecordError

MAX_UNPACKED = 256_000_000
"""Bytes of JSON: a small file must not unfold into more than that. The explorer has the same bound."""
_LEVEL = 9
"""Of zlib: twice the time of 7 for a record with machine code (0.1 s), and a thirtieth smaller."""
LEFT_OUT = "left out"
"""In a field's metadata: what of the object its class makes that field, when JSON does not say it."""
_AS_THEY_ARE = frozenset({str, int, bool, type(None)})


def plain(value: Any) -> Any:
    """JSON values of dataclasses and what they hold: a field at its default is left out, and one that its
    class makes of the others; a tuple is a list. Non-finite numbers are not JSON: they become ``None``."""
    if isinstance(value, float):
        return value if value - value == 0.0 else None
    if isinstance(value, list | tuple):
        return [item if type(item) in _AS_THEY_ARE else plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    kind: Any = type(value)
    if not hasattr(kind, "__dataclass_fields__"):
        return value
    defaults = _defaults(kind)
    for name, made in _made(kind).items():
        defaults = {**defaults, name: made(value)}
    return {
        name: item if type(item) in _AS_THEY_ARE else plain(item)
        for name, item in vars(value).items()
        if name not in defaults or item != defaults[name]
    }


@lru_cache(maxsize=128)
def _defaults(kind: Any) -> dict[str, Any]:
    """The default of each field that has one."""
    out: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            out[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            out[field.name] = field.default_factory()
    return out


@lru_cache(maxsize=128)
def _made(kind: Any) -> dict[str, Callable[[Any], Any]]:
    """The fields that a class makes of its others."""
    fields = dataclasses.fields(kind)
    return {field.name: field.metadata[LEFT_OUT] for field in fields if LEFT_OUT in field.metadata}


def pack(values: Mapping[str, Any], title: str = "") -> dict[str, Any]:
    """A record's JSON values (:meth:`Compilation.to_dict`), packed. ``title`` names it in lists."""
    # ASCII, so that text which UTF-8 cannot carry (a lone surrogate) is packed too.
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))
    head = {"schema": values["schema"], "id": values["id"], "title": title}
    return {**head, "deflate": deflated(text)}


def unpack(packed: Mapping[str, Any]) -> bytes:
    """The JSON text in what :func:`pack` made. RecordError if it is damaged, or larger than
    :data:`MAX_UNPACKED`."""
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(base64.b64decode(packed["deflate"], validate=True), MAX_UNPACKED + 1)
    except (TypeError, ValueError, zlib.error) as error:
        raise RecordError(f"this record is damaged: {error}") from error
    if len(text) > MAX_UNPACKED:
        raise RecordError(f"this record is too large: it unpacks to more than {MAX_UNPACKED:,} bytes")
    if not inflate.eof or inflate.unused_data:
        raise RecordError(f"this record {'goes on after its end' if inflate.eof else 'breaks off'}")
    return text


def deflated(text: str) -> str:
    """A text in zlib's format, in base64."""
    return base64.b64encode(zlib.compress(text.encode(), _LEVEL)).decode()
