"""Our cache in torch's artifacts: what ``torch.compiler.save_cache_artifacts()`` gives holds every entry that
this process has used, and a process that loads it compiles none of these again.

Torch keeps a list of artifacts until they are saved, with the bytes of each. Ours is a key: its bytes are
read from the disk when they are asked for, so a long session holds no kernels in memory. What is loaded is
checked against the sums that it was saved with, and goes into the cache as any entry does.

All that is private to torch is in :func:`_torchs`. Torch refuses artifacts of a type that it does not know,
all of them: the type has to be registered before any are loaded, which importing nbcompile does where torch
is imported already. (An entry point that torch calls at its own import could do it too; but nothing of ours
is to stand between a user and ``import torch``.)
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from nbcompile.compiler.runtime import cache as disk
from nbcompile.compiler.runtime.cache import DiskCache

TYPE = "nbcompile"
"""What torch calls our artifacts; ``CacheInfo.artifacts["nbcompile"]`` are their keys."""

_log = logging.getLogger("nbcompile")


def pack(files: Mapping[str, bytes]) -> bytes:
    """The files of an entry as one text: a line of JSON with the name, size and SHA-256 of each, then their
    bytes."""
    told = [(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()]
    return json.dumps(told).encode() + b"\n" + b"".join(files.values())


def unpack(content: bytes) -> dict[str, bytes]:
    """The files that :func:`pack` was given. ValueError for anything else, and for what is not whole."""
    head, line, rest = content.partition(b"\n")
    files, start = {}, 0
    try:
        for name, size, told in json.loads(head):
            data = rest[start : start + size]
            if hashlib.sha256(data).hexdigest() != told:
                raise ValueError(f"{name} does not have the checksum it was saved with")
            files[str(name)] = data
            start += size
    except TypeError:
        raise ValueError("it is no entry of the cache") from None
    if not line or not files or start != len(rest):
        raise ValueError("it is no entry of the cache")
    return files


def load(key: str, content: bytes) -> bool:
    """Put a saved entry into the cache of this process; False, and a warning, if it is damaged."""
    try:
        if not re.fullmatch("[0-9a-f]{64}", key):
            raise ValueError("its key is none of ours")
        cache = DiskCache.shared()
        if cache.put(key, unpack(content)) is None:
            raise ValueError("no folder can be written")
    except ValueError as error:
        _log.warning("a cache artifact (%.16s) was not loaded: %s", key, error)
        return False
    return True


@functools.cache
def register() -> str:
    """Make torch know our type of artifact, and hand it the keys of what the cache gives and takes from now
    on. Why not, in a sentence, where this torch has no place for it; empty if it has. Imports torch."""
    try:
        record = _torchs()
    except Exception as error:  # whatever another torch has there, compiling does without
        _log.debug("cache artifacts", exc_info=True)
        return (
            "torch.compiler.save_cache_artifacts() leaves out what nbcompile compiled: this torch has no "
            f"place for it ({type(error).__name__}: {error})"
        )

    def used(cache: DiskCache, key: str) -> None:
        if cache is DiskCache.shared():
            record(key)

    disk.WATCHERS.append(used)
    return ""


def _read(key: str) -> bytes:
    """What is saved of an entry: nothing, with a warning, if it has been removed since it was used."""
    entry = DiskCache.shared().peek(key)
    files = {} if entry is None else {name: entry.read(name) for name in entry.names}
    whole = {name: data for name, data in files.items() if data is not None}
    if not whole or len(whole) != len(files):
        _log.warning("a cache artifact (%.16s) was not saved: it has been removed from the cache", key)
        return b""
    return pack(whole)


def _torchs() -> Callable[[str], None]:
    """Register our type; what records that an entry was used. All that is private to torch is here."""
    from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

    class _Kept(CacheArtifact):
        """An entry of our cache: its key, and the bytes that were loaded, if it was; else they are read."""

        def __init__(self, key: str, content: bytes) -> None:
            object.__setattr__(self, "key", key)  # the base class is frozen
            object.__setattr__(self, "loaded", content)

        loaded: bytes
        content: Any = property(lambda self: self.loaded or _read(self.key))

        def __eq__(self, other: object) -> bool:
            return isinstance(other, _Kept) and other.key == self.key

        def __hash__(self) -> int:
            return hash((TYPE, self.key))

        def populate_cache(self) -> None:
            if self.loaded:  # else its removal was told when it was saved
                load(self.key, self.loaded)

        @staticmethod
        def type() -> str:
            return TYPE

    if TYPE not in CacheArtifactFactory._artifact_types:  # this module may be loaded once more
        CacheArtifactFactory.register(_Kept)
    return lambda key: CacheArtifactManager.record_artifact(TYPE, key, b"")
