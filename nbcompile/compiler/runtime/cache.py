"""The cache on disk: compiled kernels with the record of how they were made, found by key.

One entry is one folder ``<root>/<first two digits of key>/<key>/`` of plain files (``kernel.so``,
``record.json`` ...) and a ``manifest.json`` with the SHA-256 of each. An entry is written beside its
place and renamed into it, so that a reader in any process sees all of it or nothing.

A cache is a convenience, so no trouble with the disk ever reaches the user's cell as an error. Where
the root cannot be written (read-only home, full disk, no permission, not a folder) entries go to
a private temporary folder of this process, from which a library can still be loaded, and
:meth:`DiskCache.take_notes` says so, once.

Why our own: the kept libraries (diskcache, joblib.Memory) store values under a database or a pickle;
a shared library must be a file of its own for ``dlopen``, beside its record, and they raise where the
disk does. What is left is a rename and a manifest.

The folder holds code that will be run, so nothing is loaded from one that is not this user's alone to write,
nor from a file in it that is not (:mod:`nbcompile.compiler.runtime.trust`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import hashlib
import json
import logging
import os
import re
import shutil
import stat
import tempfile
import time
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbcompile.compiler.runtime import scratch, trust

T = typing.TypeVar("T")

DEFAULT_LIMIT = 2 << 30
"""Bytes the cache may fill before the entries used longest ago are removed."""

MANIFEST = "manifest.json"
WATCHERS: list[Callable[[DiskCache, str], None]] = []
"""Each is told the key of every entry that is found or stored, with the cache it is in."""

_PARTIAL = ".partial-"  # prefix of folders being written or being removed
_STALE_SECONDS = 3600.0  # older partial folders belong to processes that died
_STAMP = ".size-read"  # touched when the size is looked at
_COUNTER = ".written"  # a byte for each _UNIT that anybody has written since
_UNIT = 1 << 16
_BUSY = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR)  # not the entry's fault

_log = logging.getLogger("nbcompile")


def default_root() -> Path:
    """``NBCOMPILE_CACHE_DIR`` if set, else the platform's cache folder for nbcompile."""
    chosen = os.environ.get("NBCOMPILE_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    try:
        from platformdirs import user_cache_path
    except ImportError:  # a checkout that is used without being installed, as on a lent machine
        return Path.home() / ".cache" / "nbcompile"
    return user_cache_path("nbcompile", appauthor=False)


def key(*parts: Any) -> str:
    """A stable hexadecimal hash of plain data: equal for equal parts in every process and run.

    Parts are strings, bytes, numbers, booleans, None, and lists, tuples, sets, mappings and
    dataclasses of these. TypeError for anything else, since its hash would not be stable.
    """
    digest = hashlib.sha256()
    _feed(digest, parts)
    return digest.hexdigest()


def _feed(digest: hashlib._Hash, part: Any) -> None:
    """Each part is preceded by its type and length, so that no two inputs make the same stream."""
    if isinstance(part, bytes):
        digest.update(b"b%d:" % len(part) + part)
    elif part is None or isinstance(part, str | bool | int | float):
        text = (part if isinstance(part, str) else repr(part)).encode("utf-8", "surrogatepass")
        digest.update(f"{type(part).__name__}{len(text)}:".encode() + text)
    elif isinstance(part, Path):
        _feed(digest, str(part))
    elif isinstance(part, list | tuple):
        digest.update(b"l%d:" % len(part))
        for item in part:
            _feed(digest, item)
    elif isinstance(part, set | frozenset):
        _feed(digest, ["set", *sorted(key(item) for item in part)])
    elif isinstance(part, Mapping):
        _feed(digest, ["map", *sorted((key(name), key(value)) for name, value in part.items())])
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        _feed(
            digest, [type(part).__name__, {f.name: getattr(part, f.name) for f in dataclasses.fields(part)}]
        )
    else:
        raise TypeError(f"a cache key is made of plain data, not of {type(part).__name__}")


def from_plain(kind: Any, data: Any) -> Any:
    """The value of type ``kind`` whose ``dataclasses.asdict``, written as JSON and read again, is ``data``:
    dataclasses, and tuples and mappings of such. TypeError or KeyError where they do not belong together."""
    return _reader(kind)(data)


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = [(item.name, _reader(hints[item.name])) for item in dataclasses.fields(kind)]
        return lambda data: kind(**{name: read(data[name]) for name, read in fields})  # type: ignore[operator]
    origin, given = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and given[-1:] == (...,):
        item = _reader(given[0])
        return lambda data: tuple(map(item, data))
    if origin is tuple:
        items = [_reader(each) for each in given]
        return lambda data: tuple(read(each) for read, each in zip(items, data, strict=True))
    return lambda data: data


@dataclass(frozen=True)
class Entry:
    """One whole, verified entry. Another process may remove it at any time (to make room), so a file
    that has gone by the time it is opened is to be treated as a miss."""

    key: str
    folder: Path
    names: tuple[str, ...]

    def path(self, name: str) -> Path:
        """Where the file of this name lies, for ``dlopen``. KeyError if the entry has none."""
        if name not in self.names:
            raise KeyError(name)
        return self.folder / name

    def read(self, name: str) -> bytes | None:
        """The file's bytes, or None if it has been removed since. KeyError if the entry has none."""
        try:
            return self.path(name).read_bytes()
        except OSError:
            return None

    def text(self, name: str) -> str:
        """The file's text. ValueError if it has been removed since; KeyError if the entry has none."""
        data = self.read(name)
        if data is None:
            raise ValueError(f"{name} has gone")
        return data.decode()


class DiskCache:
    """Entries under ``root``, shared by every process that names the same root.

    ``limit`` is in bytes; it is looked at now and then, so it may be passed for a while.
    """

    def __init__(self, root: Path | None = None, limit: int = DEFAULT_LIMIT) -> None:
        self.root = default_root() if root is None else root
        self.limit = limit
        self._private: tuple[int, Path] | None = None  # process id, folder
        self._notes: list[str] = []
        self._said: set[str] = set()

    @classmethod
    def shared(cls) -> DiskCache:
        """This process's one cache at :func:`default_root`: every compile sees the same temporary
        folder where the root cannot be written, and each note is said once."""
        return _shared(default_root())

    def get(self, key: str) -> Entry | None:
        """The entry of this key if it is there and whole. One that is damaged is removed."""
        entry = self.peek(key)
        if entry is not None:
            self._used(key)
        return entry

    def peek(self, key: str) -> Entry | None:
        """As :meth:`get`, but nobody is told that the entry was used."""
        for root in self._roots():
            entry = _verified(_folder(root, key), key)
            if entry is not None:
                return entry
        return None

    def find(self, key: str, made: Callable[[Entry], T]) -> T | None:
        """What ``made`` reads of the entry of this key. None if there is none, and where it holds something
        else (KeyError, TypeError, ValueError): it is then removed."""
        entry = self.get(key)
        if entry is None:
            return None
        try:
            return made(entry)
        except (KeyError, TypeError, ValueError):
            self.remove(key)
            return None

    def put(self, key: str, files: Mapping[str, bytes]) -> Entry | None:
        """Store ``files`` (plain names to contents) under ``key`` and return the entry.

        If another process stored the key meanwhile, its entry is returned. None only if not even a
        temporary folder can be written.
        """
        for name in files:
            if name in ("", ".", "..", MANIFEST) or Path(name).name != name or "\\" in name:
                raise ValueError(f"{name!r} is not a plain file name")
        try:
            entry = self._put_retrying(key, files)
        except OSError as error:
            private = self._put_privately(key, files, error)
            if private is not None:
                self._used(key)
            return private
        self._make_room(entry.folder, sum(map(len, files.values())))
        self._used(key)
        return entry

    def put_aside(self, key: str, files: Mapping[str, bytes]) -> Entry | None:
        """As :meth:`put`, into the temporary folder: what is under the root could not be loaded."""
        self.remove(key)
        return self._put_in_temporary(key, files)

    def remove(self, key: str) -> None:
        """Forget this key; nothing happens if it is not there."""
        for root in self._roots():
            _remove(_folder(root, key))

    def clear(self) -> None:
        """Remove every entry, and nothing but entries: a root that holds other files keeps them."""
        for root in self._roots():
            for _, _, folder in _entries(root):
                _remove(folder)
            _sweep(root, older_than=0.0)

    def size(self) -> int:
        """Bytes in entries under the root."""
        return sum(size for _, size, _ in _entries(self.root))

    def contents(self) -> tuple[tuple[float, int], ...]:
        """(time of last use, bytes) of each entry under the root, those first that will go first."""
        return tuple(sorted((used, size) for used, size, _ in _entries(self.root)))

    def why_not(self) -> str:
        """Why the root is not used, as the rest of a sentence; empty if it is."""
        if reason := trust.why_not(self.root):
            return reason
        there = next((each for each in (self.root, *self.root.parents) if each.exists()), None)
        if there is None or not there.is_dir():
            return f"{there} is no folder"
        return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written"

    def take_notes(self) -> tuple[str, ...]:
        """What went wrong since last asked, one sentence each, each said once a process."""
        notes, self._notes = tuple(self._notes), []
        return notes

    def _roots(self) -> list[Path]:
        private = [self._private[1]] if self._private and self._private[0] == os.getpid() else []
        return private if trust.why_not(self.root) else [self.root, *private]

    def _put_retrying(self, key: str, files: Mapping[str, bytes]) -> Entry:
        try:
            return _write(self.root, key, files)
        except FileNotFoundError:  # the root was deleted while we wrote: make it again, once
            return _write(self.root, key, files)

    def _put_privately(self, key: str, files: Mapping[str, bytes], cause: OSError) -> Entry | None:
        self.note(
            f"The compile cache {self.root} cannot be used ({cause.strerror or cause}): compiled kernels "
            "last for this process only. Set NBCOMPILE_CACHE_DIR to another folder to keep them."
        )
        return self._put_in_temporary(key, files)

    def _put_in_temporary(self, key: str, files: Mapping[str, bytes]) -> Entry | None:
        cause = OSError()
        # Memory-backed /dev/shm is the last resort where the disk under the temporary folder is full.
        for base in (None, "/dev/shm"):
            try:
                return _write(self._private_root(base), key, files)
            except OSError as error:
                self._private, cause = None, error
        self.note(f"No temporary folder can be written either ({cause.strerror or cause}).")
        return None

    def _private_root(self, base: str | None) -> Path:
        if self._private is None or self._private[0] != os.getpid():  # a forked child makes its own
            self._private = os.getpid(), Path(tempfile.mkdtemp(prefix="cache-", dir=scratch.own(base)))
        return self._private[1]

    def _used(self, key: str) -> None:
        for watcher in WATCHERS:
            watcher(self, key)

    def note(self, text: str) -> None:
        """Tell the user a sentence, once a process: in the next record, and in the log, for where nobody sees
        a record."""
        if text not in self._said:
            self._said.add(text)
            self._notes.append(text)
            _log.warning(text)

    def _make_room(self, keep: Path, written: int) -> None:
        """Remove the entries used longest ago until three quarters of the limit are left.

        Reading the size of a full cache takes a good part of a second, so it is read when all processes
        have written a sixteenth of the limit since, or nobody has read it for a day.
        """
        stamp, counter = self.root / _STAMP, self.root / _COUNTER
        try:
            with counter.open("ab") as count:
                count.write(bytes(1 + written // _UNIT))
                full = count.tell() * _UNIT * 16 >= self.limit
            # A clock that was set back must not keep anybody from looking for years.
            if not full and stamp.exists() and abs(time.time() - stamp.stat().st_mtime) < 86400.0:
                return
            counter.write_bytes(b"")
            stamp.touch()
        except OSError as error:
            self.note(f"The compile cache {self.root} cannot be trimmed ({error.strerror or error}).")
            return
        _sweep(self.root, older_than=_STALE_SECONDS)
        entries = sorted(_entries(self.root))
        total = sum(size for _, size, _ in entries)
        if total <= self.limit:
            return
        for _, size, folder in entries:
            if total <= self.limit * 3 // 4:
                break
            if folder != keep:
                _remove(folder)
                total -= size


def clear_cache() -> int:
    """Remove every entry under :func:`default_root`; the bytes freed.

    What runs goes on; the next compile of anything starts from nothing.
    """
    cache = DiskCache.shared()
    freed = cache.size()
    cache.clear()
    return freed - cache.size()


@functools.cache
def _shared(root: Path) -> DiskCache:
    return DiskCache(root)


def _folder(root: Path, key: str) -> Path:
    return root / key[:2] / key


def _write(root: Path, key: str, files: Mapping[str, bytes]) -> Entry:
    """Write an entry and rename it into place; OSError if that cannot be done."""
    folder = _folder(root, key)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if reason := trust.why_not(root):
        raise trust.NotOursError(errno.EPERM, reason)
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=root))
    try:
        manifest = {
            "key": key,
            "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        }
        for name, data in files.items():
            _write_file(partial / name, data)
        _write_file(partial / MANIFEST, json.dumps(manifest).encode())
        for _ in range(3):
            try:
                os.rename(partial, folder)
                break
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
            # Another process was first. Its entry is as good as ours, unless damaged, and then get's
            # check has just removed it and the place is free.
            other = _verified(folder, key)
            if other is not None:
                return other
        else:
            raise OSError(errno.EEXIST, "the place of the entry is taken", str(folder))
        return Entry(key, folder, tuple(files))
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # gone already, if all went well


def _write_file(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o600)  # whatever the process lets others do to new files


def _verified(folder: Path, key: str) -> Entry | None:
    """The entry in ``folder``; None if it is not there, or damaged, in which case it is removed."""
    try:
        ours = trust.folder_is_ours(folder)
    except OSError:  # nothing is there, or it is out of reach
        return None
    try:
        wrong = "" if ours else "it is not ours alone to write"
        manifest = {} if wrong else json.loads(trust.read(folder / MANIFEST))
        sums: dict[str, str] = {} if wrong else manifest["files"]
        if not wrong and manifest["key"] != key:
            wrong = "it is another's"
        for name, told in sums.items():
            if Path(name).name != name or hashlib.sha256(trust.read(folder / name)).hexdigest() != told:
                wrong = f"{name} is not what was written"
    except OSError as error:
        if error.errno in _BUSY or not os.path.lexists(folder):  # somebody is just removing it
            return None
        wrong = error.strerror or str(error)
    except (ValueError, KeyError, TypeError, AttributeError):
        wrong = "its manifest cannot be read"
    if wrong:
        _log.warning("an entry of the compile cache is made anew, for %s: %s", wrong, folder)
        _remove(folder)
        return None
    with contextlib.suppress(OSError):  # a cache that one may only read has no use for the date
        os.utime(folder / MANIFEST)  # when it was last used
    return Entry(key, folder, tuple(sums))


def _entries(root: Path) -> list[tuple[float, int, Path]]:
    """(time of last use, bytes, folder) of each entry under ``root``, whole or not; those that vanish are
    left out. One that was last used in the future, by a clock that was wrong, was never used: it goes
    first."""
    found, soon = [], time.time() + 60.0
    for folder in root.glob("[0-9a-f][0-9a-f]/*"):
        if not re.fullmatch("[0-9a-f]{64}", folder.name):
            continue
        try:
            state = folder.lstat()
            files = list(folder.iterdir()) if stat.S_ISDIR(state.st_mode) else []
            states = {file.name: file.lstat() for file in files}
        except OSError:
            continue
        used = states.get(MANIFEST, state).st_mtime
        size = sum(each.st_size for each in states.values())
        found.append((used if used < soon else 0.0, size, folder))
    return found


def _remove(folder: Path) -> None:
    """Remove an entry, or what lies in its place: renamed away first, so that no reader sees half of it."""
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            os.unlink(folder)
            return
        os.chmod(folder, 0o700)  # else it can neither be moved nor emptied
    except OSError:
        pass
    aside = folder
    with contextlib.suppress(OSError):
        place = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=folder.parents[1]))
        try:
            os.rename(folder, place)
            aside = place
        except OSError:
            os.rmdir(place)
    shutil.rmtree(aside, ignore_errors=True)


def _sweep(root: Path, older_than: float) -> None:
    """Remove what processes that died left half written; ``older_than`` in seconds."""
    for partial in root.glob(_PARTIAL + "*"):
        try:
            # also of a clock that was ahead
            stale = abs(time.time() - partial.stat().st_mtime) >= older_than
        except OSError:
            continue
        if stale:
            shutil.rmtree(partial, ignore_errors=True)
