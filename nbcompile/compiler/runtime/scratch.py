"""One temporary folder a process, gone with it even if it was killed.

A process that ends removes its own. One that is killed cannot, so each new process removes those whose owner
is dead: it has let go of the lock on a file in it (process ids are used again, locks are not).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbcompile.compiler.runtime import trust

_fcntl: Any
try:
    import fcntl as _fcntl
except ImportError:  # not a POSIX system: what is left of a killed process stays
    _fcntl = None

PREFIX = "nbcompile-scratch-"
_LOCK = ".lock"
_UNLOCKED_SECONDS = 86400.0  # a folder without a lock, of a process that died as it made it
_own: dict[str, tuple[int, Path]] = {}  # by the folder that it is in: process id, folder


def own(base: str | None = None) -> Path:
    """This process's folder, in ``base`` or where temporary files are. OSError where it cannot be made."""
    place = base or tempfile.gettempdir()
    process, folder = _own.get(place, (0, Path()))
    if process != os.getpid() or not folder.is_dir():  # a forked child makes its own
        folder = _made(place)
        _own[place] = os.getpid(), folder
        atexit.register(_remove_own, os.getpid(), folder)
    return folder


@contextlib.contextmanager
def temporary() -> Iterator[Path]:
    """A folder for one piece of work, removed after it. Where there is no room for temporary files, it is in
    memory. OSError where there is none at all."""
    try:
        made = tempfile.mkdtemp(dir=own())
    except OSError:
        made = tempfile.mkdtemp(dir=own("/dev/shm"))
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def opened(path: Path) -> ctypes.CDLL:
    """A library, loaded from a copy that nobody else can reach: a program whose libraries are written to
    while they are loaded crashes, and of two that lay in one place only the first would ever be loaded.
    OSError if it cannot be."""
    data = trust.read(path)
    try:
        handle, name = tempfile.mkstemp(suffix=".so", dir=own())
    except OSError:  # there is no room for copies
        return ctypes.CDLL(str(path))
    try:
        with os.fdopen(handle, "wb") as copy:
            copy.write(data)
        return ctypes.CDLL(name)
    except OSError:
        return ctypes.CDLL(str(path))
    finally:
        os.unlink(name)  # the memory that it is mapped to stays


def _made(place: str) -> Path:
    sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    if _fcntl is not None:
        with contextlib.suppress(OSError):  # a disk without locks
            handle = os.open(folder / "lock", os.O_WRONLY | os.O_CREAT, 0o600)  # open until the process ends
            _fcntl.flock(handle, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
            os.rename(folder / "lock", folder / _LOCK)  # nobody sees it before it is held
    return folder


def sweep(place: str) -> None:
    """Remove folders in ``place`` that this user's dead processes have left."""
    try:
        with os.scandir(place) as found:
            left = [item for item in found if item.name.startswith(PREFIX)]
    except OSError:
        return
    for item in left:
        with contextlib.suppress(OSError):
            state = item.stat(follow_symlinks=False)
            ours = not hasattr(os, "geteuid") or state.st_uid == os.geteuid()
            if ours and item.is_dir(follow_symlinks=False) and _is_dead(Path(item.path), state.st_mtime):
                shutil.rmtree(item.path, ignore_errors=True)


def _is_dead(folder: Path, changed: float) -> bool:
    if _fcntl is None:
        return False
    try:
        handle = os.open(folder / _LOCK, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return abs(time.time() - changed) > _UNLOCKED_SECONDS
    try:
        _fcntl.flock(handle, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _remove_own(process: int, folder: Path) -> None:
    if os.getpid() == process:  # not in a forked child, whose parent still uses it
        shutil.rmtree(folder, ignore_errors=True)
