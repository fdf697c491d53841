"""The file of a participant: its name, and reading one that anybody may have written."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from nbcompile.errors import NbcompileError
from nbcompile.record.packed import first_of, parsed, said, validator
from nbcompile.workshop.progress.model import MOST_NAME, SCHEMA, Progress

SUFFIX = ".progress.json"
MOST_BYTES = 200_000
"""Of one file: all exercises of the workshop take 10,000."""


class ProgressError(NbcompileError):
    """A participant's file, or the folder of a class, cannot be read or written."""


def file_name(participant: str) -> str:
    """The name of a participant's file: letters, digits and dashes of theirs. A name with anything else in
    it gets some digits of its own, so that two names are never one file."""
    plain = unicodedata.normalize("NFKD", participant).encode("ascii", "ignore").decode().lower()
    kept = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40]
    if kept != participant:
        digits = hashlib.sha256(participant.encode("utf-8", "replace")).hexdigest()[:8]
        kept = f"{kept or 'participant'}-{digits}"
    return f"{kept}{SUFFIX}"


def shown_name(participant: str) -> str:
    """A name on one line, of at most :data:`MOST_NAME` letters; empty where there is nothing to see."""
    return said(participant, MOST_NAME).strip()


def read(file: Path) -> Progress:
    """A participant's file. ProgressError, with the reason alone, for what is none: it is a plain file, of
    bounded size, and each value in it is what it should be."""
    text = _bytes(file)
    try:
        data = parsed(text)
    except (ValueError, RecursionError) as error:
        raise ProgressError(f"it is not JSON: {said(error)}") from error
    schema = data.get("schema") if isinstance(data, Mapping) else None
    if schema != SCHEMA:
        told = f"it says {said(schema, 60)}" if isinstance(schema, str) else "it has no schema line"
        raise ProgressError(f"{told}, and this nbcompile reads {SCHEMA}")
    try:
        found: Progress = validator(Progress).validate_python(data)
    except ValidationError as error:
        where, message = first_of(error)
        raise ProgressError(f"field {where}: {message}") from error
    return found


def _bytes(file: Path) -> bytes:
    # A link may lead anywhere, and whoever opens a pipe waits for its writer.
    how = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        if stat.S_ISLNK(os.lstat(file).st_mode):
            raise ProgressError("it is a link, not a file")
        with open(os.open(file, how), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise ProgressError("it is no plain file")
            text = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise ProgressError(f"it cannot be read: {error.strerror or error}") from error
    if len(text) > MOST_BYTES:
        raise ProgressError(f"it has more than {MOST_BYTES:,} bytes")
    return text
