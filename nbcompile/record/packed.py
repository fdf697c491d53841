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
import re
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from nbcompile.errors import RecordError
from nbcompile.units import clip, plain_line

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import SchemaValidator

MAX_UNPACKED = 256_000_000
"""Bytes of JSON: a small file must not unfold into more than that. The explorer has the same bound."""
MAX_VALUES = 4_000_000
"""Of the JSON: short ones take a hundred times their text in memory. A record of 64 MB has as many.
The explorer has the same bound."""
MAX_DEPTH = 64
"""Of values in values, where a record's schema leaves it open."""
MAX_WHOLE = 2**63
"""What a whole number must not reach, nor its negative."""
MAX_NUMBER = 1e100
"""The same of others: what is computed of them stays finite."""
_LEVEL, _LEVEL_OF_LARGE, _LARGE = 9, 8, 2**20
"""Of zlib. Of a large record (in bytes of text), for whose view somebody waits, 9 takes 0.06 s longer than 8
(of 13 MB) and is a hundredth smaller; 7 takes half of 8's time, 0.17 s, and is 6 % larger."""
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
    if not isinstance(packed["deflate"], str):
        raise RecordError("this record is damaged: what is packed in it is no text")
    try:
        text = inflate.decompress(base64.b64decode(packed["deflate"], validate=True), MAX_UNPACKED + 1)
    except (ValueError, zlib.error) as error:
        raise RecordError(f"this record is damaged: {error}") from error
    if len(text) > MAX_UNPACKED:
        raise RecordError(f"this record is too large: it unpacks to more than {MAX_UNPACKED:,} bytes")
    if not inflate.eof or inflate.unused_data:
        raise RecordError(f"this record {'goes on after its end' if inflate.eof else 'breaks off'}")
    check_size(text)
    return text


def check_size(text: str | bytes) -> None:
    """RecordError for JSON text of more bytes than :data:`MAX_UNPACKED`, or more values than
    :data:`MAX_VALUES`, before it is parsed."""
    if len(text) > MAX_UNPACKED:
        raise RecordError(f"this record is too large: it has more than {MAX_UNPACKED:,} bytes")
    if (text.count(",") if isinstance(text, str) else text.count(b",")) > MAX_VALUES:
        raise RecordError(f"this record is too large: it has more than {MAX_VALUES:,} values")


def parsed(text: str | bytes) -> Any:
    """JSON values. ValueError also for numbers that JSON has not (``NaN``), and for those that are no measure
    of anything (:data:`MAX_WHOLE`, :data:`MAX_NUMBER`); RecursionError where it is too deep."""
    return json.loads(text, parse_constant=_no_number, parse_int=_whole, parse_float=_finite)


def is_odd(text: bytes) -> bool:
    """Whether JSON text may hold what :func:`parsed` refuses, or a lone surrogate, which pydantic cannot
    parse: a parser that is quicker lets the one pass and not the other."""
    return _ODD.search(text) is not None


_ODD = re.compile(rb"\\u[dD][89a-fA-F]|\d{19}|\d[eE]\+?\d{3}|NaN|Infinity")


def _whole(text: str) -> int:
    if len(text) > 20 or abs(int(text)) >= MAX_WHOLE:
        raise ValueError(f"{text[:20]}… is too large a number")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not abs(value) < MAX_NUMBER:
        raise ValueError(f"{text[:20]}… is too large a number")
    return value


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def check_depth(value: Any) -> None:
    """RecordError for values more than :data:`MAX_DEPTH` deep in each other."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            each
            for one in level
            for each in (one.values() if isinstance(one, dict) else one)
            if isinstance(each, dict | list | tuple)
        ]
        if not level:
            return
    raise RecordError(f"this record is damaged: its options are more than {MAX_DEPTH} deep")


def deflated(text: str) -> str:
    """A text in zlib's format, in base64."""
    data = text.encode()
    level = _LEVEL if len(data) < _LARGE else _LEVEL_OF_LARGE
    return base64.b64encode(zlib.compress(data, level)).decode()


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON text that UTF-8 carries: lone surrogates, which it has not, are written as escapes."""
    text = json.dumps(
        value, indent=indent, ensure_ascii=False, separators=(",", ":") if indent is None else None
    )
    return _SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


_SURROGATE = re.compile("[\ud800-\udfff]")


# -- from JSON that anyone may have written to values of the record's classes -------------------------------

MAX_KEYS = 100_000
"""Of one dictionary of a record: all that is wrong with its values is gathered before any of it is told."""


def values_of_text(text: str | bytes) -> Any:
    """JSON values of a text that anyone may have written. RecordError if it is none, or too large."""
    if not isinstance(text, str | bytes):
        raise RecordError(f"a record is text or bytes, and this is {type(text).__name__}")
    check_size(text)
    try:
        return parsed(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON: {said(error)}") from error


def values_of_file(file: str | Path) -> Any:
    """JSON values of a file. RecordError, which names it, if it cannot be read, is no JSON, or too large."""
    try:
        if Path(file).stat().st_size > MAX_UNPACKED:
            raise RecordError(f"{file} is too large: it has more than {MAX_UNPACKED:,} bytes.")
        text = Path(file).read_bytes()
    except OSError as error:
        raise RecordError(f"{file} cannot be read: {error.strerror}.") from error
    check_size(text)
    try:
        return parsed(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{file} is not JSON: {said(error)}.") from error


def record_of(kind: type, data: Mapping[str, Any]) -> Any:
    """A value of one of the record's classes, of JSON values, packed or not. RecordError for what is none."""
    from pydantic import ValidationError

    known = validator(kind)
    try:
        if "deflate" not in data:
            return known.validate_python(data)
        text = unpack(data)
        return known.validate_python(parsed(text)) if is_odd(text) else known.validate_json(text)
    except ValidationError as error:
        where, message = first_of(error)
        raise RecordError(f"{f'field {where}' if where else 'the record'}: {message}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"this record is damaged: {said(error)}") from error


def check_schema(schema: Any, known: str) -> None:
    """RecordError for a schema that is not ``known``."""
    if isinstance(schema, str) and schema.startswith("nbcompile.bench/"):
        raise RecordError(
            "this is what `nbcompile bench --save` wrote, of many cases: no single record",
            advice="`nbcompile diff BEFORE AFTER` compares two of these.",
        )
    if not isinstance(schema, str) or not schema.startswith("nbcompile.compilation/"):
        raise RecordError("this is not an nbcompile record: it has no nbcompile schema line")
    if schema != known:
        raise RecordError(
            f"this record says {said(schema, 60)}, this nbcompile reads {known}: upgrade nbcompile"
        )


def said(what: object, width: int = 200) -> str:
    """Words about a stranger's record, which may hold some of its own: on one line, and not too many."""
    return plain_line(clip(str(what), width))


def first_of(error: ValidationError) -> tuple[str, str]:
    """Where in the record the first thing that is wrong is, and what."""
    first = error.errors(include_url=False, include_input=False)[0]
    return said(".".join(clip(str(part), 40) for part in first["loc"][:12])), said(first["msg"])


@lru_cache(maxsize=8)
def validator(kind: type) -> SchemaValidator:
    """Of a class, which stops at the first thing that is wrong in a tuple: a million wrong items would make a
    million errors."""
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    return SchemaValidator(_bounded(TypeAdapter(kind).core_schema))


def _bounded(schema: Any) -> Any:
    if isinstance(schema, list | tuple):
        return type(schema)(_bounded(each) for each in schema)
    if not isinstance(schema, dict):
        return schema
    made = {name: _bounded(each) for name, each in schema.items()}
    if made.get("type") == "tuple" and "items_schema" in made:
        return {**made, "fail_fast": True}
    if made.get("type") == "dict":
        check = {"type": "no-info", "function": _check_keys}
        return {"type": "function-before", "function": check, "schema": made}
    return made


def _check_keys(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > MAX_KEYS:
        raise ValueError(f"more than {MAX_KEYS:,} keys")
    return value
