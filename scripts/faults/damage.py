"""Entries of the cache that are not what was written: the program is compiled anew, and the user's log says so."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from kinds import kind
from lab import NOBODY, Lab, LostError, entries, files, whole

from nbcompile.compiler.runtime.cache import MANIFEST


def _tried(lab: Lab, damage: Callable[[Path], None], *, uid: int | None = None) -> None:
    """Damage one file of a filled cache, the next one in each trial, and use it twice."""
    root = lab.fill()
    file = files(root)[lab.number % len(files(root))]
    before = _state(file.parent)
    damage(file)
    if _state(file.parent) == before:
        raise LostError(f"{file} was not damaged")
    _used(lab, file.parent, uid)


def _used(lab: Lab, entry: Path, uid: int | None = None) -> None:
    first = lab.session(uid=uid).must()
    read = any(entry.name in line and "made anew" in line for line in first.said)
    _settled(lab, entry, read)
    again = lab.session(uid=uid).must()
    if not (first.compiled and again.compiled) or any("made anew" in line for line in again.said):
        raise LostError(f"it is not mended: {again.said}")


def _settled(lab: Lab, entry: Path, read: bool) -> None:
    """What was damaged was read, refused, said, and is whole again; or nobody has read it: it is still as it
    was, for what is found whole needs no part of it."""
    for each in entries(lab.root):
        if each != entry or read:
            continue
        if not any(name in str(sorted(p.name for p in lab.filled.joinpath(*each.parts[-2:]).iterdir()))
                   for name in ("record.json", "graph.pickle")):  # fmt: skip
            raise LostError(f"{entry} was used and nothing was said")


def _state(entry: Path) -> object:
    if not entry.is_dir() or entry.is_symlink():
        return entry.lstat().st_mode
    found = []
    for each in sorted(entry.iterdir()):
        state = each.lstat()
        plain = each.is_file() and not each.is_symlink()
        found.append(
            (each.name, state.st_mode, hashlib.sha256(each.read_bytes()).hexdigest() if plain else "")
        )
    return found


def _written(file: Path, change: Callable[[bytearray], bytes | bytearray]) -> None:
    file.write_bytes(change(bytearray(file.read_bytes())))


@kind("damage", "a file is cut at any byte", 60)
def cut(lab: Lab) -> None:
    """made anew, and said"""
    _tried(lab, lambda file: os.truncate(file, lab.random.randrange(file.stat().st_size)))


@kind("damage", "a file is empty", 40)
def emptied(lab: Lab) -> None:
    """made anew, and said"""
    _tried(lab, lambda file: os.truncate(file, 0))


@kind("damage", "one bit is flipped", 120)
def flipped(lab: Lab) -> None:
    """made anew, and said"""

    def flip(data: bytearray) -> bytearray:
        data[lab.random.randrange(len(data))] ^= 1 << lab.random.randrange(8)
        return data

    _tried(lab, lambda file: _written(file, flip))


@kind("damage", "a block of zeros, as a disk leaves that lost power", 60)
def zeros(lab: Lab) -> None:
    """made anew, and said"""

    def blank(data: bytearray) -> bytearray:
        start = lab.random.randrange(len(data))
        stop = min(len(data), start + 4096)
        data[start:stop] = bytes(stop - start)
        return data if any(data[start:]) else data[:start]

    _tried(lab, lambda file: _written(file, lambda data: blank(data) or b"\0"))


@kind("damage", "bytes are added", 40)
def grown(lab: Lab) -> None:
    """made anew, and said"""
    _tried(lab, lambda file: _written(file, lambda data: data + lab.random.randbytes(1 + lab.number)))


@kind("damage", "a file is another entry's", 60)
def swapped(lab: Lab) -> None:
    """made anew, and said"""

    def swap(file: Path) -> None:
        others = [each for each in files(lab.root) if each.read_bytes() != file.read_bytes()]
        shutil.copy2(lab.random.choice(others), file)

    _tried(lab, swap)


@kind("damage", "a file is missing", 40)
def missing(lab: Lab) -> None:
    """made anew, and said"""
    _tried(lab, Path.unlink)


@kind("damage", "a folder in a file's place", 40)
def folder(lab: Lab) -> None:
    """made anew, and said"""
    _tried(lab, lambda file: (file.unlink(), file.mkdir(), (file / "x").write_text("x"), None)[-1])


@kind("damage", "a link in a file's place, to the same bytes", 40)
def link(lab: Lab) -> None:
    """made anew: what a link leads to may change"""

    def replace(file: Path) -> None:
        file.rename(lab.home / "elsewhere")
        file.symlink_to(lab.home / "elsewhere")

    _tried(lab, replace)


@kind("damage", "a pipe in a file's place, which nobody writes to", 40)
def pipe(lab: Lab) -> None:
    """made anew: it is not waited for"""
    _tried(lab, lambda file: (file.unlink(), os.mkfifo(file), None)[-1])


@kind("damage", "a file that may not be read", 40)
def unreadable(lab: Lab) -> None:
    """made anew, and said"""
    _tried(lab, lambda file: file.chmod(0), uid=NOBODY)


@kind("damage", "a file that others may write to", 40)
def open_file(lab: Lab) -> None:
    """made anew, and said"""
    _tried(lab, lambda file: file.chmod(0o666))


def _manifest(lab: Lab, change: Callable[[dict[str, object]], object]) -> None:
    root = lab.fill()
    entry = entries(root)[lab.number % len(entries(root))]
    told = json.loads((entry / MANIFEST).read_text())
    (entry / MANIFEST).write_text(json.dumps(change(told)))
    _used(lab, entry)


@kind("damage", "the manifest is JSON of another form", 40)
def other_json(lab: Lab) -> None:
    """made anew, and said"""
    forms: list[Callable[[dict[str, object]], object]] = [
        lambda told: [told], lambda told: None, lambda told: 7, lambda told: "manifest", lambda told: {},
        lambda told: {**told, "files": [1, 2]}, lambda told: {**told, "files": {"kernel.so": 3}},
        lambda told: {"files": told["files"]},
    ]  # fmt: skip
    _manifest(lab, forms[lab.random.randrange(len(forms))])


@kind("damage", "the manifest is another entry's", 30)
def other_key(lab: Lab) -> None:
    """made anew, and said"""
    _manifest(lab, lambda told: {**told, "key": "0" * 64})


@kind("damage", "the manifest leads out of the entry", 30)
def leading_out(lab: Lab) -> None:
    """made anew, and said"""
    (lab.home / "outside").write_bytes(b"x")
    name = "../../../outside" if lab.number % 2 else str(lab.home / "outside")
    _manifest(lab, lambda told: {**told, "files": {name: hashlib.sha256(b"x").hexdigest()}})


def _in_place(lab: Lab, change: Callable[[Path], None], *, uid: int | None = None) -> None:
    """The same to a whole entry."""
    root = lab.fill()
    entry = entries(root)[lab.number % len(entries(root))]
    change(entry)
    _used(lab, entry, uid)


@kind("damage", "a file in an entry's place", 30)
def file_for_entry(lab: Lab) -> None:
    """made anew, and said"""
    _in_place(lab, lambda entry: (shutil.rmtree(entry), entry.write_bytes(b"x"), None)[-1])


@kind("damage", "a link in an entry's place, to the same files", 30)
def link_for_entry(lab: Lab) -> None:
    """made anew, and said"""
    _in_place(lab, lambda entry: (entry.rename(lab.home / "away"), entry.symlink_to(lab.home / "away"))[-1])


@kind("damage", "a dangling link in an entry's place", 20)
def dangling(lab: Lab) -> None:
    """made anew, and said"""
    _in_place(lab, lambda entry: (shutil.rmtree(entry), entry.symlink_to("/nowhere"))[-1])


@kind("damage", "an empty folder in an entry's place", 20)
def hollow(lab: Lab) -> None:
    """made anew, and said"""
    _in_place(lab, lambda entry: (shutil.rmtree(entry), entry.mkdir(mode=0o700))[-1])


@kind("damage", "an entry that may not be entered", 20)
def closed(lab: Lab) -> None:
    """made anew, and said"""
    _in_place(lab, lambda entry: entry.chmod(0), uid=NOBODY)


@kind("damage", "an entry that others may write to", 20)
def opened(lab: Lab) -> None:
    """made anew, and said"""
    _in_place(lab, lambda entry: entry.chmod(0o777))


@kind("damage", "two entries in each other's place", 30)
def exchanged(lab: Lab) -> None:
    """made anew, and said"""

    def exchange(entry: Path) -> None:
        other = lab.random.choice([each for each in entries(lab.root) if each != entry])
        entry.rename(lab.home / "one")
        other.rename(entry)
        (lab.home / "one").rename(other)

    _in_place(lab, exchange)


@kind("damage", "every file of the cache at once", 30)
def every_file(lab: Lab) -> None:
    """all made anew, and said"""
    for file in files(lab.fill()):
        os.truncate(file, lab.random.randrange(file.stat().st_size))
    first = lab.session().must("made anew")
    assert first.compiled
    whole_again(lab)


@kind("damage", "a file in the place of a folder of entries", 20)
def first_digits(lab: Lab) -> None:
    """the file is left alone, as it may be the user's; what has no place is kept for the process, and said"""
    root = lab.fill()
    shelf = entries(root)[lab.number % len(entries(root))].parent
    shutil.rmtree(shelf)
    shelf.write_text("mine")
    lab.session().must()
    lab.session().must()
    assert shelf.read_text() == "mine"


@kind("damage", "files with right sums and contents that nothing can be made of", 60)
def nonsense(lab: Lab) -> None:
    """made anew"""
    root = lab.fill()
    file = [each for each in files(root) if each.name not in (MANIFEST, "kernel.c")][lab.number % 5]
    data = lab.random.choice(
        [b"", b"nonsense", b"{}", b"[]", b"null", b"\x80\x04N.", b"\x7fELF" + bytes(900)]
    )
    file.write_bytes(data)
    told = json.loads((file.parent / MANIFEST).read_text())
    told["files"][file.name] = hashlib.sha256(data).hexdigest()
    (file.parent / MANIFEST).write_text(json.dumps(told))
    assert lab.session().must().compiled and lab.session().must().compiled


def whole_again(lab: Lab) -> None:
    """A session finds all that it needs, and nothing that is not whole."""
    again = lab.session().must()
    if not again.compiled or any("made anew" in line for line in again.said):
        raise LostError(f"it is not mended: {again.said}")
    whole(lab.root)
