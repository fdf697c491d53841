"""Entries of the cache that are not what was written: the program is compiled anew, and the log says so."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from kinds import kind
from lab import DOORS, HEARD, NOBODY, Lab, LostError, Report, entries, files, fresh, use, whole

from nbcompile.compiler.runtime.cache import MANIFEST, DiskCache

EACH = 10  # entries that one session finds damaged, one after the other


def _tried(
    lab: Lab, damage: Callable[[Path], object], *, entry: bool = False, uid: int | None = None
) -> None:
    """Damage one file of a filled cache after the other (or, with ``entry``, one entry), each in its turn. It
    is read by one who needs it, refused, said, and made anew; whoever comes next finds it whole."""
    root = lab.fill()
    inside = {each.name: {file.name for file in each.iterdir()} for each in entries(root)}

    def work() -> Report:
        for turn in range(EACH):
            found = entries(root) if entry else files(root)
            place = found[(lab.number * EACH + turn) % len(found)]
            damaged = place if entry else place.parent
            door = _door(lab, inside[damaged.name])
            before = _state(damaged) if uid is None else None
            damage(place)
            if uid is None and _state(damaged) == before:  # nobody can read what was closed
                raise LostError(f"{place} was not damaged")
            if not any(damaged.name in line and "made anew" in line for line in _said(lab, door)):
                raise LostError(f"{place} was used, and nothing was said: {HEARD.lines}")
            if lines := _said(lab, door):
                raise LostError(f"{place} is not mended: {lines}")
        return {}

    lab.session(work, uid=uid).must()
    again = lab.session(uid=uid).must()
    if not again.compiled or any("made anew" in line for line in again.said):
        raise LostError(f"it is not mended: {again.said}")


def _said(lab: Lab, door: tuple[str, ...]) -> list[str]:
    """What a session says that has compiled nothing so far."""
    HEARD.lines.clear()
    fresh(lab, {})
    report = use(0, door)
    if report.get("wrong") or not report["compiled"]:
        raise LostError(f"wrong or eager: {report}")
    return [*HEARD.lines, *report["said"]]


def _door(lab: Lab, names: set[str]) -> tuple[str, ...]:
    """Who reads an entry: what torch.compile finds whole needs no graph's code and record by itself."""
    if "graph.pickle" in names:
        return ("torch",)
    if "record.json" not in names:
        return (DOORS[lab.number % 2],)
    for each in entries(lab.root):
        if (each / "graph.pickle").is_file():
            shutil.rmtree(each)
    return DOORS


def _state(entry: Path) -> object:
    if not entry.is_dir() or entry.is_symlink():
        return entry.lstat().st_mode
    found: list[object] = [entry.stat().st_mode]
    for each in sorted(entry.iterdir()):
        state = each.lstat()
        plain = each.is_file() and not each.is_symlink()
        found.append(
            (each.name, state.st_mode, hashlib.sha256(each.read_bytes()).hexdigest() if plain else "")
        )
    return found


def _written(file: Path, change: Callable[[bytearray], bytes | bytearray]) -> None:
    file.write_bytes(change(bytearray(file.read_bytes())))


@kind("damage", "a file is cut at any byte", 40, EACH)
def cut(lab: Lab) -> None:
    """made anew, and said"""
    _tried(lab, lambda file: os.truncate(file, lab.random.randrange(file.stat().st_size)))


@kind("damage", "a file is empty", 30, EACH)
def emptied(lab: Lab) -> None:
    """made anew, and said"""
    _tried(lab, lambda file: os.truncate(file, 0))


@kind("damage", "one bit is flipped", 100, EACH)
def flipped(lab: Lab) -> None:
    """made anew, and said"""

    def flip(data: bytearray) -> bytearray:
        data[lab.random.randrange(len(data))] ^= 1 << lab.random.randrange(8)
        return data

    _tried(lab, lambda file: _written(file, flip))


@kind("damage", "a block of zeros, as a disk leaves that lost power", 40, EACH)
def zeros(lab: Lab) -> None:
    """made anew, and said"""

    def blank(data: bytearray) -> bytearray:
        start = lab.random.randrange(len(data))
        stop = min(len(data), start + 4096)
        data[start:stop] = bytes(stop - start)
        return data if any(data[start:]) else data[:start]

    _tried(lab, lambda file: _written(file, lambda data: blank(data) or b"\0"))


@kind("damage", "bytes are added", 30, EACH)
def grown(lab: Lab) -> None:
    """made anew, and said"""
    _tried(lab, lambda file: _written(file, lambda data: data + b"\0" + lab.random.randbytes(lab.number)))


@kind("damage", "a file is another entry's", 40, EACH)
def swapped(lab: Lab) -> None:
    """made anew, and said"""

    def swap(file: Path) -> None:
        others = [each for each in files(lab.root) if each.read_bytes() != file.read_bytes()]
        shutil.copy2(lab.random.choice(others), file)

    _tried(lab, swap)


@kind("damage", "a file is missing", 30, EACH)
def missing(lab: Lab) -> None:
    """made anew, and said"""
    _tried(lab, Path.unlink)


@kind("damage", "a folder in a file's place", 30, EACH)
def folder(lab: Lab) -> None:
    """made anew, and said"""
    _tried(lab, lambda file: (file.unlink(), file.mkdir(), (file / "x").write_text("x"), None)[-1])


@kind("damage", "a link in a file's place, to the same bytes", 30, EACH)
def link(lab: Lab) -> None:
    """made anew: what a link leads to may change"""

    def replace(file: Path) -> None:
        other = lab.home / f"elsewhere-{lab.random.random()}"
        file.rename(other)
        file.symlink_to(other)

    _tried(lab, replace)


@kind("damage", "a pipe in a file's place, which nobody writes to", 30, EACH)
def pipe(lab: Lab) -> None:
    """made anew: it is not waited for"""
    _tried(lab, lambda file: (file.unlink(), os.mkfifo(file), None)[-1])


@kind("damage", "a file that may not be read", 30, EACH)
def unreadable(lab: Lab) -> None:
    """made anew, and said"""
    _tried(lab, lambda file: file.chmod(0), uid=NOBODY)


@kind("damage", "a file that others may write to", 30, EACH)
def open_file(lab: Lab) -> None:
    """made anew, and said"""
    _tried(lab, lambda file: file.chmod(0o666))


def _manifest(lab: Lab, change: Callable[[dict[str, object]], object]) -> None:
    def damage(entry: Path) -> None:
        told = json.loads((entry / MANIFEST).read_text())
        (entry / MANIFEST).write_text(json.dumps(change(told)))

    _tried(lab, damage, entry=True)


@kind("damage", "the manifest is JSON of another form", 30, EACH)
def other_json(lab: Lab) -> None:
    """made anew, and said"""
    forms: list[Callable[[dict[str, object]], object]] = [
        lambda told: [told], lambda told: None, lambda told: 7, lambda told: "manifest", lambda told: {},
        lambda told: {**told, "files": [1, 2]}, lambda told: {**told, "files": {"kernel.so": 3}},
        lambda told: {"files": told["files"]},
    ]  # fmt: skip
    _manifest(lab, forms[lab.random.randrange(len(forms))])


@kind("damage", "the manifest is another entry's", 20, EACH)
def other_key(lab: Lab) -> None:
    """made anew, and said"""
    _manifest(lab, lambda told: {**told, "key": "0" * 64})


@kind("damage", "the manifest leads out of the entry", 20, EACH)
def leading_out(lab: Lab) -> None:
    """made anew, and said"""
    (lab.home / "outside").write_bytes(b"x")
    name = "../../../outside" if lab.number % 2 else str(lab.home / "outside")
    _manifest(lab, lambda told: {**told, "files": {name: hashlib.sha256(b"x").hexdigest()}})


def _in_place(lab: Lab, change: Callable[[Path], object], *, uid: int | None = None) -> None:
    _tried(lab, change, entry=True, uid=uid)


@kind("damage", "a file in an entry's place", 20, EACH)
def file_for_entry(lab: Lab) -> None:
    """made anew, and said"""
    _in_place(lab, lambda entry: (shutil.rmtree(entry), entry.write_bytes(b"x"), None)[-1])


@kind("damage", "a link in an entry's place, to the same files", 20, EACH)
def link_for_entry(lab: Lab) -> None:
    """made anew, and said"""

    def replace(entry: Path) -> None:
        other = lab.home / f"away-{lab.random.random()}"
        entry.rename(other)
        entry.symlink_to(other)

    _in_place(lab, replace)


@kind("damage", "a dangling link in an entry's place", 20, EACH)
def dangling(lab: Lab) -> None:
    """made anew, and said"""
    _in_place(lab, lambda entry: (shutil.rmtree(entry), entry.symlink_to("/nowhere"))[-1])


@kind("damage", "an empty folder in an entry's place", 20, EACH)
def hollow(lab: Lab) -> None:
    """made anew, and said"""
    _in_place(lab, lambda entry: (shutil.rmtree(entry), entry.mkdir(mode=0o700))[-1])


@kind("damage", "an entry that may not be entered", 20, EACH)
def closed(lab: Lab) -> None:
    """made anew, and said"""
    _in_place(lab, lambda entry: entry.chmod(0), uid=NOBODY)


@kind("damage", "an entry that others may write to", 20, EACH)
def opened(lab: Lab) -> None:
    """made anew, and said"""
    _in_place(lab, lambda entry: entry.chmod(0o777))


@kind("damage", "two entries in each other's place", 20)
def exchanged(lab: Lab) -> None:
    """made anew, and said"""
    found = entries(lab.fill())
    one, other = lab.random.sample(found, 2)
    one.rename(lab.home / "one")
    other.rename(one)
    (lab.home / "one").rename(other)
    assert lab.session().must().compiled
    whole_again(lab)


@kind("damage", "every file of the cache at once", 20)
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


@kind("damage", "files with right sums and contents that nothing can be made of", 40)
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
    """Once two sessions have made what they need, a third finds it, and nothing that is not whole."""
    lab.session().must()
    again = lab.session().must()
    if not again.compiled or any("made anew" in line for line in again.said):
        raise LostError(f"it is not mended: {again.said}")
    for entry in entries(lab.root):
        DiskCache(lab.root).get(entry.name)  # what nobody needed is still in the wrong place: it goes
    whole(lab.root)
