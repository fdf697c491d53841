"""Disks that are full, read-only, gone or away: the program runs, and says that nothing is kept.

Disks are real ones, in memory, mounted for one session alone: only root can.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import lab as lab_module
from kinds import kind
from lab import NOBODY, CannotTry, Lab, Report, entries, files, use, whole

import nbcompile

_RDONLY, _NOEXEC, _REMOUNT, _BIND, _PRIVATE = 1, 8, 32, 4096, 1 << 18 | 16384
_NEWNS = 0x20000
CANNOT = "cannot be used"


def mount(where: Path, options: str = "", flags: int = 0, of: Path | None = None) -> None:
    """In a session: a disk in memory, or ``of`` again, which no other process sees."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEWNS) or libc.mount(b"none", b"/", None, _PRIVATE, None):
        raise OSError(ctypes.get_errno(), "unshare")
    where.mkdir(exist_ok=True)
    if of is None:
        done = libc.mount(b"none", str(where).encode(), b"tmpfs", flags, f"mode=700{options}".encode())
    else:
        done = libc.mount(str(of).encode(), str(where).encode(), None, _BIND, None)
        done = done or libc.mount(None, str(where).encode(), None, _BIND | _REMOUNT | flags, None)
    if done:
        raise OSError(ctypes.get_errno(), "mount")


def _root() -> None:
    if os.geteuid() != 0 or not hasattr(os, "fork") or not os.path.exists("/proc/self/ns/mnt"):
        raise CannotTry("only root can mount")


def used_by(number: int) -> Callable[[], Report]:
    """A session that uses program ``number``, which no cache has."""
    return lambda: use(number)


def _new(lab: Lab) -> Callable[[], Report]:
    return used_by(1 + lab.number % 50)


@kind("disk", "the cache's disk is full", 20)
def full(lab: Lab) -> None:
    """kept for the process, and said"""
    _root()

    def before() -> None:
        mount(lab.root, ",size=8k")
        (lab.root / "all").write_bytes(bytes(4096))
        try:
            (lab.root / "more").write_bytes(bytes(1 << 16))
            raise AssertionError("it is not full")
        except OSError:
            pass

    assert lab.session(_new(lab), before=before).must(CANNOT).compiled


@kind("disk", "the cache's disk fills at any moment", 30)
def filling(lab: Lab) -> None:
    """what has no room any more is kept for the process, and said"""
    _root()
    size = 4096 * (1 + lab.random.randrange(24))
    assert lab.session(_new(lab), before=lambda: mount(lab.root, f",size={size}")).must().compiled


@kind("disk", "the cache's disk has no room for more files", 20)
def no_inodes(lab: Lab) -> None:
    """kept for the process, and said"""
    _root()
    count = 2 + lab.random.randrange(10)
    found = lab.session(_new(lab), before=lambda: mount(lab.root, f",nr_inodes={count}"))
    assert found.must(CANNOT).compiled


@kind("disk", "the disk of temporary files is full", 20)
def no_temporary(lab: Lab) -> None:
    """compiled in memory, or in eager, and said; the same session compiles once there is room"""
    _root()
    place = lab.home / "tmp"

    def before() -> None:
        mount(place, ",size=4k")
        (place / "all").write_bytes(bytes(4096))

    def work() -> Report:
        report = use(1 + lab.number % 50)
        (place / "all").unlink()
        mount_again = use(60 + lab.number % 50)
        return {**report, "seen": {"later": mount_again}}

    found = lab.session(work, before=before)
    found.must()
    assert found.compiled or any("eager" in each for each in found.said), found
    if found.seen["later"].get("wrong"):
        raise lab_module.LostError(found.seen["later"]["wrong"])


@kind("disk", "both are full", 15)
def all_full(lab: Lab) -> None:
    """in eager, or kept in memory, and said"""
    _root()

    def before() -> None:
        mount(lab.root, ",size=4k")
        mount(lab.home / "tmp", ",size=4k")
        for place in (lab.root, lab.home / "tmp"):
            (place / "all").write_bytes(bytes(4096))

    lab.session(_new(lab), before=before).must(f"{CANNOT}|eager|No space")


@kind("disk", "nothing at all can be written", 15)
def nothing_writable(lab: Lab) -> None:
    """in eager, and said"""
    _root()

    def before() -> None:
        for place in {Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path.cwd(), lab.home}:
            mount(place, flags=_RDONLY, of=place)

    lab.session(_new(lab), before=before).must("eager|temporary")


@kind("disk", "a read-only cache that has the program", 15)
def read_only_filled(lab: Lab) -> None:
    """found in it"""
    _root()
    lab.fill()

    def work() -> Report:
        try:
            (lab.root / "x").touch()
        except OSError:
            return use(0)
        raise AssertionError("it can be written")

    found = lab.session(work, before=lambda: mount(lab.root, flags=_RDONLY, of=lab.root)).must()
    assert found.compiled and not found.said, found.said


@kind("disk", "a read-only cache that lacks the program", 15)
def read_only(lab: Lab) -> None:
    """kept for the process, and said"""
    _root()
    lab.fill()
    found = lab.session(_new(lab), before=lambda: mount(lab.root, flags=_RDONLY, of=lab.root))
    assert found.must(CANNOT).compiled


@kind("disk", "a read-only cache with a damaged entry", 15)
def read_only_damaged(lab: Lab) -> None:
    """not loaded, made for the process, and said"""
    _root()
    file = files(lab.fill())[lab.number % len(files(lab.root))]
    os.truncate(file, file.stat().st_size // 2)
    assert lab.session(before=lambda: mount(lab.root, flags=_RDONLY, of=lab.root)).must().compiled


@kind("disk", "nothing on the cache's disk may be executed", 15)
def noexec(lab: Lab) -> None:
    """loaded from a copy elsewhere"""
    _root()
    assert lab.session(_new(lab), before=lambda: mount(lab.root, flags=_NOEXEC)).must().compiled


@kind("disk", "there is no home", 15)
def homeless(lab: Lab) -> None:
    """kept for the process, and said"""
    nowhere = {"HOME": "/nonexistent/home", "NBCOMPILE_CACHE_DIR": None, "XDG_CACHE_HOME": None}
    assert lab.session(_new(lab), uid=NOBODY, environment=nowhere).must(CANNOT).compiled


@kind("disk", "the home belongs to another and is read-only", 15)
def anothers_home(lab: Lab) -> None:
    """kept for the process, and said"""
    (lab.home / "tmp").mkdir()
    there = {"HOME": "/root", "NBCOMPILE_CACHE_DIR": None, "XDG_CACHE_HOME": None}
    assert lab.session(_new(lab), uid=NOBODY, environment=there).must(CANNOT).compiled


@kind("disk", "a file in the cache's place, or above it", 15)
def a_file(lab: Lab) -> None:
    """left alone; kept for the process, and said"""
    lab.root.write_text("mine")
    place = str(lab.root if lab.number % 2 else lab.root / "below")
    found = lab.session(_new(lab), environment={"NBCOMPILE_CACHE_DIR": place}).must(CANNOT)
    assert found.compiled and lab.root.read_text() == "mine"


@kind("disk", "the cache is removed again and again", 20)
def removed(lab: Lab) -> None:
    """made again"""
    lab.fill()
    over = threading.Event()

    def remove() -> None:
        while not over.wait(lab.random.random() * 0.03):
            shutil.rmtree(lab.root, ignore_errors=True)

    def work() -> Report:
        thread = threading.Thread(target=remove)
        thread.start()
        try:
            return use(1 + lab.number)
        finally:
            over.set()
            thread.join()

    assert lab.session(work).must().compiled
    lab.session(used_by(1 + lab.number)).must()
    whole(lab.root)


@kind("disk", "clear_cache() while it is used", 20)
def cleared(lab: Lab) -> None:
    """made again"""
    lab.fill()

    def clear() -> Report:
        end = time.monotonic() + 0.6
        while time.monotonic() < end:
            nbcompile.clear_cache()
        return {}

    other = lab.start(clear)
    assert lab.session(used_by(1 + lab.number)).must().compiled
    other.wait().must()
    lab.session(used_by(1 + lab.number)).must()
    whole(lab.root)


@kind("disk", "files may be of a few KB only (ulimit -f)", 15)
def small_files(lab: Lab) -> None:
    """in eager, or kept as far as it goes, and said"""
    size = 1024 * (1 + lab.random.randrange(15))  # what fits is kept, and nothing said

    def before() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    lab.session(_new(lab), before=before).must("eager|temporary|cannot be used|File too large")


@kind("disk", "no more files may be open (ulimit -n)", 15)
def no_handles(lab: Lab) -> None:
    """in eager, and said; compiled by the same session once some are closed"""
    lab.fill()
    spare = lab.random.randrange(4)

    def work() -> Report:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        held: list[int] = []
        try:
            while True:
                held.append(os.dup(1))
        except OSError:
            pass
        for _ in range(spare):
            os.close(held.pop())
        during = use(0)
        for each in held:
            os.close(each)
        lab_module.fresh(lab, {})
        after = use(0)
        wrong = during.get("wrong", "") or after.get("wrong", "")
        said = [] if after["compiled"] else ["later: " + str(after["said"])]
        return {"wrong": wrong, "said": [*during["said"], *said], "compiled": after["compiled"],
                "seen": {"kept": len(entries(lab.root))}}  # fmt: skip

    found = lab.session(work).must()
    assert found.compiled and found.seen["kept"] >= 5, found
