"""What this session did not write: another user's files, another version's, another processor's, a clock's.

The files of others are as good as ours by every sum, but give other numbers: if one is loaded, it shows.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from unittest import mock

from kinds import kind
from lab import NOBODY, CannotTry, Lab, LostError, Report, entries, use

from nbcompile.compiler.runtime import graph_cache
from nbcompile.compiler.runtime.c import toolchain
from nbcompile.compiler.runtime.cache import MANIFEST, DiskCache, key
from nbcompile.compiler.warm import facts


@cache
def _poison(library: Path) -> bytes:
    """A library with the symbols of another whose kernels write nothing."""
    text = library.with_name("kernel.c").read_text()
    start = text.index("\nvoid ")
    empty, depth, inside = [], 0, False
    for line in text[start:].splitlines():
        if line.startswith("void "):
            empty.append(f"{line[: line.index('{')]}{{}}")
        depth += line.count("{") - line.count("}")
        inside = depth > 0
    assert not inside and empty
    source, made = library.parent / "poison.c", library.parent / "poison.so"
    source.write_text("\n".join(empty))
    found = toolchain.find_toolchain()
    found.compile(source.read_text(), made)
    data = made.read_bytes()
    source.unlink()
    made.unlink()
    return data


def poisoned(lab: Lab) -> list[Path]:
    """A filled cache whose libraries are others, with right sums. Their folders."""
    found = []
    root = lab.fill()
    for entry in entries(root):
        library = lab.filled.joinpath(*entry.parts[-2:]) / "kernel.so"
        if library.exists():
            data = _poison(library)
            (entry / "kernel.so").write_bytes(data)
            told = json.loads((entry / MANIFEST).read_text())
            told["files"]["kernel.so"] = hashlib.sha256(data).hexdigest()
            (entry / MANIFEST).write_text(json.dumps(told))
            found.append(entry)
    if lab.number == 0 and lab.session().how != "wrong":
        raise LostError("the poison does not work: nothing was loaded from the cache, or nothing came of it")
    return found


def _given(*places: Path, to: int = NOBODY) -> None:
    if os.geteuid() != 0:
        raise CannotTry("only root can give files away")
    for top in places:
        for each in (top, *(top.rglob("*") if top.is_dir() else ())):
            os.lchown(each, to, to)


@kind("others", "another user's cache in this one's place", 16)
def anothers_cache(lab: Lab) -> None:
    """nothing is loaded from it; kept for the process, and said"""
    poisoned(lab)
    _given(lab.root)
    assert lab.session().must("belongs to another user").compiled


@kind("others", "a link to another user's cache", 14)
def linked_cache(lab: Lab) -> None:
    """nothing is loaded from it; kept for the process, and said"""
    poisoned(lab)
    lab.root.rename(lab.home / "theirs")
    _given(lab.home / "theirs")
    lab.root.symlink_to(lab.home / "theirs")
    assert lab.session().must("belongs to another user").compiled


@kind("others", "a cache that anybody may write to", 16)
def open_cache(lab: Lab) -> None:
    """nothing is loaded from it; kept for the process, and said"""
    poisoned(lab)
    lab.root.chmod(0o1777 if lab.number % 2 else 0o777)
    assert lab.session().must("others may write").compiled


@kind("others", "another user's entry in a cache of ours", 16)
def anothers_entry(lab: Lab) -> None:
    """not loaded, made anew, and said"""
    _given(*poisoned(lab))
    assert lab.session().must("made anew").compiled


@kind("others", "another user's file in an entry of ours", 16)
def anothers_file(lab: Lab) -> None:
    """not loaded, made anew, and said"""
    _given(*(entry / "kernel.so" for entry in poisoned(lab)))
    assert lab.session().must("made anew").compiled


@kind("others", "an entry of ours that others may change", 14)
def open_entry(lab: Lab) -> None:
    """not loaded, made anew, and said"""
    for entry in poisoned(lab):
        entry.chmod(0o770)
    assert lab.session().must("made anew").compiled


@kind("others", "a folder above the cache in which anybody may rename", 14)
def open_above(lab: Lab) -> None:
    """nothing is loaded from it; kept for the process, and said"""
    poisoned(lab)
    above = lab.home / "shared"
    above.mkdir()
    lab.root.rename(above / "cache")
    above.chmod(0o777)
    place = {"NBCOMPILE_CACHE_DIR": str(above / "cache")}
    assert lab.session(environment=place).must("anybody may rename").compiled


@kind("others", "the shared temporary folder: names that can be guessed", 14)
def guessed(lab: Lab) -> None:
    """every folder that is made has a name of its own, this user's alone"""
    place = lab.home / "tmp"
    place.mkdir()
    place.chmod(0o1777)
    seen: list[str] = []

    def work() -> Report:
        from nbcompile.compiler.runtime import scratch

        report = use(0)
        made = scratch.own()
        state = os.lstat(made)
        assert state.st_uid == os.geteuid() and not state.st_mode & 0o077, oct(state.st_mode)
        return {**report, "seen": {"name": made.name, "all": sorted(os.listdir(place))}}

    lab.root.write_text("no folder")
    for _ in range(2):
        found = lab.session(work).must()
        seen.append(found.seen["name"])
        assert found.seen["all"] == [found.seen["name"]], found.seen
    if seen[0] == seen[1] or len(seen[0]) < len("nbcompile-scratch-") + 8:
        raise LostError(f"names are {seen}")


def _other(lab: Lab, change: Callable[[], object]) -> None:
    """A cache that was filled under other circumstances and then poisoned: nothing of it is to be found."""
    with_change = Lab(lab.home / "other", lab.number, lab.filled)
    with_change.home.mkdir()
    with_change.root = lab.root

    def work() -> Report:
        change()
        return use(0)

    with_change.session(work).must()
    before = {entry.name for entry in entries(lab.root)}
    for entry in entries(lab.root):
        if (entry / "kernel.so").exists():
            data = _poison(entry / "kernel.so")
            (entry / "kernel.so").write_bytes(data)
            told = json.loads((entry / MANIFEST).read_text())
            told["files"]["kernel.so"] = hashlib.sha256(data).hexdigest()
            (entry / MANIFEST).write_text(json.dumps(told))
    assert lab.session().must().compiled
    assert before < {entry.name for entry in entries(lab.root)}


@kind("others", "a cache from another version of ours", 14)
def version(lab: Lab) -> None:
    """nothing of it is found, unless the C text and all that builds it are the same"""
    other = f"version {lab.number}"

    def change() -> None:
        for module in (graph_cache, facts):
            mock.patch.object(module, "code_version", lambda: other).start()
        from nbcompile.compiler.runtime.c import binary

        mock.patch.object(binary, "BUILT", other).start()

    _other(lab, change)


@kind("others", "a cache from a processor with other features", 14)
def processor(lab: Lab) -> None:
    """nothing of it is found"""
    features = sorted(toolchain._cpu_features())

    def change() -> None:
        fewer = frozenset(features) - {lab.random.choice(features)}
        kept = fewer | {each for each in features if each.startswith("avx")}  # flags stay, the name differs
        other = kept if kept != frozenset(features) else kept | {"another"}
        mock.patch.object(toolchain, "_cpu_features", lambda: other).start()

    _other(lab, change)


@kind("others", "a cache from a machine of another name with the same processor", 14)
def host(lab: Lab) -> None:
    """all of it is found"""
    lab.fill()
    before = {entry.name for entry in entries(lab.root)}

    def work() -> Report:
        import platform

        for module, name in ((platform, "node"), (socket, "gethostname")):
            mock.patch.object(module, name, lambda: f"machine-{lab.number}").start()
        return use(0)

    assert lab.session(work).must().compiled
    assert before == {entry.name for entry in entries(lab.root)}


@kind("others", "files whose times are years off", 20)
def times(lab: Lab) -> None:
    """found all the same"""
    lab.fill()
    before = {entry.name for entry in entries(lab.root)}
    for each in (lab.root, *lab.root.rglob("*")):
        when = time.time() + lab.random.choice((-1, 1)) * lab.random.random() * 1e9
        os.utime(each, (max(0.0, when),) * 2)
    assert lab.session().must().compiled
    assert before == {entry.name for entry in entries(lab.root)}


@kind("others", "a clock that jumps by years while it compiles", 16)
def jumping(lab: Lab) -> None:
    """nothing comes of it"""

    def work() -> Report:
        real = time.time
        mock.patch.object(time, "time", lambda: real() + lab.random.choice((-3e8, -40, 0, 40, 3e8))).start()
        return use(1 + lab.number)

    assert lab.session(work).must().compiled
    assert lab.session(lambda: use(1 + lab.number)).must().compiled


@kind("others", "more entries than the limit, some used in the future by a wrong clock", 40)
def bound(lab: Lab) -> None:
    """the size stays below the limit; those go first that were used longest ago, or at no time that can be"""
    small = DiskCache(lab.root, limit=100_000)
    now = time.time()
    names = [key(lab.number, each) for each in range(40)]
    for place, name in enumerate(names):
        small.put(name, {"a": bytes(2000 + lab.random.randrange(2000))})
        when = now + 1e7 if place % 10 == 9 else now - 1e6 + place * 1000
        manifest = lab.root / name[:2] / name / MANIFEST
        if manifest.exists():
            os.utime(manifest, (when, when))
    for extra in range(25):  # by others, each in a process that writes little
        DiskCache(lab.root, limit=100_000).put(key(lab.number, "later", extra), {"a": bytes(2000)})
    if small.size() > 100_000:
        raise LostError(f"it holds {small.size()} bytes")
    left = [place for place, name in enumerate(names) if small.peek(name) is not None]
    if any(place % 10 == 9 for place in left) or (left and left != [n for n in range(40) if n >= left[0]
                                                                  and n % 10 != 9]):  # fmt: skip
        raise LostError(f"these are left: {left}")


@kind("others", "saved cache artifacts that are damaged", 40)
def artifacts(lab: Lab) -> None:
    """not loaded, and said"""
    from nbcompile.compiler.runtime.artifacts import load, pack

    entry = entries(lab.filled)[lab.number % len(entries(lab.filled))]
    given = {each.name: each.read_bytes() for each in entry.iterdir() if each.name != MANIFEST}
    content = bytearray(pack(given))
    if lab.number % 2:
        content = content[: lab.random.randrange(len(content))]
    else:
        content[lab.random.randrange(len(content))] ^= 1 << lab.random.randrange(8)

    def work() -> Report:
        loaded = load(entry.name, bytes(content))
        return {**use(0), "seen": {"loaded": loaded}}

    found = lab.session(work).must("was not loaded")
    assert not found.seen["loaded"] and found.compiled
