"""A trace file, record by record, in one pass: a line of JSON, and the tab-indented payload that follows it.

Payloads are held one at a time and only up to :data:`MOST_HELD` bytes; of all, the place is kept, so that
they are read again when someone looks. What cannot be read is counted under a name, never passed over.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

BLOCK = 1 << 22
MOST_HELD = 1 << 24
"""Bytes of one record that are held at a time. A longer payload is hashed as it passes, and not looked at."""
MOST_HEADER = 1 << 24
"""Bytes of the line before the payload; torch's compilation metrics take 40 kB."""
MOST_SHOWN = 1 << 26
"""Bytes of a payload that are read when it is looked at."""

_BOUNDARY = re.compile(rb"\n(?=[^\t])")
_GLOG = re.compile(rb"^(?:\[rank\d+\]:\s*)?[A-Z](\d{4} \d\d:\d\d:\d\d\.\d+)\s+\d+ [^\]\n]{1,4096}\] (?=\{)")


@dataclass(frozen=True)
class PayloadPlace:
    """Where a payload lies: bytes of the file (of a gzip'd one, of what it unpacks to), tabs included.
    ``intact``: its hash is the one that torch wrote beside it."""

    offset: int
    length: int
    intact: bool = True
    md5: str = ""


@dataclass(frozen=True)
class TraceRecord:
    """One record: ``header`` is its JSON, ``header_place`` where that stands. ``payload`` is ``None`` where
    there is none, or where it is too long to be held."""

    header: dict[str, Any]
    header_place: PayloadPlace
    place: PayloadPlace | None = None
    payload: bytes | None = None
    moment: str = ""


class TraceReader:
    """The records of one file, once. Afterwards ``unread`` counts what was not read, by reason, ``damaged``
    the payloads that are not what torch wrote, and ``records`` and ``size`` what was gone through."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unread: Counter[str] = Counter()
        self.damaged = 0
        self.records = 0
        self.size = 0

    def __iter__(self) -> Iterator[TraceRecord]:
        with opened(self.path) as stream:
            for piece in self._pieces(stream):
                self.records += 1
                record = self._record(piece)
                if record is not None:
                    yield record

    def _pieces(self, stream: IO[bytes]) -> Iterator[_Piece]:
        held, at, searched = b"", 0, 0
        long: _Long | None = None
        while block := self._read(stream):
            held += block
            start = 0
            for match in _BOUNDARY.finditer(held, searched):
                yield _ended(long, at + start, held[start : match.start()])
                long, start = None, match.end()
            held, at = held[start:], at + start
            if len(held) > MOST_HELD or long is not None:
                # The last byte may be the end of the record; it stays until the next one is seen.
                long = long or _Long(at)
                long.add(held[:-1])
                at, held = at + len(held) - 1, held[-1:]
            searched = max(0, len(held) - 1)
        self.size = at + len(held)
        if held or long is not None:
            yield _ended(long, at, held.removesuffix(b"\n"))

    def _read(self, stream: IO[bytes]) -> bytes:
        try:
            return stream.read(BLOCK)
        except (EOFError, OSError, gzip.BadGzipFile) as error:
            self.unread[f"the file ends early: {type(error).__name__}"] += 1
            return b""

    def _record(self, piece: _Piece) -> TraceRecord | None:
        if not piece.head.strip() and not piece.length:
            return None
        begins = _GLOG.match(piece.head)
        if begins is None:
            self.unread["no line of a trace"] += 1
            return None
        header = parsed(piece.head[begins.end() :])
        if not isinstance(header, dict):
            self.unread["JSON that does not parse"] += 1
            return None
        where = PayloadPlace(piece.at + begins.end(), len(piece.head) - begins.end())
        moment = begins[1].decode("ascii")
        said = header.get("has_payload")
        if not said and not piece.length:
            return TraceRecord(header, where, moment=moment)
        intact = said == piece.md5
        self.damaged += not intact
        md5 = said if isinstance(said, str) else ""
        place = PayloadPlace(piece.at + len(piece.head) + 1, max(0, piece.length - 1), intact, md5)
        return TraceRecord(header, where, place, piece.payload, moment)


@dataclass(frozen=True)
class _Piece:
    """A record as bytes: from ``at``, ``head`` without its newline, then ``length`` bytes, the newline among
    them, of which ``payload`` is what torch was given."""

    at: int
    head: bytes
    length: int
    payload: bytes | None
    md5: str


def _ended(long: _Long | None, at: int, raw: bytes) -> _Piece:
    """The record that ends with ``raw``; ``long`` is what has passed of it already."""
    if long is not None:
        long.add(raw)
        return long.piece()
    head, newline, body = raw.partition(b"\n")
    payload = untabbed(body) if newline else None
    digest = hashlib.md5(payload, usedforsecurity=False).hexdigest() if payload is not None else ""
    return _Piece(at, head[:MOST_HEADER], len(body) + len(newline), payload, digest)


class _Long:
    """A record too long to be held: its head is, its payload goes through the hash."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.head: bytes | None = None
        self._begun = b""
        self._length = 0
        self._rest = b""
        self._md5 = hashlib.md5(usedforsecurity=False)

    def add(self, raw: bytes) -> None:
        if self.head is None:
            head, newline, body = raw.partition(b"\n")
            self._begun += head
            if not newline:
                self._begun = self._begun[: MOST_HEADER + 1]
                return
            self.head, self._length, raw = self._begun, 1, body
            self._rest = b"\n"
        self._length += len(raw)
        text = self._rest + raw
        # A newline at the end may have its tab in the next part.
        self._rest = b"\n" if text.endswith(b"\n") else b""
        plain = text[: len(text) - len(self._rest)].replace(b"\n\t", b"\n")
        if self._length == len(raw) + 1:
            plain = plain.removeprefix(b"\n")
        self._md5.update(plain)

    def piece(self) -> _Piece:
        self._md5.update(self._rest)
        head = self.head if self.head is not None else self._begun
        return _Piece(self.at, head, self._length, None, self._md5.hexdigest())


def opened(path: Path) -> IO[bytes]:
    """The file's bytes; of a gzip'd one (by its first two bytes) what it unpacks to."""
    stream = path.open("rb")
    packed = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    if not packed:
        return stream
    stream.close()
    return cast("IO[bytes]", gzip.open(path, "rb"))


def text_at(path: Path, place: PayloadPlace) -> str:
    """A payload as torch was given it, of a longer one :data:`MOST_SHOWN` bytes."""
    with opened(path) as stream:
        stream.seek(place.offset)
        raw = stream.read(min(place.length, MOST_SHOWN))
    return untabbed(raw).decode("utf-8", "replace")


def untabbed(body: bytes) -> bytes:
    """What stands after the header's line, without the tab that begins each line."""
    return body.removeprefix(b"\t").replace(b"\n\t", b"\n")


def parsed(text: str | bytes) -> Any:
    """JSON, or ``None`` where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
