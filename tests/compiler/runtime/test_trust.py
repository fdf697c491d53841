"""What is loaded from a cache: this user's own alone, and only what is an ordinary file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nbcompile.compiler.runtime import trust
from nbcompile.compiler.runtime.cache import MANIFEST, DiskCache, key

FILES = {"kernel.so": b"\x7fELF" + bytes(1000), "record.json": b"{}"}
pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners here")
as_root = pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="only root gives files away")


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    made = DiskCache(tmp_path / "cache")
    assert made.put(key(1), FILES) is not None
    return made


def entry_of(cache: DiskCache) -> Path:
    return cache.root / key(1)[:2] / key(1)


def test_nothing_is_loaded_from_a_root_that_others_write_to(cache: DiskCache) -> None:
    cache.root.chmod(0o777)
    assert cache.get(key(1)) is None and "others may write" in cache.why_not()
    stored = cache.put(key(2), FILES)
    assert stored is not None and cache.root not in stored.folder.parents
    assert "others may write" in cache.take_notes()[0] and entry_of(cache).exists()
    cache.root.chmod(0o700)
    assert cache.get(key(1)) is not None and cache.why_not() == ""


def test_nothing_is_loaded_where_anybody_may_rename(cache: DiskCache, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert cache.get(key(1)) is None and "anybody may rename" in cache.why_not()
    tmp_path.chmod(0o1777)
    assert cache.get(key(1)) is not None


@as_root
@pytest.mark.parametrize("what", ["root", "entry", "file", "link"])
def test_nothing_of_another_user_is_loaded(cache: DiskCache, what: str, tmp_path: Path) -> None:
    place = {"entry": entry_of(cache), "file": entry_of(cache) / "kernel.so"}.get(what, cache.root)
    os.chown(place, 65534, 65534)
    if what == "link":
        cache.root.rename(tmp_path / "theirs")
        cache.root.symlink_to(tmp_path / "theirs")
    assert cache.get(key(1)) is None
    assert entry_of(cache).exists() == (what in ("root", "link"))


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _link(file: Path) -> None:
    file.rename(file.parents[3] / "elsewhere")
    file.symlink_to(file.parents[3] / "elsewhere")


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("damage", [_pipe, _link, _folder, lambda file: file.chmod(0o666)])
@pytest.mark.parametrize("name", ["kernel.so", MANIFEST])
def test_what_is_no_file_of_ours_is_made_anew(
    cache: DiskCache, name: str, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(entry_of(cache) / name)
    with caplog.at_level(logging.WARNING, "nbcompile"):
        assert cache.get(key(1)) is None
    assert "made anew" in caplog.text
    again = cache.put(key(1), FILES)
    assert again is not None and again.folder == entry_of(cache) and cache.get(key(1)) == again


def test_what_lies_in_an_entrys_place_makes_room(cache: DiskCache) -> None:
    place, elsewhere = entry_of(cache), cache.root.parent / "elsewhere"
    for put in (lambda: place.write_text("x"), lambda: place.symlink_to(elsewhere), place.mkdir):
        if place.is_dir():
            place.rename(elsewhere) if not elsewhere.exists() else cache.remove(key(1))
        put()
        stored = cache.put(key(1), FILES)
        assert stored is not None and stored.folder == place and cache.get(key(1)) == stored
    assert cache.take_notes() == () and (elsewhere / "kernel.so").exists()


def test_reading_says_why_not(tmp_path: Path) -> None:
    with pytest.raises(trust.NotOursError, match="no ordinary file"):
        trust.read(tmp_path)
    assert trust.why_not(tmp_path / "none") == ""
