"""Writing a participant's verdicts into their file, if they or their instructor have named a folder.

The folder may be a shared drive, on which files cannot be locked, which is full, or which is gone for a
while: then that is said once, and the exercise goes on. What could not be written is written with the next
verdict.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import IO

from nbcompile.errors import OptionError
from nbcompile.workshop.progress.files import ProgressError, file_name, read, shown_name
from nbcompile.workshop.progress.model import MOST_EXERCISES, Progress

_fcntl: ModuleType | None
try:
    import fcntl as _fcntl
except ImportError:  # Windows
    _fcntl = None

FOLDER, NAME = "NBCOMPILE_CLASS_FOLDER", "NBCOMPILE_CLASS_NAME"
_LOCK_SECONDS = 5.0
"""That are waited for another kernel of the same class; then it is written all the same."""


@dataclass
class _Keeper:
    """Where this process's verdicts go. ``waiting``: those that are not in the file yet, the oldest first."""

    folder: Path
    participant: str
    waiting: list[tuple[str, bool, float]] = field(default_factory=list)
    told: set[str] = field(default_factory=set)

    @property
    def file(self) -> Path:
        return self.folder / file_name(self.participant)

    def note(self, exercise: str, passed: bool) -> str:
        """Keep a verdict; returns what the participant is to be told, which is mostly nothing."""
        self.waiting = [*self.waiting, (exercise, passed, time.time())][-MOST_EXERCISES:]
        try:
            with _locked(self.folder):
                self._write()
        except (OSError, ProgressError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else error.message
            return self._once(f"Your progress is not in {self.file}: {why}. The exercises go on without.")
        self.waiting = []
        return self._once(
            f"That you tried this, when, and whether it was right is now in {self.file}, for your "
            f"instructor; your answers are not. To stop: nbcompile.workshop.keep_progress(None)."
        )

    def _write(self) -> None:
        known = read(self.file) if os.path.lexists(self.file) else Progress(self.participant)
        for exercise, passed, when in self.waiting:
            if exercise in known.exercises or len(known.exercises) < MOST_EXERCISES:
                known = known.after(exercise, passed, when)
        _replace(self.file, json.dumps(known.to_dict(), indent=1))

    def _once(self, sentence: str) -> str:
        if sentence in self.told:
            return ""
        self.told.add(sentence)
        return sentence


_keeper: _Keeper | None = None
_stopped = False


def keep_progress(folder: str | os.PathLike[str] | None, name: str = "") -> None:
    """From now on, write which exercises this participant tried, how often, when, and whether they were
    right, into a file in ``folder``: a shared one, which an instructor reads with ``nbcompile class``. No
    answer is written. ``name`` is what the participant is called there (without one: the user's name).
    ``None`` stops it, also where the environment's ``NBCOMPILE_CLASS_FOLDER`` asks for it."""
    global _keeper, _stopped
    _stopped = folder is None
    _keeper = None
    if folder is not None:
        _keeper = _Keeper(Path(folder).expanduser().absolute(), _name(name))


def noted(exercise: str, passed: bool) -> str:
    """Keep a verdict if that was asked for; returns what is to be told beside it, once."""
    global _keeper
    wanted = os.environ.get(FOLDER, "")
    if _stopped or not (_keeper or wanted):
        return ""
    if _keeper is None:
        name = shown_name(os.environ.get(NAME, ""))  # one that nobody can see fails no exercise
        _keeper = _Keeper(Path(wanted).expanduser().absolute(), _name(name))
    return _keeper.note(exercise, passed)


def _name(given: str) -> str:
    """What a participant is called. OptionError if there is nothing to see in it."""
    if given:
        if not shown_name(given):
            raise OptionError("A participant's name has something to read in it.")
        return shown_name(given)
    if os.environ.get("JUPYTERHUB_USER"):
        return shown_name(os.environ["JUPYTERHUB_USER"]) or "participant"
    try:
        return shown_name(getpass.getuser()) or "participant"
    except (OSError, KeyError):  # a container's user without a name
        return f"user {os.getuid()}" if hasattr(os, "getuid") else "participant"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Alone in this folder, among those who ask: two kernels of one participant must not each add to what
    both have read. Without it where the disk has no locks, or somebody holds one for long."""
    if _fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                _fcntl.flock(handle, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    break
                time.sleep(0.01)
            except OSError:
                break
        yield
    finally:
        os.close(handle)


def _replace(file: Path, text: str) -> None:
    """Write a file whole or not at all: whoever reads meanwhile has the old one or the new one."""
    opened, partial = _beside(file)
    try:
        with opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())  # a full disk says so here
        os.replace(partial, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def _beside(file: Path) -> tuple[IO[str], str]:
    """A new file in the same folder, of a name that nobody can foresee, and readable as the user's files are:
    an instructor is mostly another user."""
    name = str(file.parent / f".{secrets.token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    return open(os.open(name, flags, 0o666), "w", encoding="utf-8"), name
