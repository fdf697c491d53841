from __future__ import annotations

import dataclasses
import errno
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nbcompile
from nbcompile.compiler.runtime import cache as cache_module
from nbcompile.compiler.runtime.cache import MANIFEST, DiskCache, default_root, key

FILES = {"kernel.so": b"\x7fELF" + bytes(1000), "record.json": b'{"schema": 1}'}


def test_put_then_get(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "new" / "root")
    k = key("graph", 1)
    assert cache.get(k) is None
    stored = cache.put(k, FILES)
    assert stored is not None and stored.folder.parent.parent == cache.root
    found = DiskCache(cache.root).get(k)  # as another process would see it
    assert found is not None
    assert {name: found.read(name) for name in found.names} == FILES
    assert found.path("kernel.so").read_bytes() == FILES["kernel.so"]
    with pytest.raises(KeyError):
        found.path("other")
    assert cache.take_notes() == ()
    assert not list(cache.root.glob(".partial-*"))


def test_put_twice_keeps_the_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    k = key("graph")
    cache.put(k, {"a": b"first"})
    entry = cache.put(k, {"a": b"second"})
    assert entry is not None and entry.read("a") == b"first"


@pytest.mark.parametrize("name", ["", "..", "a/b", "manifest.json", "/etc/x", "a\\b"])
def test_file_names_stay_inside_the_entry(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        DiskCache(tmp_path).put(key("k"), {name: b""})


@pytest.mark.parametrize("damage", ["truncate", "flip", "lose", "manifest", "no manifest", "other key"])
def test_damaged_entry_is_a_miss_and_is_replaced(tmp_path: Path, damage: str) -> None:
    cache = DiskCache(tmp_path)
    k = key("graph")
    entry = cache.put(k, FILES)
    assert entry is not None
    library = entry.folder / "kernel.so"
    if damage == "truncate":
        library.write_bytes(FILES["kernel.so"][:10])
    elif damage == "flip":
        library.write_bytes(FILES["kernel.so"][:-1] + b"\x01")
    elif damage == "lose":
        library.unlink()
    elif damage == "manifest":
        (entry.folder / MANIFEST).write_text("[]")
    elif damage == "no manifest":
        (entry.folder / MANIFEST).unlink()
    else:
        told = json.loads((entry.folder / MANIFEST).read_text())
        (entry.folder / MANIFEST).write_text(json.dumps({**told, "key": key("another")}))
    assert cache.get(k) is None
    assert not entry.folder.exists()
    again = cache.put(k, FILES)
    assert again is not None and again.read("kernel.so") == FILES["kernel.so"]


def test_put_over_a_damaged_entry(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    k = key("graph")
    entry = cache.put(k, FILES)
    assert entry is not None
    (entry.folder / "kernel.so").write_bytes(b"")
    again = cache.put(k, FILES)  # without a get in between
    assert again is not None and again.read("kernel.so") == FILES["kernel.so"]
    assert cache.take_notes() == ()


def test_root_deleted_mid_run(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "root")
    cache.put(key(1), FILES)
    shutil.rmtree(cache.root)
    assert cache.get(key(1)) is None
    assert cache.put(key(1), FILES) is not None
    assert cache.get(key(1)) is not None
    assert cache.take_notes() == ()


def test_root_deleted_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path / "root")
    rename = os.rename
    deleted = []

    def rename_after_deletion(source: Path, target: Path) -> None:
        if not deleted:
            deleted.append(True)
            shutil.rmtree(cache.root)
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_after_deletion)
    entry = cache.put(key(1), FILES)
    assert deleted and entry is not None and cache.root in entry.folder.parents
    assert cache.take_notes() == ()


def test_root_under_a_file_falls_back_and_says_so_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = DiskCache(tmp_path / "file" / "root")
    assert cache.get(key(1)) is None
    first, second = cache.put(key(1), FILES), cache.put(key(2), FILES)
    assert first is not None and second is not None
    assert first.read("kernel.so") == FILES["kernel.so"]
    assert cache.get(key(1)) == first
    notes = cache.take_notes()
    assert len(notes) == 1 and "cannot be used" in notes[0] and "NBCOMPILE_CACHE_DIR" in notes[0]
    assert cache.take_notes() == ()
    cache.clear()
    assert cache.get(key(1)) is None


def test_root_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("not a folder")
    cache = DiskCache(tmp_path / "root")
    assert cache.put(key(1), FILES) is not None
    assert (tmp_path / "root").read_text() == "not a folder"
    assert len(cache.take_notes()) == 1


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT])
def test_unwritable_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Tests may run as root, whom permissions do not stop, so the system call is made to fail."""
    cache = DiskCache(tmp_path / "root")
    write = Path.write_bytes

    def refuse(path: Path, data: bytes) -> int:
        if cache.root in path.parents:
            raise OSError(code, os.strerror(code), str(path))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", refuse)
    entry = cache.put(key(1), FILES)
    assert entry is not None and cache.root not in entry.folder.parents
    assert cache.get(key(1)) == entry
    assert os.strerror(code) in cache.take_notes()[0]
    assert not list(cache.root.glob(".partial-*"))  # a full disk is not filled further
    monkeypatch.undo()  # the disk is well again, and so is the cache, without a restart
    other = cache.put(key(2), FILES)
    assert other is not None and cache.root in other.folder.parents


def test_no_disk_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    cache = DiskCache(tmp_path / "root")
    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert cache.put(key(1), FILES) is None
    assert cache.get(key(1)) is None
    assert len(cache.take_notes()) == 2


def test_read_only_cache_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DiskCache(tmp_path).put(key(1), FILES)

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    assert DiskCache(tmp_path).get(key(1)) is not None


def test_private_folder_goes_with_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code = (
        "import sys; from pathlib import Path; from nbcompile.compiler.runtime.cache import DiskCache, key\n"
        "entry = DiskCache(Path(sys.argv[1])).put(key(1), {'a': b'x'})\n"
        "assert entry.read('a') == b'x'; print(entry.folder)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path / "file" / "root")]
    folder = Path(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip())
    assert folder.is_absolute() and not folder.exists()


def test_limit_removes_what_was_used_longest_ago(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit=10_000)
    for i in range(8):
        cache.put(key(i), {"a": bytes(1000)})
        os.utime(tmp_path / key(i)[:2] / key(i) / MANIFEST, (1000 + i, 1000 + i))
    assert cache.get(key(0)) is not None  # now the youngest
    for i in range(8, 12):
        cache.put(key(i), {"a": bytes(1000)})
    left = [i for i in range(12) if cache.get(key(i)) is not None]
    assert cache.size() <= 10_000
    assert 0 in left and 11 in left and 1 not in left and len(left) >= 5


def test_an_entry_larger_than_the_limit_can_still_be_used(tmp_path: Path) -> None:
    entry = DiskCache(tmp_path, limit=100).put(key(1), FILES)
    assert entry is not None and entry.read("kernel.so") == FILES["kernel.so"]


def test_left_overs_of_dead_processes_are_swept(tmp_path: Path) -> None:
    old, young = tmp_path / ".partial-old", tmp_path / ".partial-young"
    for folder in (old, young):
        folder.mkdir()
        (folder / "a").write_bytes(b"x")
    os.utime(old, (time.time() - 7200,) * 2)
    DiskCache(tmp_path).put(key(1), FILES)
    assert not old.exists() and young.exists()


def test_clear_leaves_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    cache = DiskCache(tmp_path)
    cache.put(key(1), FILES)
    cache.put(key(2), FILES)
    cache.remove(key(1))
    assert cache.get(key(1)) is None and cache.get(key(2)) is not None
    cache.clear()
    assert cache.get(key(2)) is None and cache.size() == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_clear_cache_tells_what_it_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBCOMPILE_CACHE_DIR", str(tmp_path))
    DiskCache(tmp_path).put(key(1), FILES)
    size = DiskCache(tmp_path).size()
    assert size > 0 and nbcompile.clear_cache() == size
    assert DiskCache(tmp_path).get(key(1)) is None and nbcompile.clear_cache() == 0


def _contend(root: Path, start: float, failures: multiprocessing.queues.Queue[str]) -> None:
    cache = DiskCache(root, limit=40_000)  # small, so that eviction runs at the same time
    time.sleep(max(0.0, start - time.time()))
    for turn in range(60):
        k = key(turn % 7)
        contents = {"a": k.encode() * 100, "b": bytes(1000)}
        entry = cache.get(k) or cache.put(k, contents)
        if entry is None:
            failures.put(f"{turn}: nothing stored")
            continue
        for name, wanted in contents.items():
            got = entry.read(name)
            if got is not None and got != wanted:
                failures.put(f"{turn}: {name} is torn")
        if turn % 13 == 0:
            cache.remove(k)
    for note in cache.take_notes():
        failures.put(note)


def test_processes_share_a_root(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    failures = context.Queue()
    start = time.time() + 0.2
    workers = [context.Process(target=_contend, args=(tmp_path, start, failures)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert failures.empty(), failures.get()
    for i in range(7):
        entry = DiskCache(tmp_path).get(key(i))
        if entry is not None:
            assert entry.read("a") == key(i).encode() * 100


@dataclasses.dataclass(frozen=True)
class _Options:
    fuse: bool = True
    pairs: tuple[str, ...] = ()


def test_key_tells_apart() -> None:
    parts = [
        (), ("",), ("a",), ("a", ""), ("ab",), ("a", "b"), (b"a",), (1,), (1.0,), (True,), ("1",), (None,),
        (["a", "b"],), ({"a": 1},), ({"a": "1"},), (frozenset("ab"),), (_Options(),), (_Options(False),),
        (_Options(pairs=("a",)),), ((("a",), "b"),), (("a", ("b",)),),
    ]  # fmt: skip
    hashes = [key(*each) for each in parts]
    assert len(set(hashes)) == len(parts)
    assert all(len(each) == 64 for each in hashes)


def test_key_is_stable_across_processes() -> None:
    code = (
        "from nbcompile.compiler.runtime.cache import key\n"
        "print(key('a', frozenset('xyz'), {'b': 1, 'a': [2.5, None]}))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert seen == {key("a", frozenset("zyx"), {"a": (2.5, None), "b": 1})}


def test_key_refuses_what_has_no_stable_hash() -> None:
    with pytest.raises(TypeError, match="plain data"):
        key(object())


def test_default_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBCOMPILE_CACHE_DIR", str(tmp_path / "here"))
    assert default_root() == tmp_path / "here" == cache_module.DiskCache().root
    monkeypatch.delenv("NBCOMPILE_CACHE_DIR")
    assert default_root().name == "nbcompile"


def test_the_cache_has_a_place_where_nothing_is_installed(monkeypatch):
    monkeypatch.delenv("NBCOMPILE_CACHE_DIR", raising=False)
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert default_root() == Path.home() / ".cache" / "nbcompile"


def test_compiles_of_one_process_share_what_could_not_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NBCOMPILE_CACHE_DIR", str(tmp_path / "file" / "root"))
    stored = DiskCache.shared().put(key(1), FILES)
    assert stored is not None and DiskCache.shared().get(key(1)) == stored
    assert len(DiskCache.shared().take_notes()) == 1
    DiskCache.shared().put(key(2), FILES)
    assert DiskCache.shared().take_notes() == ()
    monkeypatch.setenv("NBCOMPILE_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert DiskCache.shared().get(key(1)) is None
