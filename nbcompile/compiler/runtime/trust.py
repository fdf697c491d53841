"""What may be loaded from a disk that others write on too: what this user made, and nobody else can change.

The cache holds code that will be run, so a folder or file of another user's, one that others may write to,
and whatever is not an ordinary file (a link, a pipe that never ends) is not read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NotOursError(OSError):
    """A folder or file is not to be trusted; ``strerror`` says why."""


def why_not(root: Path) -> str:
    """Why nothing is loaded from below ``root``, as the rest of a sentence; empty if all is well, and where
    it is not there yet."""
    try:
        return _why_not(os.stat(root)) or _above(root)
    except OSError:  # not there, or not to be looked at: then nothing can be read either
        return ""


def folder_is_ours(folder: Path) -> bool:
    """Whether it is a folder, no link to one, and ours alone to write. OSError if it is not there."""
    found = os.lstat(folder)
    return stat.S_ISDIR(found.st_mode) and not _why_not(found)


def read(file: Path) -> bytes:
    """The bytes of an ordinary file of ours. NotOursError for all else, other OSErrors as of reading."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    handle = os.open(file, flags | getattr(os, "O_BINARY", 0))
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise NotOursError(0, "it is no ordinary file", str(file))
        if reason := _why_not(found):
            raise NotOursError(0, reason, str(file))
        with os.fdopen(handle, "rb", closefd=False) as stream:
            return stream.read()
    finally:
        os.close(handle)


def _why_not(found: os.stat_result) -> str:
    if not hasattr(os, "geteuid"):
        return ""
    if found.st_uid != os.geteuid():
        return "it belongs to another user"
    return (
        "others may write to it: `chmod go-w` makes it yours alone" if found.st_mode & _OTHERS_WRITE else ""
    )


def _above(root: Path) -> str:
    """Where anybody may rename what is in a folder, nobody knows whose that is a moment later; the sticky bit
    of /tmp forbids it."""
    if not hasattr(os, "geteuid"):
        return ""
    for folder in root.resolve().parents:
        mode = os.stat(folder).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"anybody may rename what is in {folder}"
    return ""
