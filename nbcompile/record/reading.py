"""From JSON that anyone may have written to values of the record's classes, in bounded time and memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbcompile.errors import RecordError
from nbcompile.record.packed import MAX_UNPACKED, check_size, is_odd, parsed, unpack
from nbcompile.record.packed import check_depth as check_depth
from nbcompile.units import clip, plain_line

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import SchemaValidator

MAX_KEYS = 100_000
"""Of one dictionary of a record: all that is wrong with its values is gathered before any of it is told."""


def values(text: str | bytes) -> Any:
    """JSON values of a text that anyone may have written. RecordError if it is none, or too large."""
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


def record(kind: type, data: Mapping[str, Any]) -> Any:
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
