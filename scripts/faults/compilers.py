"""C compilers that are missing, broken, killed or slow: the program runs, compiled or not, and says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from kinds import kind
from lab import Lab, LostError, Report, fresh, use

from nbcompile.compiler.runtime.c import toolchain

_EAGER = "eager"


def _script(lab: Lab, text: str) -> Path:
    """A compiler of ours in the real one's place: ``$CC`` is that, which answers what is only asked."""
    place = lab.home / "cc"
    head = (
        f'#!/bin/sh\nCC="{shutil.which("gcc")}"\n'
        'ASKED=; case "$*" in *--version*|*-print-*|*" -E "*) ASKED=1;; esac\n'
        '[ -n "$ASKED" ] && exec "$CC" "$@"\n'
        'out=; for word; do [ "$last" = -o ] && out="$word"; last="$word"; done\n'
    )
    place.write_text(f"{head}{text}\n")
    place.chmod(0o755)
    return place


def _compiling(lab: Lab, text: str, work: Callable[[], Report] | None = None) -> object:
    """A session with that compiler, and one after it with the real one, which must find nothing wrong."""
    number = 1 + lab.number
    place = _script(lab, text)
    found = lab.session(work or (lambda: use(number)), environment={"NBCOMPILE_CC": str(place)})
    assert lab.session(lambda: use(number)).must().compiled
    return found


@kind("compiler", "there is none", 12)
def none(lab: Lab) -> None:
    """in eager, and said; the same session compiles once there is one"""
    path = os.environ["PATH"]

    def work() -> Report:
        without = use(1 + lab.number)
        os.environ["PATH"] = path
        fresh(lab, {})
        after = use(1 + lab.number)
        return {
            **without,
            "wrong": without.get("wrong", after.get("wrong", "")),
            "seen": {"then": after["compiled"]},
        }

    found = lab.session(work, environment={"PATH": str(lab.home), "CC": None, "NBCOMPILE_CC": None}).must(
        _EAGER
    )
    assert not found.compiled


@kind("compiler", "the one that is named is not there, is a folder, or may not be run", 12)
def no_such(lab: Lab) -> None:
    """in eager, and said"""
    (lab.home / "file").write_text("text")
    place = ("/nowhere/cc", str(lab.home), str(lab.home / "file"))[lab.number % 3]
    lab.session(lambda: use(1 + lab.number), environment={"NBCOMPILE_CC": place}).must(_EAGER)


@kind("compiler", "it fails with bytes that are no text", 12)
def garbled(lab: Lab) -> None:
    """in eager, and said"""
    _compiling(lab, "head -c 900 /dev/urandom >&2; exit 1").must(_EAGER)


@kind("compiler", "it succeeds and writes nothing", 12)
def nothing_written(lab: Lab) -> None:
    """in eager, and said; nothing of it stays in the cache"""
    _compiling(lab, "cat > /dev/null; exit 0").must(_EAGER)


@kind("compiler", "it writes what is no library", 12)
def no_library(lab: Lab) -> None:
    """in eager, and said; nothing of it stays in the cache"""
    _compiling(lab, 'head -c 5000 /dev/urandom > "$out"; cat > /dev/null').must(_EAGER)


@kind("compiler", "its library lacks the kernels", 12)
def no_symbols(lab: Lab) -> None:
    """in eager, and said; nothing of it stays in the cache"""
    _compiling(lab, 'cat > /dev/null; echo "int x;" | "$CC" -shared -fPIC -x c - -o "$out"').must(_EAGER)


@kind("compiler", "it crashes", 12)
def crashing(lab: Lab) -> None:
    """in eager, and said"""
    name = ("SEGV", "ABRT", "KILL", "INT")[lab.number % 4]
    _compiling(lab, f"kill -{name} $$; sleep 5").must(_EAGER)


@kind("compiler", "it is killed once, for want of memory", 12)
def killed_once(lab: Lab) -> None:
    """asked again, and compiled"""
    mark = lab.home / "mark"
    text = (
        f'n=$(ls {mark}* 2>/dev/null | wc -l); touch {mark}$n; [ $n = 0 ] && kill -KILL $$; exec "$CC" "$@"'
    )
    assert _compiling(lab, text).must().compiled and (lab.home / "mark1").exists()


@kind("compiler", "its cc1 is killed at a random moment", 15)
def part_killed(lab: Lab) -> None:
    """asked again, and compiled"""
    wait = lab.random.random() * 0.05
    mark = lab.home / "mark"
    text = (
        f'mkdir {mark} 2>/dev/null || exec "$CC" "$@"\n'
        # what runs beside a shell reads from nothing, unless from another number than 0
        f'exec 3<&0; "$CC" "$@" <&3 & pid=$!; sleep {wait:.3f}\n'
        "for each in $(cat /proc/$pid/task/$pid/children 2>/dev/null); do kill -9 $each; done; wait $pid"
    )
    found = _compiling(lab, text).must()
    assert found.compiled, found


@kind("compiler", "it is slow", 8)
def slow(lab: Lab) -> None:
    """waited for, and compiled"""
    assert _compiling(lab, 'sleep 0.7; exec "$CC" "$@"').must().compiled


@kind("compiler", "it never ends, nor does what it started", 12)
def endless(lab: Lab) -> None:
    """given up, with all that it started; in eager, and said"""
    mark = f"{1000 + lab.number}.{os.getpid()}"

    def work() -> Report:
        given = toolchain.Toolchain.compile.__kwdefaults__
        assert given is not None
        given["timeout"] = 0.5
        toolchain.Toolchain.compile.__kwdefaults__ = given
        return use(1 + lab.number)

    _compiling(lab, f"sleep {mark} & sleep {mark}; wait", work).must("took longer")
    time.sleep(0.05)
    left = subprocess.run(
        ["pgrep", "-f", f"sleep {mark}"], capture_output=True, text=True, check=False
    ).stdout
    if left:
        raise LostError(f"left: {left}")


@kind("compiler", "it vanishes after it was found", 12)
def vanishing(lab: Lab) -> None:
    """in eager, and said"""
    place = lab.home / "cc"

    def work() -> Report:
        toolchain.find_toolchain()
        place.unlink()
        return use(1 + lab.number)

    _compiling(lab, 'exec "$CC" "$@"', work).must(_EAGER)


@kind("compiler", "it warns at length", 8)
def talkative(lab: Lab) -> None:
    """compiled"""
    text = 'head -c 3000000 /dev/zero | tr "\\0" x >&2; exec "$CC" "$@"'
    found = _compiling(lab, text).must()
    assert found.compiled, found
